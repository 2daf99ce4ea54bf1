/** What an agent checks at its start: its name is free, its token is that of the others. */

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
 * Rejects with `BackendError` when an agent of this name is connected. For one that is stopped, its
 * watcher answers. Only signed answers count: anybody may listen. Agents without watchers have a
 * server of their own, where whoever listens and does not answer is one that is stopped.
 */
export async function claimName(
  broker: Broker,
  keys: Keys,
  name: string,
  hasWatcher: boolean,
): Promise<void> {
  const isAnswered = async (subject: string, questions: number): Promise<boolean> => {
    const epoch = newNonce()
    const ping = { kind: 'ping' } satisfies Ping
    const question = seal(keys.toAgent, subject, { ...noHeader, epoch }, ping)
    try {
      await broker.requestAccepted(subject, question, claimMs, (answer) =>
        isAnswerTo(epoch, keys.toDriver, subject, answer),
      )
      return true
    } catch (error) {
      if (error instanceof NoResponderError) return false
      if (!broker.isConnected) throw error
      // A connection that is closing gets a question as well, but not the next one.
      if (hasWatcher || questions === 1) return !hasWatcher
      return isAnswered(subject, questions - 1)
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

/** Resolves with the first `true`; with `false` when all are. */
const someTrue = (promises: readonly Promise<boolean>[]): Promise<boolean> =>
  new Promise((resolve, reject) => {
    for (const promise of promises) promise.then((isTrue) => isTrue && resolve(true), reject)
    Promise.all(promises).then(() => resolve(false), reject)
  })

/** All agents announce themselves every two seconds. */
const listenMs = 5000
/** For the second announcement of another one, after the first. */
const confirmMs = 10_000
const mostOthers = 1000

export interface TokenCheckOptions {
  readonly broker: Broker
  readonly keys: Keys
  /** The agent's own. */
  readonly name: string
  readonly epoch: number
  readonly clock: Clock
  /** A message that no agent has sent, whatever its token is. */
  readonly onRefused: (reason: string) => void
  readonly onMismatch: (error: BackendError) => void
}

/**
 * A server with users lets agents in whatever their token is. One that hears others, and nobody
 * with its own token, has a wrong one: no driver would ever use it. Another one is heard when two
 * announcements of it came, which are counted: anybody can send bytes.
 */
export class TokenCheck {
  readonly #options: TokenCheckOptions
  readonly #unsubscribe: () => void
  #cancelEnd: () => void
  /** The last announcement's number of others, by their start. */
  readonly #others = new Map<number, number>()
  #isOtherHeard = false
  /** Those with the same token have had their time. */
  #isDue = false

  constructor(options: TokenCheckOptions) {
    const { broker, clock, keys } = options
    this.#options = options
    this.#unsubscribe = broker.subscribe(announcementSubject, ({ data }) => this.#take(data))
    this.#cancelEnd = clock.after(listenMs, () => this.#decide(), { background: true })
    broker.publish(discoverySubject, seal(keys.toAgent, discoverySubject, noHeader, null))
  }

  /** Somebody else has the token, or the agent leaves. */
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
      // Its own announcement, which somebody has altered, is not one of another agent.
      if (header === null || header.epoch === epoch) return onRefused(messageOf(error))
      const before = this.#others.get(header.epoch)
      if (this.#others.size < mostOthers) this.#others.set(header.epoch, header.number)
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
