/**
 * Which messages of agents are recorded: the session names jobs, agents and their streams know
 * messages. A session names the jobs in the order in which their ends were reported.
 */

import { Fifo } from '../../runtime/fifo.ts'
import type { AgentLink } from './agent-link.ts'

/** Ends that were reported one after another and came in one message, or in none. */
interface Run {
  readonly message: Message | null
  count: number
}

interface Message {
  readonly agent: AgentLink
  readonly number: number
  /** Ends in it that are not recorded. */
  left: number
}

export class RecordedMessages {
  readonly #runs = new Fifo<Run>()
  #last: Run | null = null

  /** A message that came, with this many ends. */
  expect(agent: AgentLink, number: number, count: number): Message {
    return { agent, number, left: count }
  }

  /** An end was reported to the session; `null` for one that no agent told. */
  reported(message: Message | null): void {
    if (this.#last !== null && this.#last.message === message && this.#last.count > 0) {
      this.#last.count++
      return
    }
    this.#last = { message, count: 1 }
    this.#runs.push(this.#last)
  }

  /** An end that changes nothing: the session will not name it. */
  dropped(message: Message): void {
    settle(message, 1)
  }

  /** The session has recorded the next ends. */
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
