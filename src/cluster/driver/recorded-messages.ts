/**
 * Tracks which messages of agents are recorded: the session confirms jobs, but agents count
 * messages. A session confirms jobs in the order in which their ends were reported.
 */

import { Fifo } from '../../runtime/fifo.ts'
import type { AgentLink } from './agent-link.ts'

/** Consecutively reported ends of the same message, or of none. */
interface Run {
  readonly message: Message | null
  count: number
}

interface Message {
  readonly agent: AgentLink
  readonly number: number
  /** The number of its ends that are not recorded. */
  left: number
}

export class RecordedMessages {
  readonly #runs = new Fifo<Run>()
  #last: Run | null = null

  /** A message with this many ends has arrived. */
  expect(agent: AgentLink, number: number, count: number): Message {
    return { agent, number, left: count }
  }

  /** An end was reported to the session; `null` if it was in no message. */
  reported(message: Message | null): void {
    if (this.#last !== null && this.#last.message === message && this.#last.count > 0) {
      this.#last.count++
      return
    }
    this.#last = { message, count: 1 }
    this.#runs.push(this.#last)
  }

  /** An end of the message has no effect: the session will not confirm it. */
  dropped(message: Message): void {
    settle(message, 1)
  }

  /** The session has recorded the next `count` ends. */
  recorded(count: number): void {
    for (let left = count; left > 0;) {
      const run = this.#runs.peek()
      if (run === undefined) return
      const taken = Math.min(left, run.count)
      run.count -= taken
      left -= taken
      if (run.message !== null) settle(run.message, taken)
      if (run.count === 0) this.#runs.shift()
    }
  }
}

export type { Message as ReceivedMessage }

function settle(message: Message, count: number): void {
  message.left -= count
  if (message.left <= 0) message.agent.recorded(message.number)
}
