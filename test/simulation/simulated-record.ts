/** The record of a simulated run. It survives the driver, but not what was never flushed. */

export type RecordedEnd = 'done' | 'failed' | 'canceled'

interface RecordedTask {
  /** The number of the last attempt that may have begun; 0 before the first. */
  attempts: number
  end: RecordedEnd | null
  readonly failures: Set<string>
}

export class SimulatedRecord {
  readonly #tasks = new Map<string, RecordedTask>()
  /** The agents that are there: those that have joined and not left. */
  readonly nodes = new Map<string, number>()
  isStarted = false
  isDiskFull = false
  lostLines = 0

  of(uid: string): RecordedTask {
    const known = this.#tasks.get(uid)
    if (known !== undefined) return known
    const added: RecordedTask = { attempts: 0, end: null, failures: new Set() }
    this.#tasks.set(uid, added)
    return added
  }
}
