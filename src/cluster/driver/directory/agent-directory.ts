/** The agents of a cluster as a driver knows them: present, silent and lost ones. */

import type { Clock } from '../../../foundation/clock.ts'
import { BackendError, messageOf } from '../../../foundation/errors.ts'
import type { Log } from '../../../foundation/log.ts'
import { poll } from '../../../runtime/retry.ts'
import { SilenceWatch, type Watched } from '../../../runtime/silence-watch.ts'
import type { Broker } from '../../broker/broker.ts'
import { ReceivedAnswer } from '../../wire/cut-answer.ts'
import {
  type Keys,
  newNonce,
  noHeader,
  open,
  type OpenedMessage,
  readHeader,
  seal,
  VersionMismatchError,
  WrongSignatureError,
} from '../../wire/envelope.ts'
import { expectMessage } from '../../wire/message-forms.ts'
import type { AgentRequest, Announcement, WatcherReport } from '../../wire/messages.ts'
import {
  agentSubject,
  announcementSubject,
  discoverySubject,
  watcherSubject,
} from '../../wire/subjects.ts'
import { ClockOffset } from './clock-offset.ts'

/** An agent that has announced itself. */
export interface KnownAgent {
  readonly announcement: Announcement
  readonly offset: ClockOffset
  /** When the agent's last message arrived. */
  heardMs: number
}

/** An agent that has left or was lost, and may be restarted. */
export interface GoneAgent {
  readonly announcement: Announcement
  readonly leftMs: number
  readonly reason: string
}

export interface DirectoryListener {
  /** An agent has joined, perhaps a restarted one with the same name. */
  agentJoined(agent: KnownAgent): void
  /** The agent accepts no new jobs, and leaves when its tasks have finished. */
  agentDraining(agent: KnownAgent): void
  agentLost(agent: KnownAgent, reason: string): void
}

export interface DirectoryOptions {
  readonly broker: Broker
  readonly keys: Keys
  readonly clock: Clock
  readonly log: Log
  /** An agent counts as lost after this time of silence. */
  readonly lossSeconds: number
}

/** The interval of pings, unless a quarter of `lossSeconds` is shorter. */
const maxPingMs = 500
const minPingMs = 50
/** A ping that was lost with a connection must not delay the next one for longer. */
const maxPongMs = 5000
const locateMs = 100
/** After this time every agent has announced itself, because agents do so every two seconds. */
const announcedMs = 2500
const processGone = 'its process is gone'
const startedAgain = 'it was started again'
/**
 * The number of ended agents to remember, because their messages may arrive late or be replayed.
 */
const maxEnded = 1000

interface Tracked extends KnownAgent, Watched {
  announcement: Announcement
  /** The number of the last announcement. */
  number: number
  isPinged: boolean
}

export class AgentDirectory {
  readonly #options: DirectoryOptions
  /** Agents that were reported to listeners, by name. */
  readonly #agents = new Map<string, Tracked>()
  /** Agents that have announced themselves, but not answered yet, by epoch. */
  readonly #candidates = new Map<number, Tracked>()
  readonly #listeners = new Set<DirectoryListener>()
  readonly #unsubscribe: (() => void)[]
  readonly #silence: SilenceWatch<Tracked>
  /** Epochs of agents that have exited, or were replaced by another one of the same name. */
  readonly #ended = new Set<number>()
  /** Agents that were reported to listeners and have left. */
  readonly #gone = new Map<string, GoneAgent>()
  /** Agents that are silent according to their watchers. */
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
      intervalMs: Math.max(minPingMs, Math.min(maxPingMs, lossSeconds * 250)),
      hungMs: () => lossSeconds * 1000,
      expected: () => (broker.isConnected ? [...this.#agents.values()] : []),
      onCheck: (agents) => {
        for (const agent of agents) this.#ping(agent).catch(this.#refuse)
      },
      onHung: (agents) => {
        for (const agent of agents) this.#lose(agent, `it was silent for ${lossSeconds} s`)
      },
    })
    this.#unsubscribe = [
      this.#subscribe(announcementSubject, (data) => this.#take(announcementSubject, data)),
      this.#subscribe(watcherSubject, (data) => this.#takeReport(watcherSubject, data)),
      broker.onConnection((isConnected) => {
        this.#connectedSinceMs = clock.monotonicMs()
        for (const agent of this.#agents.values()) this.#silence.sign(agent)
        if (isConnected) this.discover()
      }),
    ]
  }

  /** The agents that were reported to listeners. */
  get agents(): readonly KnownAgent[] {
    return [...this.#agents.values()]
  }

  /** Agents that were present and have left or were lost. */
  get gone(): readonly GoneAgent[] {
    return [...this.#gone.values()]
  }

  /** Agents that did not answer the last `discover`, as their watchers report them. */
  get silent(): readonly WatcherReport[] {
    return [...this.#silent.values()].filter(({ agent }) => !this.#agents.has(agent.name))
  }

  /** The number of agents that have announced themselves, but not answered yet. */
  get pending(): number {
    return this.#candidates.size
  }

  /** Why agents that announce themselves cannot be used. */
  get unusable(): readonly BackendError[] {
    return this.#unusable.errors
  }

  /**
   * When all agents have been heard that were present at the time of connecting. Not earlier,
   * because a slow agent would count as absent, and tasks would fail permanently.
   */
  get allHeardMs(): number {
    return this.#connectedSinceMs + announcedMs
  }

  /** Since when the broker is reachable and this process has been neither suspended nor busy. */
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

  /**
   * Looks for an agent, such as one that an earlier start of a session has used. `null` if it is
   * not heard for `lossSeconds`, because its process or its link may be gone.
   */
  async locate(name: string): Promise<KnownAgent | null> {
    const { clock, lossSeconds } = this.#options
    // Counts waits instead of time, because a suspended or busy process hears no agent.
    const maxAttempts = Math.floor((lossSeconds * 1000) / locateMs) + 2
    const look = (attempt: number): KnownAgent | undefined => {
      const found = this.#agents.get(name)
      if (found === undefined && attempt < maxAttempts) this.discover()
      return found
    }
    return (await poll({ delayMs: locateMs, maxAttempts }, look, { clock })) ?? null
  }

  /**
   * Called by the parent of an agent after the agent's process has exited. `isExpected`: the exit
   * was requested, and its announcement may arrive later.
   */
  noteExit(name: string, isExpected = false): void {
    const agent = this.#agents.get(name)
    if (agent !== undefined) {
      if (isExpected) agent.announcement = { ...agent.announcement, state: 'gone' }
      this.#lose(agent, processGone)
    }
    for (const { announcement } of this.#candidates.values()) {
      if (announcement.name === name) this.#noteEnd(announcement.epoch)
    }
  }

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
    const answer = new ReceivedAnswer(epoch, keys.toDriver, subject)
    await broker.requestAccepted(subject, data, timeoutMs, (part) => answer.take(part))
    return answer.payload
  }

  close(): void {
    this.#isClosed = true
    this.#silence.stop()
    for (const unsubscribe of this.#unsubscribe) unsubscribe()
  }

  /** A message that cannot be handled counts as refused. */
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

  #take(subject: string, data: Uint8Array): void {
    const opened = this.#open(subject, data)
    if (opened === null) return
    const announcement = expectMessage(opened.payload, 'announcement')
    const { name, epoch, state } = announcement
    if (this.#ended.has(epoch)) return
    const named = this.#agents.get(name)
    const agent = named?.announcement.epoch === epoch ? named : this.#candidates.get(epoch)
    if (agent === undefined) {
      if (state === 'gone') return
      this.#joinOnAnswer(announcement, opened.number).catch(this.#refuse)
      return
    }
    if (opened.number <= agent.number)
      return this.#unusable.refuse(new Error('it was sent before'), null)
    agent.number = opened.number
    const before = agent.announcement.state
    agent.announcement = announcement
    if (agent !== named) {
      if (state === 'gone') this.#noteEnd(epoch)
      return
    }
    agent.heardMs = this.#options.clock.monotonicMs()
    this.#silence.sign(agent)
    if (state === 'gone') this.#lose(agent, 'it left')
    else if (state === 'draining' && before === 'ready') this.#reportDraining(agent)
  }

  #takeReport(subject: string, data: Uint8Array): void {
    const opened = this.#open(subject, data)
    if (opened === null) return
    const report = expectMessage(opened.payload, 'watcher-report')
    const { name, epoch } = report.agent
    if (report.state === 'silent') {
      // Ignores replayed answers to an earlier request.
      if (opened.epoch === this.#discovery) this.#silent.set(name, report)
      return
    }
    const agent = this.#agents.get(name)
    if (agent?.announcement.epoch === epoch) this.#lose(agent, processGone)
    else this.#noteEnd(epoch)
  }

  /** `null` if the message is refused. */
  #open(subject: string, data: Uint8Array): OpenedMessage | null {
    try {
      return open(this.#options.keys.toDriver, subject, data)
    } catch (error) {
      this.#unusable.refuse(error, subject === announcementSubject ? data : null)
      return null
    }
  }

  /**
   * An agent joins when it answers, because its announcement may be a replay from an earlier start,
   * and clocks cannot tell which start is later. The answer also measures the agent's clock, before
   * its first task.
   */
  async #joinOnAnswer(announcement: Announcement, number: number): Promise<void> {
    const agent: Tracked = {
      announcement,
      number,
      offset: new ClockOffset(),
      heardMs: 0,
      silentMs: 0,
      isPinged: false,
    }
    const { name, epoch } = announcement
    this.#candidates.set(epoch, agent)
    const isThere = await this.#ping(agent)
    // The agent may have exited meanwhile.
    const isCandidate = this.#candidates.delete(epoch)
    if (!isThere || !isCandidate || this.#isClosed) return
    const last = this.#agents.get(name)
    if (last !== undefined) this.#lose(last, startedAgain)
    this.#agents.set(name, agent)
    this.#gone.delete(name)
    for (const listener of this.#listeners) listener.agentJoined(agent)
    // The agent may have begun to drain before it answered.
    if (agent.announcement.state === 'draining') this.#reportDraining(agent)
  }

  #reportDraining(agent: Tracked): void {
    for (const listener of this.#listeners) listener.agentDraining(agent)
  }

  #lose(agent: Tracked, reason: string): void {
    const { announcement } = agent
    const { name, epoch, state } = announcement
    this.#agents.delete(name)
    const isOver = state === 'gone' || reason === processGone || reason === startedAgain
    if (isOver) this.#noteEnd(epoch)
    deleteOldest(this.#gone)
    this.#gone.set(name, { announcement, leftMs: this.#options.clock.monotonicMs(), reason })
    for (const listener of this.#listeners) listener.agentLost(agent, reason)
  }

  /** Ignores further messages of this start of an agent. */
  #noteEnd(epoch: number): void {
    this.#candidates.delete(epoch)
    deleteOldest(this.#ended)
    this.#ended.add(epoch)
  }

  /** Returns whether the agent has answered. */
  async #ping(agent: Tracked): Promise<boolean> {
    if (agent.isPinged) return false
    agent.isPinged = true
    const { clock, lossSeconds } = this.#options
    const sentMs = clock.monotonicMs()
    const timeoutMs = Math.min(maxPongMs, lossSeconds * 1000)
    try {
      const { name } = agent.announcement
      const pong = expectMessage(await this.request(name, { kind: 'ping' }, timeoutMs), 'pong')
      if (pong.epoch !== agent.announcement.epoch) return false
      const nowMs = clock.monotonicMs()
      agent.heardMs = nowMs
      this.#silence.sign(agent)
      agent.offset.add(sentMs, pong.receivedMs, pong.sentMs, nowMs)
      return true
    } catch {
      // A failed ping alone proves nothing: an agent is lost only after a long silence.
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

interface UnusableAgentsOptions {
  readonly clock: Clock
  readonly log: Log
  /** An agent is forgotten after this time of silence. */
  readonly lossSeconds: number
}

/** The maximum number of agents of other versions that are listed. */
const maxOthers = 100

interface OtherVersion {
  readonly error: VersionMismatchError
  readonly heardMs: number
}

/** Agents that announce themselves with another version or token, and refused messages. */
class UnusableAgents {
  readonly #options: UnusableAgentsOptions
  /** Agents with other protocol versions, by version and name, with the time last heard. */
  readonly #otherVersions = new Map<string, OtherVersion>()
  /** When an agent with another token was last heard. */
  #otherTokenMs = -Infinity
  #refusedMessages = 0

  constructor(options: UnusableAgentsOptions) {
    this.#options = options
  }

  /** Why agents that announce themselves cannot be used. */
  get errors(): readonly BackendError[] {
    const { clock, lossSeconds } = this.#options
    const sinceMs = clock.monotonicMs() - lossSeconds * 1000
    const others = [...this.#otherVersions.values()].filter(({ heardMs }) => heardMs >= sinceMs)
    const versions = others.map(({ error }) => error)
    return this.#otherTokenMs >= sinceMs ? [...versions, otherToken()] : versions
  }

  /** `data` is the refused announcement; `null` for another message. */
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

const otherToken = (): BackendError =>
  new BackendError('an agent announces itself with another token', {
    code: 'TokenMismatchError',
    hint: 'Give all nodes the same token, or this cluster a server or account of its own.',
  })
