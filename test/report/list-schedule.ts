/** A list scheduler: how long tasks take that are started in the order in which they are ready. */

import type { ViewEvent } from '../../src/views/panel.ts'
import { eventsOf, type SyntheticNode } from '../views/synthetic-run.ts'
import { viewEvent } from '../views/view-event.ts'

export interface Attempt {
  readonly seconds: number
  /** After which the next one may begin. */
  readonly delay?: number
}

export interface Job {
  readonly uid: string
  readonly name?: string
  readonly created?: number
  readonly dependencies?: readonly string[]
  readonly gpus?: number
  readonly memoryMb?: number
  readonly labels?: Readonly<Record<string, string>>
  /** All but the last one fail. */
  readonly attempts: readonly Attempt[]
  /** Whether the last one fails as well. */
  readonly isFailed?: boolean
}

export interface Workload {
  readonly nodes: readonly SyntheticNode[]
  readonly jobs: readonly Job[]
  /** The least time between two starts. */
  readonly gap?: number
}

interface PlacedAttempt {
  readonly start: number
  readonly end: number
  readonly node: string
}

interface PlacedJob {
  readonly job: Job
  readonly waitsFor: Set<string>
  readonly attempts: PlacedAttempt[]
  ready: number
}

interface FreeNode {
  readonly node: SyntheticNode
  cores: number
  gpus: number
  memoryMb: number
}

export interface Schedule {
  readonly end: number
  readonly placed: readonly PlacedJob[]
}

export const schedule = (workload: Workload): Schedule => new Scheduler(workload).run()

class Scheduler {
  readonly #placed: readonly PlacedJob[]
  readonly #nodes: readonly FreeNode[]
  readonly #gap: number
  readonly #queue: PlacedJob[] = []
  readonly #later: { readonly time: number; readonly act: () => void }[] = []
  #now = 0
  #nextStart = 0

  constructor({ nodes, jobs, gap = 0 }: Workload) {
    this.#gap = gap
    this.#nodes = nodes.map((node) => {
      const { cores, gpus = 0, memoryMb = 0 } = node
      return { node, cores, gpus, memoryMb: memoryMb === 0 ? Infinity : memoryMb }
    })
    this.#placed = jobs.map((job) => {
      return { job, waitsFor: new Set(job.dependencies), attempts: [], ready: 0 }
    })
  }

  run(): Schedule {
    for (const { from = 0 } of this.#nodes.map(({ node }) => node)) this.#at(from, () => {})
    for (const one of this.#placed) this.#at(one.job.created ?? 0, () => this.#check(one))
    while (this.#later.length > 0) {
      this.#now = Math.min(...this.#later.map(({ time }) => time))
      for (;;) {
        const next = this.#later.findIndex(({ time }) => time <= this.#now)
        if (next === -1) break
        this.#later.splice(next, 1)[0]?.act()
      }
      this.#dispatch()
    }
    const ends = this.#placed.flatMap(({ attempts }) => attempts.map(({ end }) => end))
    return { end: Math.max(0, ...ends), placed: this.#placed }
  }

  #at(time: number, act: () => void): void {
    this.#later.push({ time, act })
  }

  #check(one: PlacedJob): void {
    if (one.waitsFor.size > 0 || (one.job.created ?? 0) > this.#now) return
    one.ready = this.#now
    this.#queue.push(one)
  }

  /** Tasks do not pass each other. */
  #dispatch(): void {
    for (let first = this.#queue[0]; first !== undefined; first = this.#queue[0]) {
      const { job } = first
      const node = this.#nodes.find((free) => this.#isFitting(free, job))
      if (node === undefined) return
      if (this.#now < this.#nextStart) return this.#at(this.#nextStart, () => {})
      this.#queue.shift()
      this.#nextStart = this.#now + this.#gap
      this.#start(first, node)
    }
  }

  #isFitting({ node, cores, gpus, memoryMb }: FreeNode, job: Job): boolean {
    const isLabelled = Object.entries(job.labels ?? {}).every(
      ([key, value]) => node.labels?.[key] === value,
    )
    const isHere = (node.from ?? 0) <= this.#now
    const isEnough = cores >= 1 && gpus >= (job.gpus ?? 0) && memoryMb >= (job.memoryMb ?? 0)
    return isLabelled && isHere && isEnough
  }

  #start(one: PlacedJob, free: FreeNode): void {
    const { job, attempts } = one
    const attempt = job.attempts[attempts.length] ?? { seconds: 0 }
    const end = this.#now + attempt.seconds
    attempts.push({ start: this.#now, end, node: free.node.nodeId })
    const hold = (sign: number): void => {
      free.cores -= sign
      free.gpus -= sign * (job.gpus ?? 0)
      free.memoryMb -= sign * (job.memoryMb ?? 0)
    }
    hold(1)
    this.#at(end, () => {
      hold(-1)
      if (attempts.length < job.attempts.length) {
        this.#at(end + (attempt.delay ?? 0), () => this.#queue.push(one))
      } else this.#resolve(job.uid)
    })
  }

  #resolve(uid: string): void {
    for (const one of this.#placed) {
      if (one.waitsFor.delete(uid)) this.#check(one)
    }
  }
}

/** The events of such a run. */
export function eventsOfSchedule({ nodes }: Workload, { end, placed }: Schedule): ViewEvent[] {
  const tasks = placed.map(({ job, attempts, ready }) => {
    const { gpus = 0, memoryMb = 0, labels } = job
    const resources = { cores: 1, gpus, memory_mb: memoryMb, ranks: 1, labels }
    return {
      uid: job.uid,
      created: job.created ?? 0,
      start: attempts[0]?.start ?? 0,
      end: attempts.at(-1)?.end ?? 0,
      worker: `${attempts[0]?.node}/local/w1`,
      resources,
      ...(job.name === undefined ? {} : { name: job.name }),
      ...(job.dependencies?.length ? { dependencies: job.dependencies, ready } : {}),
      ...(job.isFailed === true ? { endType: 'TaskFailed' as const } : {}),
    }
  })
  const retries = placed.flatMap(({ job, attempts }) =>
    attempts.slice(1).flatMap(({ start, node }, at) => {
      const before = attempts[at] ?? { end: 0, node: '' }
      const delay = job.attempts[at]?.delay ?? 0
      const on = (id: string) => ({ node_id: id, worker_id: `${id}/local/w1` })
      const told = { event_time: before.end, retry_at: before.end + delay, ...on(before.node) }
      return [
        viewEvent('tutti.TaskAttempt', job.uid, told),
        viewEvent('tutti.AttemptStarted', job.uid, { event_time: start, ...on(node) }),
      ]
    }),
  )
  const events = [...eventsOf({ nodes, tasks, end }), ...retries]
  return events.toSorted((a, b) => a.event_time - b.event_time)
}
