/** When an agent starts, checks that its name is free and that other agents have the same token. */

import type { Clock } from '../../../../foundation/clock.ts'
import { BackendError, messageOf } from '../../../../foundation/errors.ts'
import { type Broker, NoResponderError } from '../../../broker/broker.ts'
import { requestAnswer } from '../../../wire/answers.ts'
import {
  type Keys,
  emptyHeader,
  open,
  readHeader,
  seal,
  WrongSignatureError,
} from '../../../wire/envelope.ts'
import type { Announcement, Message } from '../../../wire/messages.ts'
import {
  agentSubject,
  announcementSubject,
  discoverySubject,
  watcherPingSubject,
} from '../../../wire/subjects.ts'

const claimTimeoutMs = 3000

/**
 * Rejects with `BackendError` if an agent of this name is connected. If that agent is suspended,
 * its watcher answers. Only signed answers count, because any client may subscribe. Agents without
 * watchers have a private server. There, a subscriber that does not answer must be a suspended
 * agent.
 */
export async function claimName(
  broker: Broker,
  keys: Keys,
  name: string,
  hasWatcher: boolean,
): Promise<void> {
  const isAnswered = async (subject: string, requests: number): Promise<boolean> => {
    const ping = { kind: 'ping' } satisfies Message<'ping'>
    try {
      await requestAnswer(broker, keys, subject, ping, claimTimeoutMs)
      return true
    } catch (error) {
      if (error instanceof NoResponderError) return false
      if (!broker.isConnected) throw error
      // Repeats the request, because a connection that is just closing may receive the first one.
      if (hasWatcher || requests === 1) return !hasWatcher
      return isAnswered(subject, requests - 1)
    }
  }
  const subjects = [agentSubject(name), ...(hasWatcher ? [watcherPingSubject(name)] : [])]
  const answered = subjects.map((subject) => isAnswered(subject, 2))
  if (!(await someTrue(answered))) return
  throw new BackendError(`an agent named "${name}" is already connected to ${broker.url}`, {
    code: 'AgentNameTakenError',
    hint: 'Choose another name with --name.',
  })
}

const someTrue = (promises: readonly Promise<boolean>[]): Promise<boolean> =>
  new Promise((resolve, reject) => {
    for (const promise of promises) promise.then((isTrue) => isTrue && resolve(true), reject)
    Promise.all(promises).then(() => resolve(false), reject)
  })

/** How long to listen for other agents, which announce themselves every two seconds. */
const listenTimeMs = 5000
const confirmTimeoutMs = 10_000
const maxOthers = 1000

export interface TokenCheckOptions {
  readonly broker: Broker
  readonly keys: Keys
  readonly name: string
  readonly start: number
  readonly clock: Clock
  /** Called for a message that no agent can have sent, whatever its token. */
  readonly onRefused: (reason: string) => void
  readonly onMismatch: (error: BackendError) => void
}

/**
 * Detects that this agent has a wrong token. A server with user accounts admits agents with any
 * token, but no driver would use an agent with another token. The token counts as wrong if other
 * agents are heard, but none with the same token. Because any client can send bytes, an agent
 * counts as heard only after two announcements with increasing numbers.
 */
export class TokenCheck {
  readonly #options: TokenCheckOptions
  readonly #unsubscribe: () => void
  #cancelEnd: () => void
  /** The number of the last announcement of each other agent, by its start. */
  readonly #others = new Map<number, number>()
  #isOtherHeard = false
  /** Whether agents with the same token have had enough time to announce themselves. */
  #isDue = false

  constructor(options: TokenCheckOptions) {
    const { broker, clock, keys } = options
    this.#options = options
    this.#unsubscribe = broker.subscribe(announcementSubject, ({ data }) =>
      this.#handleAnnouncement(data),
    )
    this.#cancelEnd = clock.after(listenTimeMs, () => this.#decide(), { background: true })
    broker.publish(discoverySubject, seal(keys.toAgent, discoverySubject, emptyHeader, null))
  }

  close(): void {
    this.#unsubscribe()
    this.#cancelEnd()
  }

  #handleAnnouncement(data: Uint8Array): void {
    const { keys, name, start, onRefused } = this.#options
    try {
      const { payload } = open(keys.toDriver, announcementSubject, data)
      if ((payload as Announcement).name !== name) this.close()
    } catch (error) {
      const header = error instanceof WrongSignatureError ? readHeader(data) : null
      // Ignores this agent's own announcement, which another client may have altered.
      if (header === null || header.scope === start) return onRefused(messageOf(error))
      const lastNumber = this.#others.get(header.scope)
      if (this.#others.size < maxOthers) this.#others.set(header.scope, header.number)
      if (lastNumber === undefined || header.number <= lastNumber) return
      this.#isOtherHeard = true
      if (this.#isDue) this.#reportMismatch()
    }
  }

  #decide(): void {
    this.#isDue = true
    if (this.#isOtherHeard) this.#reportMismatch()
    else if (this.#others.size === 0) this.close()
    else {
      const { clock } = this.#options
      this.#cancelEnd = clock.after(confirmTimeoutMs, () => this.close(), { background: true })
    }
  }

  #reportMismatch(): void {
    this.close()
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
