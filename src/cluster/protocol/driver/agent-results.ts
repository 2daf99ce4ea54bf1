/** How far the results of an agent have arrived, were passed on and are recorded: three cursors. */

import type { Job } from '../../../backends/backend.ts'
import { Fifo } from '../../../runtime/fifo.ts'

/** A message with results. It settles when each of its results is recorded or never will be. */
export interface ReceivedMessage {
  readonly number: number
  /** The number of results that have not settled. */
  left: number
  /** Whether the record has lost the line of one of the results. */
  isLost: boolean
}

export interface ResultsReport {
  /** All results of the messages up to this number are recorded, or will never be. */
  readonly through: number
  /** All results of the messages up to this number have arrived, with their values. */
  readonly taken: number
  /** Messages up to `through` with a result whose line in the record was lost. */
  readonly lost?: readonly number[]
}

/** Above this total size, results are confirmed immediately, because the agent keeps them. */
const maxUnconfirmedBytes = 64 * 1024

/** The results of one use of an agent. */
export class AgentResults {
  readonly #unsettled = new Fifo<ReceivedMessage>()
  /** The messages whose values are still being read from the broker's store. */
  readonly #reading = new Set<number>()
  #arrived = 0
  #recorded = 0
  #lost: number[] = []
  #confirmed: ResultsReport = { through: 0, taken: 0 }
  #unconfirmedBytes = 0

  /** The number of the last message that has arrived. Messages arrive in order. */
  get arrived(): number {
    return this.#arrived
  }

  /** Adds a message. Returns `null` if it has arrived before. */
  add(number: number, results: number, bytes: number): ReceivedMessage | null {
    if (number <= this.#arrived) return null
    this.#arrived = number
    this.#unconfirmedBytes += bytes
    const message = { number, left: results, isLost: false }
    this.#unsettled.push(message)
    return message
  }

  beginReading({ number }: ReceivedMessage): void {
    this.#reading.add(number)
  }

  endReading({ number }: ReceivedMessage): void {
    this.#reading.delete(number)
  }

  get isReportUrgent(): boolean {
    return this.#unconfirmedBytes > maxUnconfirmedBytes
  }

  /** A new link begins: the agent may have missed the latest report. */
  repeatReport(): void {
    this.#confirmed = { through: 0, taken: 0 }
  }

  /** Returns what the agent was not told yet; `null` if there is nothing. */
  takeReport(): ResultsReport | null {
    this.#unconfirmedBytes = 0
    for (let next = this.#unsettled.peek(); next?.left === 0; next = this.#unsettled.peek()) {
      this.#unsettled.shift()
      this.#recorded = next.number
      if (next.isLost) this.#lost.push(next.number)
    }
    const taken = this.#reading.size === 0 ? this.#arrived : Math.min(...this.#reading) - 1
    const through = this.#recorded
    if (through === this.#confirmed.through && taken === this.#confirmed.taken) return null
    this.#confirmed = { through, taken }
    const lost = this.#lost
    this.#lost = []
    return { through, taken, ...(lost.length === 0 ? {} : { lost }) }
  }
}

/** Results that were reported in succession and come from the same message, or from no message. */
interface ReportRun {
  readonly message: ReceivedMessage | null
  readonly jobs: Job[]
  settled: number
}

/**
 * Finds the messages whose results are recorded. Sessions confirm jobs in the order of their
 * results, and skip jobs whose lines in the record were lost.
 */
export class RecordedResults {
  readonly #runs = new Fifo<ReportRun>()
  #last: ReportRun | null = null

  /** `message` is `null` if the result came without a message. */
  markReported(message: ReceivedMessage | null, job: Job): void {
    const last = this.#last
    if (last !== null && last.message === message && last.settled < last.jobs.length) {
      last.jobs.push(job)
      return
    }
    this.#last = { message, jobs: [job], settled: 0 }
    this.#runs.push(this.#last)
  }

  /**
   * Marks the results of jobs as recorded. Those of jobs that were reported earlier, but not
   * confirmed, are lost.
   */
  markRecorded(jobs: readonly Job[]): void {
    for (const job of jobs) {
      for (let run = this.#runs.peek(); run !== undefined; run = this.#runs.peek()) {
        const isRecorded = run.jobs[run.settled++] === job
        if (run.settled === run.jobs.length) this.#runs.shift()
        if (run.message !== null) {
          run.message.isLost ||= !isRecorded
          run.message.left--
        }
        if (isRecorded) break
      }
    }
  }
}
