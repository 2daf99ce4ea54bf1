/** The agents of a cluster as the driver knows them: who is there, who is silent, who is lost. */

import { type Clock, sleep } from '../../foundation/clock.ts'
import { messageOf } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { type Broker, NoResponderError } from '../broker/broker.ts'
import {
  type Keys,
  newNonce,
  open,
  seal,
  VersionMismatchError,
  WrongSignatureError,
  noHeader,
} from '../wire/envelope.ts'
import type { AgentRequest, Announcement, Pong } from '../wire/messages.ts'
import {
  agentSubject,
  announcementSubject,
  discoverySubject,
  protocolVersion,
} from '../wire/subjects.ts'
import { ClockOffset } from './clock-offset.ts'

/** An agent that has announced itself. */
export interface KnownAgent {
  readonly announcement: Announcement
  readonly offset: ClockOffset
  /** When it was heard last. */
  heardMs: number
}

export interface DirectoryListener {
  /** A new one, also one of the same name that was started again. */
  agentJoined(agent: KnownAgent): void
  /** It takes nothing new and leaves when it has finished. */
  agentDraining(agent: KnownAgent): void
  agentLost(agent: KnownAgent, reason: string): void
}

export interface DirectoryOptions {
  readonly broker: Broker
  readonly keys: Keys
  readonly clock: Clock
  readonly log: Log
  /** Silence after which an agent is lost. */
  readonly lossSeconds: number
}

const pingMs = 500
const locateMs = 100
/** How long nobody may answer for an agent, while the broker does. */
const goneMs = 2000
/** A tick that comes this late: this process was stopped, or its machine slept. */
const stallMs = 1500

interface Tracked extends KnownAgent {
  announcement: Announcement
  /** Of its last announcement. */
  number: number
  /** Since when nobody has subscribed to its subject. */
  goneSinceMs: number | null
  isPinged: boolean
}

export class AgentDirectory {
  readonly #options: DirectoryOptions
  readonly #agents = new Map<string, Tracked>()
  readonly #listeners = new Set<DirectoryListener>()
  readonly #unsubscribe: (() => void)[]
  #audibleSinceMs: number
  #tickedMs: number
  /** When agents of other versions of the protocol, or with another token, were heard last. */
  readonly #otherVersions = new Map<number, number>()
  #otherTokenMs = -Infinity
  #refusedMessages = 0
  #cancelTick: () => void = () => {}
  #isClosed = false

  constructor(options: DirectoryOptions) {
    const { broker, clock } = options
    this.#options = options
    this.#audibleSinceMs = clock.monotonicMs()
    this.#tickedMs = this.#audibleSinceMs
    this.#unsubscribe = [
      broker.subscribe(announcementSubject, ({ subject, data }) => this.#take(subject, data)),
      broker.onConnection((isConnected) => {
        this.#startListening()
        if (isConnected) this.discover()
      }),
    ]
    this.#tick()
  }

  get agents(): readonly KnownAgent[] {
    return [...this.#agents.values()]
  }

  /** Why agents that announce themselves cannot be used. */
  get unusable(): readonly string[] {
    const { clock, lossSeconds } = this.#options
    const sinceMs = clock.monotonicMs() - lossSeconds * 1000
    const versions = [...this.#otherVersions].filter(([, heardMs]) => heardMs >= sinceMs)
    return [
      ...versions.map(
        ([theirs]) => `an agent speaks protocol ${theirs}, this one speaks ${protocolVersion}`,
      ),
      ...(this.#otherTokenMs >= sinceMs ? ['an agent announces itself with another token'] : []),
    ]
  }

  /** Silence counts since the broker can be reached and this process was not stopped. */
  get audibleSinceMs(): number {
    return this.#audibleSinceMs
  }

  find(name: string): KnownAgent | undefined {
    return this.#agents.get(name)
  }

  listen(listener: DirectoryListener): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /**
   * An agent that is there or gone, such as one that an earlier start of a session has used.
   * `null` when its process is gone, or when it does not answer for as long as it may be silent.
   */
  async locate(name: string): Promise<KnownAgent | null> {
    const { clock, lossSeconds } = this.#options
    const startMs = clock.monotonicMs()
    let goneSinceMs: number | null = null
    for (;;) {
      const found = this.#agents.get(name)
      if (found !== undefined) return found
      const nowMs = clock.monotonicMs()
      if (goneSinceMs !== null && nowMs - goneSinceMs > goneMs) return null
      if (nowMs - startMs > lossSeconds * 1000) return null
      this.discover()
      try {
        await this.request(name, { kind: 'ping' }, pingMs)
        goneSinceMs = null
      } catch (error) {
        goneSinceMs = error instanceof NoResponderError ? (goneSinceMs ?? nowMs) : null
      }
      await sleep(clock, locateMs)
    }
  }

  /** Asks all agents to announce themselves. */
  discover(): void {
    const { broker, keys } = this.#options
    broker.publish(discoverySubject, seal(keys.toAgent, discoverySubject, noHeader, null))
  }

  /** Sends a request to an agent and resolves with its answer. */
  async request(name: string, request: AgentRequest, timeoutMs: number): Promise<unknown> {
    const { broker, keys } = this.#options
    const subject = agentSubject(name)
    const epoch = newNonce()
    const data = seal(keys.toAgent, subject, { ...noHeader, epoch }, request)
    const answer = open(keys.toDriver, subject, await broker.request(subject, data, timeoutMs))
    if (answer.epoch !== epoch) throw new Error('the answer is that of another request')
    return answer.payload
  }

  close(): void {
    this.#isClosed = true
    this.#cancelTick()
    for (const unsubscribe of this.#unsubscribe) unsubscribe()
  }

  #take(subject: string, data: Uint8Array): void {
    let announcement: Announcement
    let number: number
    try {
      const opened = open(this.#options.keys.toDriver, subject, data)
      announcement = opened.payload as Announcement
      number = opened.number
    } catch (error) {
      return this.#refuse(error)
    }
    const { name, epoch, state } = announcement
    const known = this.#agents.get(name)
    if (known !== undefined && known.announcement.epoch > epoch) return
    if (known !== undefined && known.announcement.epoch < epoch) {
      this.#lose(known, 'it was started again')
    }
    const agent = this.#agents.get(name)
    if (agent === undefined) {
      if (state !== 'gone') this.#join(announcement, number)
      return
    }
    if (number <= agent.number) return this.#refuse(new Error('it was sent before'))
    agent.number = number
    const before = agent.announcement.state
    agent.announcement = announcement
    agent.heardMs = this.#options.clock.monotonicMs()
    agent.goneSinceMs = null
    if (state === 'gone') this.#lose(agent, 'it left')
    else if (state === 'draining' && before === 'ready') {
      for (const listener of this.#listeners) listener.agentDraining(agent)
    }
  }

  #refuse(error: unknown): void {
    const nowMs = this.#options.clock.monotonicMs()
    if (error instanceof VersionMismatchError) {
      const isKnown = this.#otherVersions.has(error.theirs)
      this.#otherVersions.set(error.theirs, nowMs)
      if (isKnown) return
      return this.#options.log.warn('VersionMismatchError', `an agent: ${messageOf(error)}`)
    }
    if (error instanceof WrongSignatureError) this.#otherTokenMs = nowMs
    if (this.#refusedMessages++ > 0) return
    const text = `an announcement was refused: ${messageOf(error)}; further ones are counted`
    this.#options.log.warn('MessageRefused', text)
  }

  #join(announcement: Announcement, number: number): void {
    const agent: Tracked = {
      announcement,
      number,
      offset: new ClockOffset(),
      heardMs: this.#options.clock.monotonicMs(),
      goneSinceMs: null,
      isPinged: false,
    }
    this.#agents.set(announcement.name, agent)
    void this.#welcome(agent)
  }

  async #welcome(agent: Tracked): Promise<void> {
    // Before the first task: its times are converted by what is measured now.
    await this.#ping(agent)
    if (this.#agents.get(agent.announcement.name) !== agent) return
    for (const listener of this.#listeners) listener.agentJoined(agent)
  }

  #lose(agent: Tracked, reason: string): void {
    this.#agents.delete(agent.announcement.name)
    for (const listener of this.#listeners) listener.agentLost(agent, reason)
  }

  #startListening(): void {
    this.#audibleSinceMs = this.#options.clock.monotonicMs()
    for (const agent of this.#agents.values()) agent.goneSinceMs = null
  }

  #tick(): void {
    if (this.#isClosed) return
    const { clock, broker, lossSeconds } = this.#options
    this.#cancelTick = clock.after(pingMs, () => this.#tick(), { background: true })
    if (!broker.isConnected) return
    const nowMs = clock.monotonicMs()
    if (nowMs - this.#tickedMs > stallMs) this.#startListening()
    this.#tickedMs = nowMs
    for (const agent of this.#agents.values()) {
      const silentMs = nowMs - Math.max(agent.heardMs, this.#audibleSinceMs)
      const gone = agent.goneSinceMs
      if (gone !== null && nowMs - Math.max(gone, this.#audibleSinceMs) > goneMs) {
        this.#lose(agent, 'its process is gone')
      } else if (silentMs > lossSeconds * 1000) {
        this.#lose(agent, `it was silent for ${lossSeconds} s`)
      } else void this.#ping(agent)
    }
  }

  async #ping(agent: Tracked): Promise<void> {
    if (agent.isPinged) return
    agent.isPinged = true
    const { clock, lossSeconds } = this.#options
    const sentMs = clock.monotonicMs()
    try {
      const { name } = agent.announcement
      const pong = (await this.request(name, { kind: 'ping' }, lossSeconds * 1000)) as Pong
      if (pong.epoch !== agent.announcement.epoch) return
      const nowMs = clock.monotonicMs()
      agent.heardMs = nowMs
      agent.goneSinceMs = null
      agent.offset.add(sentMs, pong.receivedMs, pong.sentMs, nowMs)
    } catch (error) {
      if (error instanceof NoResponderError) agent.goneSinceMs ??= clock.monotonicMs()
    } finally {
      agent.isPinged = false
    }
  }
}
