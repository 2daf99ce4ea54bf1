/**
 * Tracks which messages of agents are recorded: the session confirms jobs, but agents count
 * messages. A session confirms jobs in the order in which their results were reported. It skips
 * jobs whose lines in the record were lost, for example on a full disk.
 */

import type { Job } from '../../backends/backend.ts'
import { Fifo } from '../../runtime/fifo.ts'
import type { AgentLink } from './agent-link.ts'

/** Consecutively reported results from the same message, or without a message. */
interface Run {
  readonly message: Message | null
  readonly jobs: Job[]
  /** The number of jobs that were confirmed or skipped. */
  settled: number
}

interface Message {
  readonly agent: AgentLink
  readonly number: number
  /** The number of results in the message that are not recorded. */
  left: number
  /** Whether the recorded line of one of the results was lost. */
  isLost: boolean
}

export class RecordedMessages {
  readonly #runs = new Fifo<Run>()
  #last: Run | null = null

  /** Called when a message with this many results has arrived. */
  expect(agent: AgentLink, number: number, count: number): Message {
    return { agent, number, left: count, isLost: false }
  }

  /**
   * Called when a job's result was reported to the session; `null` if it came without a message.
   */
  reported(message: Message | null, job: Job): void {
    const last = this.#last
    if (last !== null && last.message === message && last.settled < last.jobs.length) {
      last.jobs.push(job)
      return
    }
    this.#last = { message, jobs: [job], settled: 0 }
    this.#runs.push(this.#last)
  }

  /** Called for a result without effect, which the session will not confirm. */
  dropped(message: Message): void {
    settle(message)
  }

  /** The session has recorded the results of these jobs. Earlier jobs that it skipped are lost. */
  recorded(jobs: readonly Job[]): void {
    for (const job of jobs) {
      for (let next = this.#take(); next !== null; next = this.#take()) {
        const isRecorded = next.job === job
        if (next.message !== null) {
          next.message.isLost ||= !isRecorded
          settle(next.message)
        }
        if (isRecorded) break
      }
    }
  }

  #take(): { readonly job: Job | undefined; readonly message: Message | null } | null {
    const run = this.#runs.peek()
    if (run === undefined) return null
    const job = run.jobs[run.settled++]
    if (run.settled === run.jobs.length) this.#runs.shift()
    return { job, message: run.message }
  }
}

export type { Message as ReceivedMessage }

function settle(message: Message): void {
  const { agent, number, isLost } = message
  if (--message.left > 0) return
  if (isLost) agent.lost(number)
  else agent.recorded(number)
}
