/** The agents of a cluster as the driver knows them: who is there, who is silent, who is lost. */

import { type Clock, sleep } from '../../../foundation/clock.ts'
import type { BackendError } from '../../../foundation/errors.ts'
import type { Log } from '../../../foundation/log.ts'
import type { Broker } from '../../broker/broker.ts'
import { ReceivedAnswer } from '../../wire/cut-answer.ts'
import {
  type Keys,
  newNonce,
  open,
  type OpenedMessage,
  seal,
  noHeader,
} from '../../wire/envelope.ts'
import type { AgentRequest, Announcement, Pong, WatcherReport } from '../../wire/messages.ts'
import {
  agentSubject,
  announcementSubject,
  discoverySubject,
  watcherSubject,
} from '../../wire/subjects.ts'
import { ClockOffset } from './clock-offset.ts'
import { UnusableAgents } from './unusable-agents.ts'

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
  /** Why it counts as gone. */
  readonly reason: string
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
/** By then every agent has announced itself, which they do every two seconds. */
const announcedMs = 2500
const processGone = 'its process is gone'
const startedAgain = 'it was started again'
/** Agents that have ended and are remembered: what they have sent may come late, or again. */
const mostEnded = 1000

interface Tracked extends KnownAgent {
  announcement: Announcement
  /** Of its last announcement. */
  number: number
  /** Since it was heard: time in which this process was stopped or busy, and could not hear. */
  deafMs: number
  isPinged: boolean
}

export class AgentDirectory {
  readonly #options: DirectoryOptions
  /** By name. Listeners were told of them. */
  readonly #agents = new Map<string, Tracked>()
  /** By their start: they have announced themselves, and have not answered yet. */
  readonly #candidates = new Map<number, Tracked>()
  readonly #listeners = new Set<DirectoryListener>()
  readonly #unsubscribe: (() => void)[]
  readonly #pingMs: number
  /** Starts of agents that have ended, or that another one of their name has followed. */
  readonly #ended = new Set<number>()
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
  readonly #unusable: UnusableAgents
  #cancelTick: () => void = () => {}
  #isClosed = false

  constructor(options: DirectoryOptions) {
    const { broker, clock, lossSeconds } = options
    this.#options = options
    this.#unusable = new UnusableAgents(options)
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
    return [...this.#agents.values()]
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
    return this.#unusable.errors
  }

  /**
   * By then all agents have been heard that were there when the connection was made. Not earlier:
   * a slow agent would be taken for one that is not there, and tasks fail for good by that.
   */
  get allHeardMs(): number {
    return this.#connectedSinceMs + announcedMs
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
    // While this process is stopped or busy it hears nobody: only the waits count.
    for (let waitedMs = 0; waitedMs <= lossSeconds * 1000; waitedMs += locateMs) {
      const found = this.#agents.get(name)
      if (found !== undefined) return found
      this.discover()
      await sleep(clock, locateMs)
    }
    return this.#agents.get(name) ?? null
  }

  /**
   * For the parent of an agent: its process has ended. `isExpected`: as it was told to; that it has
   * left may be known later than that.
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
    const answer = new ReceivedAnswer(epoch, keys.toDriver, subject)
    await broker.requestAccepted(subject, data, timeoutMs, (part) => answer.take(part))
    return answer.payload
  }

  close(): void {
    this.#isClosed = true
    this.#cancelTick()
    for (const unsubscribe of this.#unsubscribe) unsubscribe()
  }

  #take(subject: string, data: Uint8Array): void {
    const opened = this.#open(subject, data)
    if (opened === null) return
    const announcement = opened.payload as Announcement
    const { name, epoch, state } = announcement
    if (this.#ended.has(epoch)) return
    const named = this.#agents.get(name)
    const agent = named?.announcement.epoch === epoch ? named : this.#candidates.get(epoch)
    if (agent === undefined) {
      if (state !== 'gone') void this.#welcome(announcement, opened.number)
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
    agent.deafMs = 0
    if (state === 'gone') this.#lose(agent, 'it left')
    else if (state === 'draining' && before === 'ready') this.#tellDraining(agent)
  }

  #takeReport(subject: string, data: Uint8Array): void {
    const opened = this.#open(subject, data)
    if (opened === null) return
    const report = opened.payload as WatcherReport
    const { name, epoch } = report.agent
    if (report.state === 'silent') {
      // Of this question, and not of an earlier one that somebody sends again.
      if (opened.epoch === this.#discovery) this.#silent.set(name, report)
      return
    }
    const agent = this.#agents.get(name)
    if (agent?.announcement.epoch === epoch) this.#lose(agent, processGone)
    else this.#noteEnd(epoch)
  }

  /** `null` for a message that is refused. */
  #open(subject: string, data: Uint8Array): OpenedMessage | null {
    try {
      return open(this.#options.keys.toDriver, subject, data)
    } catch (error) {
      this.#unusable.refuse(error, subject === announcementSubject ? data : null)
      return null
    }
  }

  /**
   * It joins when it answers: an announcement alone may be one of an earlier start that somebody
   * sends again, and clocks do not tell which start is the later one. Its clock is measured with
   * the answer, before its first task.
   */
  async #welcome(announcement: Announcement, number: number): Promise<void> {
    const agent: Tracked = {
      announcement,
      number,
      offset: new ClockOffset(),
      heardMs: 0,
      deafMs: 0,
      isPinged: false,
    }
    const { name, epoch } = announcement
    this.#candidates.set(epoch, agent)
    const isThere = await this.#ping(agent)
    // It may have ended meanwhile.
    const isCandidate = this.#candidates.delete(epoch)
    if (!isThere || !isCandidate || this.#isClosed) return
    const last = this.#agents.get(name)
    if (last !== undefined) this.#lose(last, startedAgain)
    this.#agents.set(name, agent)
    this.#gone.delete(name)
    for (const listener of this.#listeners) listener.agentJoined(agent)
    // It may have begun to leave while it was asked.
    if (agent.announcement.state === 'draining') this.#tellDraining(agent)
  }

  #tellDraining(agent: Tracked): void {
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

  /** What this start has sent counts no more. */
  #noteEnd(epoch: number): void {
    this.#candidates.delete(epoch)
    deleteOldest(this.#ended)
    this.#ended.add(epoch)
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

  /** Whether it has answered. */
  async #ping(agent: Tracked): Promise<boolean> {
    if (agent.isPinged) return false
    agent.isPinged = true
    const { clock, lossSeconds } = this.#options
    const sentMs = clock.monotonicMs()
    const timeoutMs = Math.min(mostPongMs, lossSeconds * 1000)
    try {
      const { name } = agent.announcement
      const pong = (await this.request(name, { kind: 'ping' }, timeoutMs)) as Pong
      if (pong.epoch !== agent.announcement.epoch) return false
      const nowMs = clock.monotonicMs()
      agent.heardMs = nowMs
      agent.deafMs = 0
      agent.offset.add(sentMs, pong.receivedMs, pong.sentMs, nowMs)
      return true
    } catch {
      // Its silence is counted.
      return false
    } finally {
      agent.isPinged = false
    }
  }
}

function deleteOldest<Key>(agents: Map<Key, unknown> | Set<Key>): void {
  const [oldest] = agents.keys()
  if (oldest !== undefined && agents.size >= mostEnded) agents.delete(oldest)
}
