/**
 * Tracks which messages of agents are recorded: the session confirms jobs, but agents count
 * messages. A session confirms jobs in the order in which their ends were reported. It leaves out
 * those whose lines in the record were lost, such as on a full disk.
 */

import type { Job } from '../../backends/backend.ts'
import { Fifo } from '../../runtime/fifo.ts'
import type { AgentLink } from './agent-link.ts'

/** Consecutively reported ends of the same message, or of none. */
interface Run {
  readonly message: Message | null
  readonly jobs: Job[]
  /** How many of the jobs are confirmed or left out. */
  settled: number
}

interface Message {
  readonly agent: AgentLink
  readonly number: number
  /** The number of its ends that are not recorded. */
  left: number
  /** Whether the line of one of its ends was lost. */
  isLost: boolean
}

export class RecordedMessages {
  readonly #runs = new Fifo<Run>()
  #last: Run | null = null

  /** A message with this many ends has arrived. */
  expect(agent: AgentLink, number: number, count: number): Message {
    return { agent, number, left: count, isLost: false }
  }

  /** The end of a job was reported to the session; `null` if it was in no message. */
  reported(message: Message | null, job: Job): void {
    const last = this.#last
    if (last !== null && last.message === message && last.settled < last.jobs.length) {
      last.jobs.push(job)
      return
    }
    this.#last = { message, jobs: [job], settled: 0 }
    this.#runs.push(this.#last)
  }

  /** An end of the message has no effect: the session will not confirm it. */
  dropped(message: Message): void {
    settle(message)
  }

  /** The session has recorded the ends of these jobs. Earlier ones that it left out are lost. */
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
