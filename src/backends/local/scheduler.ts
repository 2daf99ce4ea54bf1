/** Gives waiting jobs to executors, by priority and age, as resources and places allow. */

import { defaultResources, type ResourceRequest } from '../../tasks/resources.ts'
import type { BackendListener, Job, Notice, TaskReport } from '../backend.ts'
import type { Batch, Executor, ExecutorListener } from './executor.ts'
import { JobQueue, type WaitingJob } from './job-queue.ts'
import { type Client, type Lane, Place, Places } from './places.ts'
import { type Capacity, type Grant, Slots } from './slots.ts'

const lanes: readonly Lane[] = ['functions', 'programs', 'closures']
/** Closures run on the event loop and hold no core. */
const nothing: ResourceRequest = Object.freeze({ ...defaultResources, cores: 0 })

export class Scheduler implements ExecutorListener {
  readonly #slots: Slots
  readonly #queues: Readonly<Record<Lane, JobQueue<Place>>> = {
    functions: new JobQueue(),
    programs: new JobQueue(),
    closures: new JobQueue(),
  }
  readonly #places = new Places()
  readonly #grants = new Map<Batch, Grant>()
  /** How many jobs each sharer has here, and who waits for the last of them. */
  readonly #open = new Map<BackendListener, number>()
  readonly #waiters = new Map<BackendListener, (() => void)[]>()
  readonly #onNotice: (notice: Notice) => void
  #executors: Readonly<Record<Lane, Executor>> | null = null
  #turn = 0
  #isPumping = false
  #closeReason: string | null = null

  constructor(capacity: Capacity, onNotice: (notice: Notice) => void) {
    this.#slots = new Slots(capacity)
    this.#onNotice = onNotice
  }

  /** The executors report to this scheduler, so they come after it. */
  use(executors: Readonly<Record<Lane, Executor>>): void {
    this.#executors = executors
  }

  submit(jobs: readonly Job[], laneOf: (job: Job) => Lane, client: Client): void {
    const { listener } = client
    this.#open.set(listener, (this.#open.get(listener) ?? 0) + jobs.length)
    for (const job of jobs) {
      const place = new Place(job, ++this.#turn, laneOf(job), client)
      this.#places.add(place)
      this.#queues[place.lane].push(place)
    }
    this.#pump()
  }

  cancel(job: Job, reason: string): void {
    this.#cancel(job, reason)
    // It may have been in the way of others.
    this.#pump()
  }

  /** Cancels what this sharer has here. Nothing else begins before all of it was canceled. */
  cancelAll(listener: BackendListener, reason: string): void {
    this.#withoutPumping(() => {
      for (const { job, client } of this.#places.toArray()) {
        if (client.listener === listener) this.#cancel(job, reason)
      }
    })
    this.#pump()
  }

  /** Cancels what waits, and whatever comes back: only the executors know what runs. */
  close(reason: string): void {
    this.#closeReason = reason
    this.#withoutPumping(() => {
      for (const { job, isWaiting } of this.#places.toArray()) {
        if (isWaiting) this.#cancel(job, reason)
      }
    })
  }

  /** Resolves when no job of this sharer is left. */
  async drained(listener: BackendListener): Promise<void> {
    if ((this.#open.get(listener) ?? 0) === 0) return
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#waiters.set(listener, [...(this.#waiters.get(listener) ?? []), resolve])
    await promise
  }

  /** Calls the closure of a job that is here, with its arguments; `null` for any other job. */
  closureOf(job: Job): (() => unknown) | null {
    return this.#places.of(job)?.client.session.closureOf(job) ?? null
  }

  report(job: Job, report: TaskReport): void {
    const place = this.#places.of(job)
    if (place === null) return
    const { listener } = place.client
    if (report.kind === 'start') return listener.report(job, report)
    this.#places.delete(place)
    listener.report(job, report)
    const left = (this.#open.get(listener) ?? 1) - 1
    this.#open.set(listener, left)
    if (left === 0) this.#tellDrained(listener)
  }

  notice(notice: Notice): void {
    this.#onNotice(notice)
  }

  giveBack(jobs: readonly Job[]): void {
    const back: Record<Lane, Place[]> = { functions: [], programs: [], closures: [] }
    for (const job of jobs) {
      const place = this.#places.of(job)
      if (place === null || place.isWaiting) continue
      if (this.#closeReason !== null) {
        this.report(job, { kind: 'cancel', reason: this.#closeReason })
        continue
      }
      place.isWaiting = true
      back[place.lane].push(place)
    }
    for (const lane of lanes) if (back[lane].length > 0) this.#queues[lane].putBack(back[lane])
    this.#pump()
  }

  finish(batch: Batch): void {
    const grant = this.#grants.get(batch)
    if (grant === undefined) return
    this.#grants.delete(batch)
    this.#slots.giveBack(grant)
    this.#pump()
  }

  #cancel(job: Job, reason: string): void {
    const place = this.#places.of(job)
    if (place === null) return
    if (place.isWaiting) {
      this.#queues[place.lane].remove(job)
      this.report(job, { kind: 'cancel', reason })
    } else this.#executors?.[place.lane].cancel(job, reason)
  }

  #tellDrained(listener: BackendListener): void {
    this.#open.delete(listener)
    const waiters = this.#waiters.get(listener) ?? []
    this.#waiters.delete(listener)
    for (const resolve of waiters) resolve()
  }

  #withoutPumping(act: () => void): void {
    const wasPumping = this.#isPumping
    this.#isPumping = true
    try {
      act()
    } finally {
      this.#isPumping = wasPumping
    }
  }

  /** Not recursive: reports and ends that happen while it runs are seen by its own loop. */
  #pump(): void {
    if (this.#isPumping || this.#closeReason !== null) return
    this.#withoutPumping(() => {
      while (this.#beginOne());
    })
  }

  /**
   * Begins the first job whose executor has a place. When it does not fit into what is left,
   * nothing after it begins either, except what takes nothing: a large request cannot be starved by
   * small ones.
   */
  #beginOne(): boolean {
    const executors = this.#executors
    if (executors === null) return false
    let first: Place | undefined
    let free: Place | undefined
    for (const lane of lanes) {
      if (this.#queues[lane].length === 0 || executors[lane].places <= 0) continue
      const head = this.#queues[lane].peek()
      if (head === undefined) continue
      if (first === undefined || isBefore(head, first)) first = head
      if (requestOf(head.job, lane) === nothing) free = head
    }
    if (first === undefined) return false
    const next = this.#slots.fits(requestOf(first.job, first.lane)) ? first : free
    if (next === undefined) return false
    this.#begin(next, executors[next.lane])
    return true
  }

  #begin({ lane, job: first }: Place, executor: Executor): void {
    const queue = this.#queues[lane]
    const request = requestOf(first, lane)
    const most = request === defaultResources ? executor.batchSize(queue.length) : 1
    const jobs: Job[] = []
    do {
      const place = queue.take()
      if (place === undefined) break
      place.isWaiting = false
      jobs.push(place.job)
    } while (jobs.length < most && this.#isNext(queue, lane, request))
    const grant = this.#slots.take(request)
    const batch: Batch = { jobs, gpuIds: grant.gpuIds }
    this.#grants.set(batch, grant)
    executor.assign(batch)
  }

  #isNext(queue: JobQueue<Place>, lane: Lane, request: ResourceRequest): boolean {
    const next = queue.peek()
    return next !== undefined && requestOf(next.job, lane) === request
  }
}

function isBefore(a: WaitingJob, b: WaitingJob): boolean {
  const [mine, other] = [a.job.spec.priority, b.job.spec.priority]
  return mine === other ? a.turn < b.turn : mine > other
}

function requestOf({ spec }: Job, lane: Lane): ResourceRequest {
  if (spec.kind === 'prompt') return nothing
  return lane === 'closures' && spec.resources === defaultResources ? nothing : spec.resources
}
