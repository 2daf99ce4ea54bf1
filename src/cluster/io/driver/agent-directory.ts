/** The agents of a cluster, as known to a driver: connected, silent and lost ones. */

import type { Clock } from '../../../foundation/clock.ts'
import { BackendError, messageOf } from '../../../foundation/errors.ts'
import type { Log } from '../../../foundation/log.ts'
import { poll } from '../../../runtime/retry.ts'
import { SilenceWatch, type WatchedProcess } from '../../../runtime/silence-watch.ts'
import type { Broker } from '../../broker/broker.ts'
import { requestAnswer } from '../../wire/answers.ts'
import {
  type Keys,
  newNonce,
  emptyHeader,
  open,
  type OpenedMessage,
  readHeader,
  seal,
  VersionMismatchError,
  WrongSignatureError,
} from '../../wire/envelope.ts'
import {
  type AgentRequest,
  type Announcement,
  expectMessage,
  type WatcherReport,
} from '../../wire/messages.ts'
import {
  agentSubject,
  announcementSubject,
  discoverySubject,
  watcherSubject,
} from '../../wire/subjects.ts'
import { ClockOffset } from '../../protocol/driver/clock-offset.ts'

export interface KnownAgent {
  readonly announcement: Announcement
  readonly offset: ClockOffset
  lastHeardMs: number
}

export interface GoneAgent {
  readonly announcement: Announcement
  readonly leftMs: number
  readonly reason: string
}

export interface DirectoryListener {
  /** Called when an agent has joined. It may be a restarted agent with the same name. */
  agentJoined(agent: KnownAgent): void
  agentDraining(agent: KnownAgent): void
  agentLost(agent: KnownAgent, reason: string): void
}

export interface DirectoryOptions {
  readonly broker: Broker
  readonly keys: Keys
  readonly clock: Clock
  readonly log: Log
  readonly lossSeconds: number
}

/** The interval of pings, unless a quarter of `lossSeconds` is shorter. */
const maxPingIntervalMs = 500
const minPingIntervalMs = 50
/** How long to wait for the answer to a ping before the next ping is sent. */
const maxPongTimeoutMs = 5000
const locateIntervalMs = 100
/** Every agent is heard within this time, because agents announce themselves every two seconds. */
const announceWaitMs = 2500
const processGoneReason = 'its process is gone'
const restartedReason = 'it was started again'
/** How many ended agents to remember. Their messages may arrive late or be replayed. */
const maxEnded = 1000

interface TrackedAgent extends KnownAgent, WatchedProcess {
  announcement: Announcement
  /** The number of the last announcement. */
  number: number
  isPinged: boolean
}

export class AgentDirectory {
  readonly #options: DirectoryOptions
  /** Agents that were reported to listeners, by name. */
  readonly #agents = new Map<string, TrackedAgent>()
  /** Agents that have announced themselves but have not answered a ping yet, by start. */
  readonly #candidates = new Map<number, TrackedAgent>()
  readonly #listeners = new Set<DirectoryListener>()
  readonly #unsubscribe: (() => void)[]
  readonly #silence: SilenceWatch<TrackedAgent>
  /** The starts of agents that have exited or were replaced by another agent of the same name. */
  readonly #ended = new Set<number>()
  readonly #gone = new Map<string, GoneAgent>()
  readonly #silent = new Map<string, WatcherReport>()
  #discovery = 0
  /** When the connection was last lost or restored. */
  #connectedSinceMs: number
  readonly #unusable: UnusableAgents
  #isClosed = false

  constructor(options: DirectoryOptions) {
    const { broker, clock, lossSeconds } = options
    this.#options = options
    this.#unusable = new UnusableAgents(options)
    this.#connectedSinceMs = clock.monotonicMs()
    this.#silence = new SilenceWatch({
      clock,
      intervalMs: Math.max(minPingIntervalMs, Math.min(maxPingIntervalMs, lossSeconds * 250)),
      maxSilenceMs: () => lossSeconds * 1000,
      expected: () => (broker.isConnected ? [...this.#agents.values()] : []),
      onCheck: (agents) => {
        for (const agent of agents) this.#ping(agent).catch(this.#refuse)
      },
      onHung: (agents) => {
        for (const agent of agents) this.#removeAgent(agent, `it was silent for ${lossSeconds} s`)
      },
    })
    this.#unsubscribe = [
      this.#subscribe(announcementSubject, (data) =>
        this.#handleAnnouncement(announcementSubject, data),
      ),
      this.#subscribe(watcherSubject, (data) => this.#handleWatcherReport(watcherSubject, data)),
      broker.onConnection((isConnected) => {
        this.#connectedSinceMs = clock.monotonicMs()
        for (const agent of this.#agents.values()) this.#silence.recordActivity(agent)
        if (isConnected) this.discover()
      }),
    ]
  }

  get agents(): readonly KnownAgent[] {
    return [...this.#agents.values()]
  }

  get gone(): readonly GoneAgent[] {
    return [...this.#gone.values()]
  }

  /** The reports of watchers about agents that did not answer the last `discover`. */
  get silent(): readonly WatcherReport[] {
    return [...this.#silent.values()].filter(({ agent }) => !this.#agents.has(agent.name))
  }

  get pending(): number {
    return this.#candidates.size
  }

  get unusable(): readonly BackendError[] {
    return this.#unusable.errors
  }

  /**
   * By this time, all agents that were present when the connection was made or restored have been
   * heard.
   */
  get allHeardMs(): number {
    return this.#connectedSinceMs + announceWaitMs
  }

  /**
   * The time since which this process can receive messages: the broker is reachable, and the
   * process was neither suspended nor busy.
   */
  get receivingSinceMs(): number {
    return Math.max(this.#connectedSinceMs, this.#silence.lastStallMs)
  }

  find(name: string): KnownAgent | undefined {
    return this.#agents.get(name)
  }

  listen(listener: DirectoryListener): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** Resolves with `null` if the agent is not heard for `lossSeconds`. */
  async locate(name: string): Promise<KnownAgent | null> {
    const { clock, lossSeconds } = this.#options
    // Counts waits instead of time, because a suspended or busy process hears no agent.
    const maxAttempts = Math.floor((lossSeconds * 1000) / locateIntervalMs) + 2
    const findAgent = (attempt: number): KnownAgent | undefined => {
      const found = this.#agents.get(name)
      if (found === undefined && attempt < maxAttempts) this.discover()
      return found
    }
    return (await poll({ delayMs: locateIntervalMs, maxAttempts }, findAgent, { clock })) ?? null
  }

  /** Called by the parent of an exited agent. `isExpected`: whether the exit was requested. */
  handleExit(name: string, isExpected = false): void {
    const agent = this.#agents.get(name)
    if (agent !== undefined) {
      if (isExpected) agent.announcement = { ...agent.announcement, state: 'gone' }
      this.#removeAgent(agent, processGoneReason)
    }
    for (const { announcement } of this.#candidates.values()) {
      if (announcement.name === name) this.#ignoreStart(announcement.start)
    }
  }

  discover(): void {
    const { broker, keys } = this.#options
    this.#discovery = newNonce()
    this.#silent.clear()
    const header = { ...emptyHeader, scope: this.#discovery }
    broker.publish(discoverySubject, seal(keys.toAgent, discoverySubject, header, null))
  }

  request(name: string, request: AgentRequest, timeoutMs: number): Promise<unknown> {
    const { broker, keys } = this.#options
    return requestAnswer(broker, keys, agentSubject(name), request, timeoutMs)
  }

  close(): void {
    this.#isClosed = true
    this.#silence.stop()
    for (const unsubscribe of this.#unsubscribe) unsubscribe()
  }

  #subscribe(subject: string, take: (data: Uint8Array) => void): () => void {
    return this.#options.broker.subscribe(subject, ({ data }) => {
      try {
        take(data)
      } catch (error) {
        this.#refuse(error)
      }
    })
  }

  readonly #refuse = (error: unknown): void => this.#unusable.refuse(error, null)

  #handleAnnouncement(subject: string, data: Uint8Array): void {
    const opened = this.#open(subject, data)
    if (opened === null) return
    const announcement = expectMessage(opened.payload, 'announcement')
    const { name, start, state } = announcement
    if (this.#ended.has(start)) return
    const named = this.#agents.get(name)
    const agent = named?.announcement.start === start ? named : this.#candidates.get(start)
    if (agent === undefined) {
      if (state === 'gone') return
      this.#joinOnAnswer(announcement, opened.number).catch(this.#refuse)
      return
    }
    if (opened.number <= agent.number)
      return this.#unusable.refuse(new Error('it was sent before'), null)
    agent.number = opened.number
    const previousState = agent.announcement.state
    agent.announcement = announcement
    if (agent !== named) {
      if (state === 'gone') this.#ignoreStart(start)
      return
    }
    agent.lastHeardMs = this.#options.clock.monotonicMs()
    this.#silence.recordActivity(agent)
    if (state === 'gone') this.#removeAgent(agent, 'it left')
    else if (state === 'draining' && previousState === 'ready') this.#reportDraining(agent)
  }

  #handleWatcherReport(subject: string, data: Uint8Array): void {
    const opened = this.#open(subject, data)
    if (opened === null) return
    const report = expectMessage(opened.payload, 'watcher-report')
    const { name, start } = report.agent
    if (report.state === 'silent') {
      // Ignores an answer to an earlier request: another client may have copied and resent it.
      if (opened.scope === this.#discovery) this.#silent.set(name, report)
      return
    }
    const agent = this.#agents.get(name)
    if (agent?.announcement.start === start) this.#removeAgent(agent, processGoneReason)
    else this.#ignoreStart(start)
  }

  #open(subject: string, data: Uint8Array): OpenedMessage | null {
    try {
      return open(this.#options.keys.toDriver, subject, data)
    } catch (error) {
      this.#unusable.refuse(error, subject === announcementSubject ? data : null)
      return null
    }
  }

  /** Adds an agent if it answers a ping, because an announcement alone may be a replay. */
  async #joinOnAnswer(announcement: Announcement, number: number): Promise<void> {
    const agent: TrackedAgent = {
      announcement,
      number,
      offset: new ClockOffset(),
      lastHeardMs: 0,
      silentMs: 0,
      isPinged: false,
    }
    const { name, start } = announcement
    this.#candidates.set(start, agent)
    const hasAnswered = await this.#ping(agent)
    // In the meantime, the agent may have exited.
    const isCandidate = this.#candidates.delete(start)
    if (!hasAnswered || !isCandidate || this.#isClosed) return
    const last = this.#agents.get(name)
    if (last !== undefined) this.#removeAgent(last, restartedReason)
    this.#agents.set(name, agent)
    this.#gone.delete(name)
    for (const listener of this.#listeners) listener.agentJoined(agent)
    // The agent may have begun to drain before it answered.
    if (agent.announcement.state === 'draining') this.#reportDraining(agent)
  }

  #reportDraining(agent: TrackedAgent): void {
    for (const listener of this.#listeners) listener.agentDraining(agent)
  }

  #removeAgent(agent: TrackedAgent, reason: string): void {
    const { announcement } = agent
    const { name, start, state } = announcement
    this.#agents.delete(name)
    const hasExited = state === 'gone' || reason === processGoneReason || reason === restartedReason
    if (hasExited) this.#ignoreStart(start)
    deleteOldest(this.#gone)
    this.#gone.set(name, { announcement, leftMs: this.#options.clock.monotonicMs(), reason })
    for (const listener of this.#listeners) listener.agentLost(agent, reason)
  }

  #ignoreStart(start: number): void {
    this.#candidates.delete(start)
    deleteOldest(this.#ended)
    this.#ended.add(start)
  }

  async #ping(agent: TrackedAgent): Promise<boolean> {
    if (agent.isPinged) return false
    agent.isPinged = true
    const { clock, lossSeconds } = this.#options
    const sentMs = clock.monotonicMs()
    const timeoutMs = Math.min(maxPongTimeoutMs, lossSeconds * 1000)
    try {
      const { name } = agent.announcement
      const pong = expectMessage(await this.request(name, { kind: 'ping' }, timeoutMs), 'pong')
      if (pong.start !== agent.announcement.start) return false
      const nowMs = clock.monotonicMs()
      agent.lastHeardMs = nowMs
      this.#silence.recordActivity(agent)
      agent.offset.add(sentMs, pong.receivedMs, pong.sentMs, nowMs)
      return true
    } catch {
      // A failed ping alone proves nothing. An agent is lost only after a long silence.
      return false
    } finally {
      agent.isPinged = false
    }
  }
}

function deleteOldest<Key>(agents: Map<Key, unknown> | Set<Key>): void {
  const [oldest] = agents.keys()
  if (oldest !== undefined && agents.size >= maxEnded) agents.delete(oldest)
}

const maxOthers = 100

/**
 * Remembers agents with another version or token until they are silent for `lossSeconds`, and
 * counts refused messages.
 */
class UnusableAgents {
  readonly #options: DirectoryOptions
  /** Agents with other protocol versions, by version and name. */
  readonly #otherVersions = new Map<string, { error: VersionMismatchError; heardMs: number }>()
  #otherTokenMs = -Infinity
  #refusedMessages = 0

  constructor(options: DirectoryOptions) {
    this.#options = options
  }

  get errors(): readonly BackendError[] {
    const { clock, lossSeconds } = this.#options
    const sinceMs = clock.monotonicMs() - lossSeconds * 1000
    const others = [...this.#otherVersions.values()].filter(({ heardMs }) => heardMs >= sinceMs)
    const versions = others.map(({ error }) => error)
    return this.#otherTokenMs >= sinceMs ? [...versions, createTokenError()] : versions
  }

  /** Counts a refused message. `data` is the message if it is an announcement, otherwise `null`. */
  refuse(error: unknown, data: Uint8Array | null): void {
    const { clock, log } = this.#options
    const nowMs = clock.monotonicMs()
    if (error instanceof VersionMismatchError) {
      const key = `${error.theirs} ${error.agent ?? ''}`
      const isKnown = this.#otherVersions.has(key)
      if (!isKnown && this.#otherVersions.size >= maxOthers) return
      this.#otherVersions.set(key, { error, heardMs: nowMs })
      if (isKnown) return
      return log.warn('VersionMismatchError', messageOf(error))
    }
    const isAgent = data !== null && readHeader(data) !== null
    if (error instanceof WrongSignatureError && isAgent) this.#otherTokenMs = nowMs
    if (this.#refusedMessages++ > 0) return
    const text = `an announcement was refused: ${messageOf(error)}; further ones are counted`
    log.warn('MessageRefused', text)
  }
}

const createTokenError = (): BackendError =>
  new BackendError('an agent announces itself with another token', {
    code: 'TokenMismatchError',
    hint: 'Give all nodes the same token, or this cluster a server or account of its own.',
  })
