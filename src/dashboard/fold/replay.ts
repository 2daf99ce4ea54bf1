/** A run as it was at an earlier time, read from its record. */

import { type RecordViews, readViews } from '../../record/record-views.ts'
import type { ViewEvent } from '../../views/panel.ts'
import { SharedResult } from '../../foundation/promises.ts'
import { EventRing } from './event-ring.ts'

interface PastRun {
  readonly views: RecordViews
  readonly events: readonly ViewEvent[]
}

/** The maximum number of kept runs, because each takes as much memory as the whole run. */
const maxKept = 2
/** Runs with more tasks than this are not kept while another time is read. */
const defaultMaxTasks = 250_000

/**
 * Reads and keeps runs by the requested time. All panels of a page request the same time, but
 * viewers may request different times.
 */
export class Replay {
  readonly #path: string
  readonly #maxTasks: number
  readonly #runs = new Map<number, SharedResult<PastRun>>()
  /** The times of the kept runs, in the order of reading. */
  readonly #keptTimes: number[] = []
  #lastReading: Promise<unknown> = Promise.resolve()
  /** The number of tasks in the run that was read last. */
  #lastTasks = 0

  constructor(path: string, maxTasks = defaultMaxTasks) {
    this.#path = path
    this.#maxTasks = maxTasks
  }

  /** Reads the run for one time after another. Ends a reading once nobody waits for it any more. */
  async read(time: number, signal: AbortSignal): Promise<PastRun> {
    const known = this.#runs.get(time)
    const run = known === undefined || known.isAborted ? this.#start(time) : known
    return await run.wait(signal)
  }

  #start(time: number): SharedResult<PastRun> {
    const before = this.#lastReading
    const run = new SharedResult(async (signal) => {
      await before
      return await this.#readUntil(time, signal)
    })
    this.#runs.set(time, run)
    this.#lastReading = run.hasResult.then((isRead) => this.#keep(time, isRead ? null : run))
    return run
  }

  async #readUntil(until: number, signal: AbortSignal): Promise<PastRun> {
    signal.throwIfAborted()
    if (this.#lastTasks > this.#maxTasks) this.#forgetKept()
    const ring = new EventRing()
    const onEvent = (event: ViewEvent): void => ring.add(event)
    const views = await readViews(this.#path, { until, signal, onEvent })
    this.#lastTasks = views.pass.counts.totals.tasks
    return { views, events: ring.latest }
  }

  #forgetKept(): void {
    for (const time of this.#keptTimes.splice(0)) this.#runs.delete(time)
  }

  /** Removes a failed reading. After a successful one, removes the oldest run above the limit. */
  #keep(time: number, failed: SharedResult<PastRun> | null): void {
    if (failed !== null) {
      if (this.#runs.get(time) === failed) this.#runs.delete(time)
      return
    }
    this.#keptTimes.push(time)
    const oldest = this.#keptTimes.length > maxKept ? this.#keptTimes.shift() : undefined
    if (oldest !== undefined) this.#runs.delete(oldest)
  }
}
