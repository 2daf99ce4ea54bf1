/** A scheduler, its queue and tasks, simulated second by second around the plan. */

import {
  classifyEnd,
  emptyHistory,
  noteEnd,
  resetFailures,
  type PilotEnd,
  type PilotHistory,
  workKey,
} from '../../../src/hpc/pilots/pilot-history.ts'
import {
  provesKind,
  type PilotKind,
  type PilotOrder,
  planPilots,
  countCapacity,
} from '../../../src/hpc/pilots/pilot-plan.ts'
import { resolveResources, type ResourceRequest } from '../../../src/tasks/resources.ts'

export const node = { cores: 4, gpus: 0, memoryMb: 8000, labels: {} }
/** A kind of allocations whose nodes are all alike. */
export const smallKind: PilotKind = {
  nodes: 1,
  min: 0,
  max: 4,
  backlog: 2,
  idleSeconds: 10,
  usableSeconds: 3600,
  maxTotal: 1000,
  candidates: [node],
}

/** The scheduler's reaction to one request. */
export interface QueueAnswer {
  readonly isRefused?: boolean
  /** Its controller is away. */
  readonly isUnanswered?: boolean
  readonly queueSeconds: number
  /** From its start until all of its nodes are ready; the first takes tasks before. Default 0. */
  readonly readySeconds?: number
  /** From its start on; `Infinity` for one that lives until it is given back. */
  readonly lifeSeconds: number
  /** The cause of its end. Default: a loss. */
  readonly cause?: 'limit' | 'loss'
  /** Tasks that its nodes cannot run, against what the plan thinks. Default: none. */
  readonly lacks?: (resources: ResourceRequest) => boolean
}

export interface SimulatedWork {
  readonly resources: ResourceRequest
  left: number
  done: number
}

interface SimulatedPilot {
  readonly id: string
  readonly kind: number
  readonly answer: QueueAnswer
  readonly work: readonly string[]
  readonly submittedAt: number
  startedAt: number | null
  readyAt: number | null
  idleSince: number | null
  hasRun: boolean
  /** The tasks that it runs. */
  tasks: { readonly of: SimulatedWork; readonly endsAt: number }[]
}

/** Kinds of tasks, and a scheduler that decides by turns. */
export class Simulation {
  now = 0
  /** When each was requested, and its kind. */
  readonly orders: { readonly at: number; readonly kind: number }[] = []
  readonly pilots: SimulatedPilot[] = []
  readonly histories: PilotHistory[]
  readonly work: readonly SimulatedWork[]
  readonly #kinds: readonly PilotKind[]
  readonly #answers: readonly QueueAnswer[]
  readonly #taskSeconds: number

  constructor(
    kinds: readonly PilotKind[],
    answers: readonly QueueAnswer[],
    {
      resources = [resolveResources({})],
      taskSeconds = 5,
    }: { resources?: readonly ResourceRequest[]; taskSeconds?: number } = {},
  ) {
    this.#kinds = kinds
    this.#answers = answers
    this.#taskSeconds = taskSeconds
    this.work = resources.map((one) => ({ resources: one, left: 0, done: 0 }))
    this.histories = kinds.map(() => emptyHistory)
  }

  /** The number of remaining tasks of the first group. */
  get left(): number {
    return this.work[0]?.left ?? 0
  }

  set left(count: number) {
    if (this.work[0] !== undefined) this.work[0].left = count
  }

  get done(): number {
    return this.work[0]?.done ?? 0
  }

  get submissions(): number[] {
    return this.orders.map(({ at }) => at)
  }

  get running(): SimulatedPilot[] {
    return this.pilots.filter(({ startedAt }) => startedAt !== null)
  }

  get queued(): SimulatedPilot[] {
    return this.pilots.filter(({ startedAt }) => startedAt === null)
  }

  run(seconds: number): void {
    for (let step = 0; step < seconds; step++) this.#second()
  }

  #second(): void {
    this.now++
    for (const pilot of this.pilots.slice()) this.#advance(pilot)
    for (const pilot of this.running) this.#fill(pilot)
    const plan = planPilots({
      kinds: this.#kinds,
      work: this.#waiting.map(({ resources, left }) => ({ resources, count: left })),
      pilots: this.pilots.map((one) => ({ ...one, isEnding: false })),
      histories: this.histories,
      now: this.now,
    })
    for (const id of plan.end) this.#remove(id, 'given back', '')
    for (const order of plan.submit) this.#submit(order)
  }

  get #waiting(): readonly SimulatedWork[] {
    return this.work.filter(({ left }) => left > 0)
  }

  #submit({ kind, work }: PilotOrder): void {
    const answer = this.#answers[this.orders.length % this.#answers.length] as QueueAnswer
    this.orders.push({ at: this.now, kind })
    const history = this.histories[kind] as PilotHistory
    this.histories[kind] = { ...history, submitted: history.submitted + 1 }
    const id = `job-${this.orders.length}`
    const times = { submittedAt: this.now, startedAt: null, readyAt: null, idleSince: null }
    const pilot = { id, kind, answer, work, ...times, hasRun: false, tasks: [] }
    if (answer.isUnanswered === true) return this.#note(pilot, 'unanswered', 'no answer')
    if (answer.isRefused === true) return this.#note(pilot, 'failed', 'Invalid account')
    this.pilots.push(pilot)
  }

  #advance(pilot: SimulatedPilot): void {
    if (pilot.startedAt === null) {
      if (this.now - pilot.submittedAt < pilot.answer.queueSeconds) return
      pilot.startedAt = this.now
      pilot.idleSince = this.now
    }
    const { readySeconds = 0 } = pilot.answer
    if (this.now - pilot.startedAt >= readySeconds) pilot.readyAt ??= this.now
    for (const { of, endsAt } of pilot.tasks) if (endsAt <= this.now) of.done++
    pilot.tasks = pilot.tasks.filter(({ endsAt }) => endsAt > this.now)
    if (pilot.tasks.length === 0) pilot.idleSince ??= this.now
    const age = this.now - pilot.startedAt
    if (provesKind(pilot, this.now) && !provesKind(pilot, this.now - 1)) {
      this.histories[pilot.kind] = resetFailures(this.histories[pilot.kind] as PilotHistory)
    }
    if (age < pilot.answer.lifeSeconds) return
    // The tasks that ran there are retried.
    for (const { of } of pilot.tasks) of.left++
    const { cause = 'loss' } = pilot.answer
    const judged = { ...pilot, missed: this.#missedBy(pilot) }
    this.#remove(pilot.id, classifyEnd(age, cause, judged), 'NODE_FAIL')
  }

  /** Each task has a share of the allocation. */
  #fill(pilot: SimulatedPilot): void {
    const kind = this.#kinds[pilot.kind] as PilotKind
    const shareOf = ({ resources }: SimulatedWork): number => 1 / countCapacity(kind, resources)
    let free = 1 - pilot.tasks.reduce((sum, { of }) => sum + shareOf(of), 0)
    for (const one of this.#waiting) {
      if (pilot.answer.lacks?.(one.resources) === true) continue
      while (one.left > 0 && free > shareOf(one) - 1e-9) {
        free -= shareOf(one)
        one.left--
        pilot.tasks.push({ of: one, endsAt: this.now + this.#taskSeconds })
        pilot.idleSince = null
        pilot.hasRun = true
      }
    }
  }

  #remove(id: string, how: PilotEnd['kind'], reason: string): void {
    const at = this.pilots.findIndex((one) => one.id === id)
    const [pilot] = this.pilots.splice(at, 1) as [SimulatedPilot]
    this.#note(pilot, how, reason)
  }

  #missedBy({ readyAt, hasRun, work }: SimulatedPilot): readonly string[] {
    const waiting = new Set(this.#waiting.map(workKey))
    return readyAt === null || hasRun ? [] : work.filter((key) => waiting.has(key))
  }

  #note(pilot: SimulatedPilot, how: PilotEnd['kind'], reason: string): void {
    const { kind, submittedAt, hasRun } = pilot
    const missed = this.#missedBy(pilot)
    const end = { kind: how, submittedAt, at: this.now, reason, hasRun, missed }
    this.histories[kind] = noteEnd(this.histories[kind] as PilotHistory, end)
  }
}
