/**
 * Tracks which messages of agents are recorded. Sessions confirm jobs in the order of their
 * results, and skip jobs whose lines in the record were lost.
 */

import type { Job } from '../../backends/backend.ts'
import { Fifo } from '../../runtime/fifo.ts'
import type { RemoteAgent } from './remote-agent.ts'

/** Results that were reported in succession and come from the same message, or from no message. */
interface ReportRun {
  readonly message: ReceivedMessage | null
  readonly jobs: Job[]
  settled: number
}

export interface ReceivedMessage {
  readonly agent: RemoteAgent
  readonly number: number
  /** The number of results in the message that are not recorded yet. */
  left: number
  /** Whether the record has lost the line of one of the results. */
  isLost: boolean
}

export class RecordedMessages {
  readonly #runs = new Fifo<ReportRun>()
  #last: ReportRun | null = null

  createMessage(agent: RemoteAgent, number: number, count: number): ReceivedMessage {
    return { agent, number, left: count, isLost: false }
  }

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

  /** Call this for a result that has no effect and that the session will not confirm. */
  markDropped(message: ReceivedMessage): void {
    settleResult(message)
  }

  /**
   * Marks the results of jobs as recorded. Those of jobs that were reported earlier, but not
   * confirmed, are lost.
   */
  markRecorded(jobs: readonly Job[]): void {
    for (const job of jobs) {
      for (let next = this.#nextReported(); next !== null; next = this.#nextReported()) {
        const isRecorded = next.job === job
        if (next.message !== null) {
          next.message.isLost ||= !isRecorded
          settleResult(next.message)
        }
        if (isRecorded) break
      }
    }
  }

  #nextReported(): {
    readonly job: Job | undefined
    readonly message: ReceivedMessage | null
  } | null {
    const run = this.#runs.peek()
    if (run === undefined) return null
    const job = run.jobs[run.settled++]
    if (run.settled === run.jobs.length) this.#runs.shift()
    return { job, message: run.message }
  }
}

function settleResult(message: ReceivedMessage): void {
  const { agent, number, isLost } = message
  if (--message.left > 0) return
  if (isLost) agent.results.markLost(number)
  else agent.results.markRecorded(number)
}
