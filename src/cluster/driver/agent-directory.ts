/** The agents of a cluster as the driver knows them: who is there, who is silent, who is lost. */

import { type Clock, sleep } from '../../foundation/clock.ts'
import { BackendError, messageOf } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import type { Broker } from '../broker/broker.ts'
import {
  isAnswerTo,
  type Keys,
  newNonce,
  open,
  readHeader,
  seal,
  VersionMismatchError,
  WrongSignatureError,
  noHeader,
} from '../wire/envelope.ts'
import type { AgentRequest, Announcement, Pong, WatcherReport } from '../wire/messages.ts'
import {
  agentSubject,
  announcementSubject,
  discoverySubject,
  watcherSubject,
} from '../wire/subjects.ts'
import { ClockOffset } from './clock-offset.ts'

/** An agent that has announced itself. */
export interface KnownAgent {
  readonly announcement: Announcement
  readonly offset: ClockOffset
  /** When it was heard last. */
  heardMs: number
}

/** One that has left or was lost, and may be started again. */
export interface GoneAgent {
  readonly announcement: Announcement
  readonly leftMs: number
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

/** Agents are asked this often, or four times within `lossSeconds`. */
const mostPingMs = 500
const leastPingMs = 50
/** One that is lost with a connection must not keep the next one from being sent. */
const mostPongMs = 5000
const locateMs = 100
const processGone = 'its process is gone'
/** Agents that have ended and are remembered: an announcement of theirs may come late. */
const mostEnded = 1000

/** More agents of other versions are not named. */
const mostOthers = 100

interface OtherVersion {
  readonly error: VersionMismatchError
  readonly heardMs: number
}

const otherToken = (): BackendError =>
  new BackendError('an agent announces itself with another token', {
    code: 'TokenMismatchError',
    hint: 'Give all nodes the same token, or this cluster a server or account of its own.',
  })

interface Tracked extends KnownAgent {
  announcement: Announcement
  /** Of its last announcement. */
  number: number
  /** Since it was heard: time in which this process was stopped or busy, and could not hear. */
  deafMs: number
  isPinged: boolean
  /** Listeners were told of it. */
  isJoined: boolean
}

export class AgentDirectory {
  readonly #options: DirectoryOptions
  readonly #agents = new Map<string, Tracked>()
  readonly #listeners = new Set<DirectoryListener>()
  readonly #unsubscribe: (() => void)[]
  readonly #pingMs: number
  /** The last start of each name that has ended. */
  readonly #ended = new Map<string, number>()
  /** Agents that listeners were told of and that are not there. */
  readonly #gone = new Map<string, GoneAgent>()
  /** Agents whose watchers say that they are silent. */
  readonly #silent = new Map<string, WatcherReport>()
  #discovery = 0
  /** When the connection was lost or came back last. */
  #connectedSinceMs: number
  /** When a tick came late last. */
  #stalledMs = -Infinity
  #tickedMs: number
  /** Agents of other versions of the protocol, by version and name, and when they were heard. */
  readonly #otherVersions = new Map<string, OtherVersion>()
  /** When an agent with another token was heard last. */
  #otherTokenMs = -Infinity
  #refusedMessages = 0
  #cancelTick: () => void = () => {}
  #isClosed = false

  constructor(options: DirectoryOptions) {
    const { broker, clock, lossSeconds } = options
    this.#options = options
    this.#pingMs = Math.max(leastPingMs, Math.min(mostPingMs, lossSeconds * 250))
    this.#connectedSinceMs = clock.monotonicMs()
    this.#tickedMs = this.#connectedSinceMs
    this.#unsubscribe = [
      broker.subscribe(announcementSubject, ({ subject, data }) => this.#take(subject, data)),
      broker.subscribe(watcherSubject, ({ subject, data }) => this.#takeReport(subject, data)),
      broker.onConnection((isConnected) => {
        this.#connectedSinceMs = clock.monotonicMs()
        if (isConnected) this.discover()
      }),
    ]
    this.#tick()
  }

  /** Those that listeners were told of. */
  get agents(): readonly KnownAgent[] {
    return [...this.#agents.values()].filter(({ isJoined }) => isJoined)
  }

  /** Agents that were there and have left or were lost. */
  get gone(): readonly GoneAgent[] {
    return [...this.#gone.values()]
  }

  /** Agents that did not answer the last `discover`, as their watchers see them. */
  get silent(): readonly WatcherReport[] {
    return [...this.#silent.values()].filter(({ agent }) => !this.#agents.has(agent.name))
  }

  /** Why agents that announce themselves cannot be used. */
  get unusable(): readonly BackendError[] {
    const { clock, lossSeconds } = this.#options
    const sinceMs = clock.monotonicMs() - lossSeconds * 1000
    const others = [...this.#otherVersions.values()].filter(({ heardMs }) => heardMs >= sinceMs)
    const versions = others.map(({ error }) => error)
    return this.#otherTokenMs >= sinceMs ? [...versions, otherToken()] : versions
  }

  /** When the connection was made, lost or came back last. */
  get connectedSinceMs(): number {
    return this.#connectedSinceMs
  }

  /** Since when the broker can be reached and this process was neither stopped nor busy. */
  get audibleSinceMs(): number {
    return Math.max(this.#connectedSinceMs, this.#stalledMs)
  }

  find(name: string): KnownAgent | undefined {
    return this.#agents.get(name)
  }

  listen(listener: DirectoryListener): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /**
   * An agent that is there or gone, such as one that an earlier start of a session has used. `null`
   * when it is not heard for as long as it may be silent: its process may be gone, or its link.
   */
  async locate(name: string): Promise<KnownAgent | null> {
    const { clock, lossSeconds } = this.#options
    const startMs = clock.monotonicMs()
    for (;;) {
      const found = this.#agents.get(name)
      if (found?.isJoined === true) return found
      if (clock.monotonicMs() - startMs > lossSeconds * 1000) return null
      this.discover()
      await sleep(clock, locateMs)
    }
  }

  /** For the parent of an agent: its process has ended. */
  noteExit(name: string): void {
    const agent = this.#agents.get(name)
    if (agent !== undefined) this.#lose(agent, processGone)
  }

  /** Asks all agents to announce themselves. */
  discover(): void {
    const { broker, keys } = this.#options
    this.#discovery = newNonce()
    this.#silent.clear()
    const header = { ...noHeader, epoch: this.#discovery }
    broker.publish(discoverySubject, seal(keys.toAgent, discoverySubject, header, null))
  }

  /** Sends a request to an agent and resolves with its answer. */
  async request(name: string, request: AgentRequest, timeoutMs: number): Promise<unknown> {
    const { broker, keys } = this.#options
    const subject = agentSubject(name)
    const epoch = newNonce()
    const data = seal(keys.toAgent, subject, { ...noHeader, epoch }, request)
    const isAnswer = (answer: Uint8Array): boolean =>
      isAnswerTo(epoch, keys.toDriver, subject, answer)
    const answer = await broker.requestAccepted(subject, data, timeoutMs, isAnswer)
    return open(keys.toDriver, subject, answer).payload
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
      return this.#refuse(error, data)
    }
    const { name, epoch, state } = announcement
    const known = this.#agents.get(name)
    if ((known?.announcement.epoch ?? this.#ended.get(name) ?? -Infinity) > epoch) return
    if (known === undefined && this.#ended.get(name) === epoch) return
    if (known !== undefined && known.announcement.epoch < epoch) {
      this.#lose(known, 'it was started again')
    }
    const agent = this.#agents.get(name)
    if (agent === undefined) {
      if (state !== 'gone') this.#join(announcement, number)
      return
    }
    if (number <= agent.number) return this.#refuse(new Error('it was sent before'), null)
    agent.number = number
    const before = agent.announcement.state
    agent.announcement = announcement
    agent.heardMs = this.#options.clock.monotonicMs()
    agent.deafMs = 0
    if (state === 'gone') this.#lose(agent, 'it left')
    else if (state === 'draining' && before === 'ready') {
      for (const listener of this.#listeners) listener.agentDraining(agent)
    }
  }

  #takeReport(subject: string, data: Uint8Array): void {
    let report: WatcherReport
    let nonce: number
    try {
      const opened = open(this.#options.keys.toDriver, subject, data)
      report = opened.payload as WatcherReport
      nonce = opened.epoch
    } catch (error) {
      return this.#refuse(error, null)
    }
    const { name, epoch } = report.agent
    if (report.state === 'silent') {
      // Of this question, and not of an earlier one that somebody sends again.
      if (nonce === this.#discovery) this.#silent.set(name, report)
      return
    }
    const agent = this.#agents.get(name)
    if (agent?.announcement.epoch === epoch) this.#lose(agent, processGone)
    else if (agent === undefined) this.#noteEnd(name, epoch)
  }

  #refuse(error: unknown, data: Uint8Array | null): void {
    const nowMs = this.#options.clock.monotonicMs()
    if (error instanceof VersionMismatchError) {
      const key = `${error.theirs} ${error.agent ?? ''}`
      const isKnown = this.#otherVersions.has(key)
      if (!isKnown && this.#otherVersions.size >= mostOthers) return
      this.#otherVersions.set(key, { error, heardMs: nowMs })
      if (isKnown) return
      return this.#options.log.warn('VersionMismatchError', messageOf(error))
    }
    const isAgent = data !== null && readHeader(data) !== null
    if (error instanceof WrongSignatureError && isAgent) this.#otherTokenMs = nowMs
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
      deafMs: 0,
      isPinged: false,
      isJoined: false,
    }
    this.#agents.set(announcement.name, agent)
    void this.#welcome(agent)
  }

  async #welcome(agent: Tracked): Promise<void> {
    // Before the first task: its times are converted by what is measured now.
    await this.#ping(agent)
    if (this.#agents.get(agent.announcement.name) !== agent) return
    agent.isJoined = true
    this.#gone.delete(agent.announcement.name)
    for (const listener of this.#listeners) listener.agentJoined(agent)
    // It may have begun to leave while its clock was measured.
    if (agent.announcement.state !== 'draining') return
    for (const listener of this.#listeners) listener.agentDraining(agent)
  }

  #lose(agent: Tracked, reason: string): void {
    const { announcement } = agent
    const { name, epoch, state } = announcement
    this.#agents.delete(name)
    const isOver = state === 'gone' || reason === processGone
    if (isOver) this.#noteEnd(name, epoch)
    if (!agent.isJoined) return
    deleteOldest(this.#gone)
    this.#gone.set(name, { announcement, leftMs: this.#options.clock.monotonicMs() })
    for (const listener of this.#listeners) listener.agentLost(agent, reason)
  }

  #noteEnd(name: string, epoch: number): void {
    deleteOldest(this.#ended)
    this.#ended.set(name, Math.max(epoch, this.#ended.get(name) ?? epoch))
  }

  #tick(): void {
    if (this.#isClosed) return
    const { clock, broker, lossSeconds } = this.#options
    this.#cancelTick = clock.after(this.#pingMs, () => this.#tick(), { background: true })
    const nowMs = clock.monotonicMs()
    const lateMs = Math.max(0, nowMs - this.#tickedMs - this.#pingMs)
    this.#tickedMs = nowMs
    // This process was stopped, or busy, or its machine slept: nobody was silent meanwhile.
    if (lateMs >= this.#pingMs) this.#stalledMs = nowMs
    for (const agent of this.#agents.values()) {
      agent.deafMs = Math.min(agent.deafMs + lateMs, nowMs - agent.heardMs)
      if (!broker.isConnected) continue
      const sinceMs = Math.max(agent.heardMs + agent.deafMs, this.#connectedSinceMs)
      if (nowMs - sinceMs > lossSeconds * 1000) {
        this.#lose(agent, `it was silent for ${lossSeconds} s`)
      } else void this.#ping(agent)
    }
  }

  async #ping(agent: Tracked): Promise<void> {
    if (agent.isPinged) return
    agent.isPinged = true
    const { clock, lossSeconds } = this.#options
    const sentMs = clock.monotonicMs()
    const timeoutMs = Math.min(mostPongMs, lossSeconds * 1000)
    try {
      const { name } = agent.announcement
      const pong = (await this.request(name, { kind: 'ping' }, timeoutMs)) as Pong
      if (pong.epoch !== agent.announcement.epoch) return
      const nowMs = clock.monotonicMs()
      agent.heardMs = nowMs
      agent.deafMs = 0
      agent.offset.add(sentMs, pong.receivedMs, pong.sentMs, nowMs)
    } catch {
      // Its silence is counted.
    } finally {
      agent.isPinged = false
    }
  }
}

function deleteOldest(agents: Map<string, unknown>): void {
  const [oldest = ''] = agents.keys()
  if (agents.size >= mostEnded) agents.delete(oldest)
}
