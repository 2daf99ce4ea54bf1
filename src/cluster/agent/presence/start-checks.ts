/** Checks at an agent's start that its name is free and that other agents have the same token. */

import type { Clock } from '../../../foundation/clock.ts'
import { BackendError, messageOf } from '../../../foundation/errors.ts'
import { type Broker, NoResponderError } from '../../broker/broker.ts'
import {
  isAnswerTo,
  type Keys,
  newNonce,
  noHeader,
  open,
  readHeader,
  seal,
  WrongSignatureError,
} from '../../wire/envelope.ts'
import type { Announcement, Ping } from '../../wire/messages.ts'
import {
  agentSubject,
  announcementSubject,
  discoverySubject,
  watcherOf,
} from '../../wire/subjects.ts'

/** How long an agent of the same name, or its watcher, may take to answer. */
const claimMs = 3000

/**
 * Rejects with `BackendError` when an agent of this name is connected. If that agent is suspended,
 * its watcher answers. Only signed answers count, because any client may subscribe. Agents without
 * watchers have a private server, on which a subscriber that does not answer is a suspended agent.
 */
export async function claimName(
  broker: Broker,
  keys: Keys,
  name: string,
  hasWatcher: boolean,
): Promise<void> {
  const isAnswered = async (subject: string, requests: number): Promise<boolean> => {
    const epoch = newNonce()
    const ping = { kind: 'ping' } satisfies Ping
    const request = seal(keys.toAgent, subject, { ...noHeader, epoch }, ping)
    try {
      await broker.requestAccepted(subject, request, claimMs, (answer) =>
        isAnswerTo(epoch, keys.toDriver, subject, answer),
      )
      return true
    } catch (error) {
      if (error instanceof NoResponderError) return false
      if (!broker.isConnected) throw error
      // A connection that is closing may receive the first request, but not the second.
      if (hasWatcher || requests === 1) return !hasWatcher
      return isAnswered(subject, requests - 1)
    }
  }
  const subjects = [agentSubject(name), ...(hasWatcher ? [watcherOf(name)] : [])]
  const answered = subjects.map((subject) => isAnswered(subject, 2))
  if (!(await someTrue(answered))) return
  throw new BackendError(`an agent named "${name}" is already connected to ${broker.url}`, {
    code: 'AgentNameTakenError',
    hint: 'Choose another name with --name.',
  })
}

/** Resolves with `true` at the first `true`, and with `false` if all are `false`. */
const someTrue = (promises: readonly Promise<boolean>[]): Promise<boolean> =>
  new Promise((resolve, reject) => {
    for (const promise of promises) promise.then((isTrue) => isTrue && resolve(true), reject)
    Promise.all(promises).then(() => resolve(false), reject)
  })

/** Long enough to hear all agents, which announce themselves every two seconds. */
const listenMs = 5000
/** How long to wait for an agent's second announcement, if only its first was heard. */
const confirmMs = 10_000
const maxOthers = 1000

export interface TokenCheckOptions {
  readonly broker: Broker
  readonly keys: Keys
  /** The agent's own name and epoch. */
  readonly name: string
  readonly epoch: number
  readonly clock: Clock
  /** Called for a message that cannot come from an agent, regardless of the token. */
  readonly onRefused: (reason: string) => void
  readonly onMismatch: (error: BackendError) => void
}

/**
 * Detects a wrong token, because a server with user accounts admits agents with any token, and no
 * driver would use them. The token is wrong if other agents are heard, but none with the same
 * token. An agent counts as heard after two announcements with increasing numbers, because any
 * client can send bytes.
 */
export class TokenCheck {
  readonly #options: TokenCheckOptions
  readonly #unsubscribe: () => void
  #cancelEnd: () => void
  /** The number of the last announcement of each other agent, by its epoch. */
  readonly #others = new Map<number, number>()
  #isOtherHeard = false
  /** Whether agents with the same token have had enough time to be heard. */
  #isDue = false

  constructor(options: TokenCheckOptions) {
    const { broker, clock, keys } = options
    this.#options = options
    this.#unsubscribe = broker.subscribe(announcementSubject, ({ data }) => this.#take(data))
    this.#cancelEnd = clock.after(listenMs, () => this.#decide(), { background: true })
    broker.publish(discoverySubject, seal(keys.toAgent, discoverySubject, noHeader, null))
  }

  /** Called when another holder of the token was heard, or when the agent leaves. */
  close(): void {
    this.#unsubscribe()
    this.#cancelEnd()
  }

  #take(data: Uint8Array): void {
    const { keys, name, epoch, onRefused } = this.#options
    try {
      const { payload } = open(keys.toDriver, announcementSubject, data)
      if ((payload as Announcement).name !== name) this.close()
    } catch (error) {
      const header = error instanceof WrongSignatureError ? readHeader(data) : null
      // Another client may have altered this agent's own announcement; ignore it.
      if (header === null || header.epoch === epoch) return onRefused(messageOf(error))
      const before = this.#others.get(header.epoch)
      if (this.#others.size < maxOthers) this.#others.set(header.epoch, header.number)
      if (before === undefined || header.number <= before) return
      this.#isOtherHeard = true
      if (this.#isDue) this.#leave()
    }
  }

  #decide(): void {
    this.#isDue = true
    if (this.#isOtherHeard) this.#leave()
    else if (this.#others.size === 0) this.close()
    else {
      const { clock } = this.#options
      this.#cancelEnd = clock.after(confirmMs, () => this.close(), { background: true })
    }
  }

  #leave(): void {
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
