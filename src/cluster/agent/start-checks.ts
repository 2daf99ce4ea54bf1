/** What an agent checks at its start: its name is free, its token is that of the others. */

import type { Clock } from '../../foundation/clock.ts'
import { BackendError } from '../../foundation/errors.ts'
import { type Broker, NoResponderError } from '../broker/broker.ts'
import { type Keys, noHeader, open, seal, WrongSignatureError } from '../wire/envelope.ts'
import type { Announcement, Ping } from '../wire/messages.ts'
import { agentSubject, announcementSubject, discoverySubject } from '../wire/subjects.ts'

/** How often an agent of the same name is asked for that does not answer. */
const mostClaims = 3

/**
 * Rejects with `BackendError` when an agent of this name is connected; one that does not answer,
 * because it is stopped, still has its subscription.
 */
export async function claimName(broker: Broker, { toAgent }: Keys, name: string): Promise<void> {
  const subject = agentSubject(name)
  const ping = seal(toAgent, subject, noHeader, { kind: 'ping' } satisfies Ping)
  for (let asked = 0; asked < mostClaims; asked++) {
    try {
      await broker.request(subject, ping, 1000)
      break
    } catch (error) {
      if (error instanceof NoResponderError) return
    }
  }
  throw new BackendError(`an agent named "${name}" is already connected to ${broker.url}`, {
    code: 'AgentNameTakenError',
    hint: 'Choose another name with --name.',
  })
}

/** All agents announce themselves every two seconds. */
const listenMs = 5000

export interface TokenCheckOptions {
  readonly broker: Broker
  readonly keys: Keys
  /** The agent's own. */
  readonly name: string
  readonly clock: Clock
  readonly onMismatch: (error: BackendError) => void
}

/**
 * A server with users lets agents in whatever their token is. One that hears others, and nobody
 * with its own token, has a wrong one: no driver would ever use it.
 */
export class TokenCheck {
  readonly #options: TokenCheckOptions
  readonly #unsubscribe: () => void
  readonly #cancelEnd: () => void
  #isOtherHeard = false

  constructor(options: TokenCheckOptions) {
    const { broker, clock, keys } = options
    this.#options = options
    this.#unsubscribe = broker.subscribe(announcementSubject, ({ data }) => this.#take(data))
    this.#cancelEnd = clock.after(listenMs, () => this.#end(), { background: true })
    broker.publish(discoverySubject, seal(keys.toAgent, discoverySubject, noHeader, null))
  }

  /** Somebody else has the token, or the agent leaves. */
  close(): void {
    this.#unsubscribe()
    this.#cancelEnd()
  }

  #take(data: Uint8Array): void {
    const { keys, name } = this.#options
    try {
      const { payload } = open(keys.toDriver, announcementSubject, data)
      if ((payload as Announcement).name !== name) this.close()
    } catch (error) {
      if (error instanceof WrongSignatureError) this.#isOtherHeard = true
    }
  }

  #end(): void {
    this.close()
    if (!this.#isOtherHeard) return
    const { broker, name, onMismatch } = this.#options
    const text = `agent "${name}" has another token than the agents at ${broker.url}`
    onMismatch(
      new BackendError(text, {
        code: 'TokenMismatchError',
        hint: 'Give it the token of the other nodes, or a server or account of its own.',
      }),
    )
  }
}
