/**
 * Reads the details of the tasks that viewers have opened. The views do not contain them, so the
 * file is read a second time, for one task after another.
 */

import type { Clock } from '../../foundation/clock.ts'
import { boundedWait } from '../../foundation/promises.ts'
import { type KeptOutput, readKeptOutput, TaskHistory } from '../../record/task-history.ts'
import type { RecordedHistory } from '../queries/query-source.ts'

/** The maximum number of tasks. The latest requested ones are kept. */
const maxTasks = 8
/** How long a query waits for a reading. A longer one continues, and then changes `revision`. */
const maxWaitMs = 150
/** A larger stored value is not shown. The end of its text may be in the record. */
const maxValueBytes = 8 * 2 ** 20

interface KnownTask {
  readonly history: TaskHistory
  readonly controller: AbortController
  kept: KeptOutput | null
  /** The number of lines of the record when it was read for this task; -1 before. */
  lines: number
  reading: Promise<void> | null
}

export class TaskRecords {
  readonly #clock: Clock
  readonly #tasks = new Map<string, KnownTask>()
  #lastReading: Promise<void> = Promise.resolve()
  /** Changes when a record was read for a task. */
  revision = 0

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** `lines` is the number of lines that the record had when it was read last. */
  async find(uid: string, files: readonly string[], lines: number): Promise<RecordedHistory> {
    const task = this.#findOrAdd(uid, files)
    const isBehind = task.lines !== lines && !task.history.hasEnded
    if (task.reading === null && isBehind) {
      task.reading = this.#lastReading = this.#readAfter(this.#lastReading, task, lines)
    }
    if (task.reading !== null) {
      await boundedWait(this.#clock, maxWaitMs, task.reading).catch(() => undefined)
    }
    const { history, kept, lines: known } = task
    return { events: history.events, kept, isReading: known === -1 }
  }

  close(): void {
    for (const { controller } of this.#tasks.values()) controller.abort()
    this.#tasks.clear()
  }

  #findOrAdd(uid: string, files: readonly string[]): KnownTask {
    const known = this.#tasks.get(uid)
    this.#tasks.delete(uid)
    const [oldest] = this.#tasks
    if (known === undefined && oldest !== undefined && this.#tasks.size >= maxTasks) {
      oldest[1].controller.abort()
      this.#tasks.delete(oldest[0])
    }
    const task = known ?? {
      history: new TaskHistory(uid, files),
      controller: new AbortController(),
      kept: null,
      lines: -1,
      reading: null,
    }
    this.#tasks.set(uid, task)
    return task
  }

  async #readAfter(last: Promise<void>, task: KnownTask, lines: number): Promise<void> {
    await last
    const { history, controller } = task
    try {
      await history.read(controller.signal)
      const { end } = history
      if (end !== null) task.kept = await readKeptOutput(history, end, maxValueBytes)
    } catch {
      // The events read so far are shown. The reader of the record reports its problems.
    }
    task.lines = lines
    task.reading = null
    this.revision++
  }
}
