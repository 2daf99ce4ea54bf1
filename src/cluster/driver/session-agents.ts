/** The agents that a session uses: attaches to them, detects lost ones, and attaches again. */

import { type BackendListener, type SampledNode, toEventNotice } from '../../backends/backend.ts'
import { TaskMoved } from '../../events/library-events.ts'
import { type Clock, sleep } from '../../foundation/clock.ts'
import { BackendError, messageOf } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { retry } from '../../runtime/retry.ts'
import { type Broker, NoResponderError } from '../broker/broker.ts'
import type { SessionStream } from '../broker/session-stream.ts'
import { type Keys, newEpoch } from '../wire/envelope.ts'
import { expectMessage } from '../wire/message-forms.ts'
import type { SessionSubjects, SessionUse } from '../wire/subjects.ts'
import type { AgentDirectory, DirectoryListener, KnownAgent } from './directory/agent-directory.ts'
import { AgentLink } from './agent-link.ts'
import type { DriverJobs } from './jobs/driver-jobs.ts'
import { EarlierAgents } from './earlier/earlier-agents.ts'
import type { EarlierRun } from './earlier/earlier-run.ts'
import { type EndReceiver, lostReport, toLostAttempts } from './end-receiver.ts'
import {
  agentClosed,
  type AgentReport,
  type AgentStart,
  type Attach,
  type Detached,
  silenceMs,
} from '../wire/messages.ts'
import { UsedAgents } from './used-agents.ts'

export interface SessionAgentsOptions {
  readonly use: SessionUse
  /** The driver's epoch, once it has claimed the session. */
  readonly epoch: () => number
  /** The keys of this run, once the run is known. */
  readonly keys: () => Keys
  readonly run: () => string
  readonly token: string
  readonly subjects: SessionSubjects
  readonly broker: Broker
  readonly directory: AgentDirectory
  readonly listener: BackendListener
  readonly clock: Clock
  readonly log: Log
  readonly jobs: DriverJobs
  readonly ends: EndReceiver
  readonly stream: SessionStream
  readonly earlier: EarlierRun
  /** The links to agents, by name; added and removed here. */
  readonly links: Map<string, AgentLink>
  readonly lossSeconds: number
  readonly ownerTtlSeconds: number
  readonly resultTtlSeconds: number
  readonly agentTimeoutSeconds: number
  /** Called when an agent has become ready for jobs, or was lost with its jobs. */
  readonly onChange: () => void
  readonly toNode: (agent: KnownAgent) => SampledNode
  readonly onReport: (link: AgentLink, report: AgentReport) => void
  readonly onRefused: (reason: string) => void
  /**
   * Called when the session must end: a later start uses an agent, or an unexpected error occurred.
   */
  readonly onFailed: (error: unknown) => void
}

const requestMs = 5000
/** Reads are retried, because the server may be restarting. */
const maxReads = 5
const rereadMs = 200

export class SessionAgents implements DirectoryListener {
  readonly #options: SessionAgentsOptions
  readonly #links: Map<string, AgentLink>
  readonly #bySubject = new Map<string, AgentLink>()
  /** Pending attaches by agent. They resolve when all results for an earlier start have arrived. */
  readonly #attaching = new Map<string, Promise<void>>()
  /** Agents whose results are being read from the stream. */
  readonly #reading = new Set<AgentLink>()
  /** The notes of used agents in the session's stream. */
  readonly used: UsedAgents
  readonly earlier: EarlierAgents
  /** The last reported reason why attaching to each agent failed. */
  readonly #problems = new Map<string, string>()
  #isClosed = false

  constructor(options: SessionAgentsOptions) {
    this.#options = options
    this.used = new UsedAgents(options)
    this.#links = options.links
    this.earlier = new EarlierAgents({
      ...options,
      used: this.used,
      hasAttached: (agent) => this.#hasAttached(agent),
      isClosed: () => this.#isClosed,
      reportLeft: (name, reason) => this.#reportLeft(name, reason, []),
      patienceMs: options.lossSeconds * 1000 + 2 * requestMs,
    })
  }

  agentJoined(agent: KnownAgent): void {
    this.#attach(agent)
  }

  agentDraining({ announcement }: KnownAgent): void {
    this.#options.jobs.placement.setUsable(announcement.name, false)
  }

  agentLost({ announcement }: KnownAgent, reason: string): void {
    const { name, epoch, state } = announcement
    const link = this.#links.get(name)
    if (link?.epoch === epoch) this.#startLosing(link, reason)
    else if (link === undefined) {
      // The agent was reported to the session, but was not used.
      this.#reportLeft(name, state === 'gone' ? null : reason, [])
      this.used.lose({ name, epoch }, []).catch(this.#options.onFailed)
    }
  }

  /**
   * Attaches to all known agents that are not used yet; failed attempts are retried. Resolves when
   * all their results for an earlier start have arrived, or the agents are lost.
   */
  async attachAll(): Promise<void> {
    for (const agent of this.#options.directory.agents) this.#attach(agent)
    await Promise.all(this.#attaching.values())
  }

  #hasAttached({ name, epoch }: AgentStart): boolean {
    const link = this.#links.get(name)
    return link?.epoch === epoch && link.isAttached && !this.#attaching.has(name)
  }

  /** Receives a message of an agent that has no results. */
  receive(subject: string, data: Uint8Array): void {
    this.#bySubject.get(subject)?.receive(subject, data)
  }

  /** Must be called after each reconnect. */
  reconnected(): void {
    for (const link of this.#links.values()) link.resend()
    this.used.reconnected()
    this.#noteMissing()
  }

  /** Writes notes of used agents again if the server lost the stream, such as in a restart. */
  #noteMissing(): void {
    const attached = (): AgentLink[] =>
      [...this.#links.values()].filter(({ isAttached }) => isAttached)
    this.used.noteMissing(attached).catch(() => {
      // The check is retried at the next tick.
    })
  }

  /** Called every half second. */
  tick(nowMs: number): void {
    for (const link of this.#links.values()) this.#watch(link, nowMs)
    this.attachAll().catch(this.#options.onFailed)
    this.#noteMissing()
    this.used.tick(nowMs)
  }

  /**
   * Ends the use of all agents, including those of an earlier start that were not found yet. Agents
   * that do not answer drop the session after a while. `false` if a later start uses them.
   */
  async detach(reason: string): Promise<boolean> {
    this.close()
    const names = new Set(this.#links.keys())
    for (const { name } of this.earlier.unfound) names.add(name)
    const answers = await Promise.all(
      // An agent in use may be lost before it answers, such as all agents of a canceled batch job.
      Array.from(names, (name) => detachFrom(name, reason, this.#links.has(name), this.#options)),
    )
    return !answers.some((answer) => answer?.isSuperseded)
  }

  /** Stops using all agents without notifying them. */
  close(): void {
    this.#isClosed = true
    for (const link of this.#links.values()) link.expectNoEvents()
    this.used.close()
  }

  #watch(link: AgentLink, nowMs: number): void {
    // A lost agent gets no jobs, even if a message of it has just arrived.
    if (link.isLost) return
    const { jobs, directory } = this.#options
    const { announcement, heardMs } = link.agent
    const isHeard = nowMs - heardMs < silenceMs
    jobs.placement.setUsable(link.name, isHeard && announcement.state === 'ready')
    link.tick()
    const lossMs = this.#options.lossSeconds * 1000
    // The agent answers pings, but sends no messages about the session.
    const silentMs = heardMs - Math.max(link.heardMs, directory.receivingSinceMs)
    if (link.isAttached && silentMs > lossMs) {
      return this.#startLosing(link, 'it has given up the session')
    }
    // After a disconnect, messages with results may be missing.
    if (!link.isMissingEnds() || this.#reading.has(link)) return
    this.#reading.add(link)
    this.#readMissing(link)
      .finally(() => this.#reading.delete(link))
      .catch(this.#options.onFailed)
  }

  /** Reads missing messages from the stream; requests those that are not there from the agent. */
  async #readMissing(link: AgentLink): Promise<boolean> {
    const { ends, subjects, broker } = this.#options
    await ends.readStream(subjects.endsOf(link.name)).catch(() => {
      // The stream may be gone. Missing messages are requested at the next tick.
    })
    return broker.isConnected && link.askForMissing()
  }

  #attach(agent: KnownAgent): void {
    const { name, state } = agent.announcement
    if (state === 'gone') return
    if (state === 'draining' && !this.earlier.has(agent.announcement)) return
    if (this.#links.has(name) || this.#isClosed) return
    const done = (): void => {
      if (this.#attaching.get(name) === attaching) this.#attaching.delete(name)
    }
    const attaching = this.#attachTo(agent).catch(this.#options.onFailed).finally(done)
    this.#attaching.set(name, attaching)
  }

  async #attachTo(agent: KnownAgent): Promise<void> {
    const { name, epoch } = agent.announcement
    const { directory, ends, jobs, earlier } = this.#options
    const link = this.#addLink(agent)
    try {
      await this.used.add(link)
      const challenged = await directory.request(name, challenge, requestMs)
      const request = this.#toAttach(link, expectMessage(challenged, 'challenged').nonce)
      const attached = await directory.request(name, request, requestMs)
      const answer = expectMessage(attached, 'attached', 'refused')
      if (answer.kind === 'refused') throw new BackendError(answer.message, { code: answer.code })
      if (this.#links.get(name) !== link) return
      if (answer.epoch !== epoch) throw new Error('it was started again')
      const isFirst = !ends.hasUsed(answer.endsEpoch)
      const { endsEpoch } = answer
      link.attached(ends.use(endsEpoch), answer, isFirst, earlier.unreadOf(endsEpoch))
      if (isFirst) await this.#readEarlier(link)
      if (!this.#isUsed(link)) return
      this.#problems.delete(name)
      jobs.addAgent(agent.announcement, answer.offer)
      earlier.found(link)
      // Jobs that a lost agent still holds when it returns have been moved to other agents.
      if (isFirst) earlier.addHeld(link, answer.held)
      else for (const { uid, attempt } of answer.held) link.cancel([uid, attempt], 'it has moved')
      link.hasReportedEarlier = true
      this.#options.onChange()
    } catch (error) {
      this.#removeLink(link)
      if (error instanceof BackendError && error.code === 'SessionInUseError') {
        this.#options.onFailed(error)
      } else this.#reportProblem(name, messageOf(error))
    }
  }

  /**
   * Reads the results for an earlier start before any job is sent. If the server has lost them,
   * waits until the agent has sent them again: otherwise finished tasks would run a second time.
   */
  async #readEarlier(link: AgentLink): Promise<void> {
    this.#reading.add(link)
    while (link.isMissingEarlier && this.#isUsed(link)) {
      await this.#readMissing(link)
      if (link.isMissingEarlier) await sleep(this.#options.clock, rereadMs)
    }
    this.#reading.delete(link)
  }

  #isUsed(link: AgentLink): boolean {
    return !this.#isClosed && !link.isLost && this.#links.get(link.name) === link
  }

  /** Warns once per reason, because attaching is retried every half second. */
  #reportProblem(name: string, reason: string): void {
    if (this.#problems.get(name) === reason || this.#isClosed) return
    this.#problems.set(name, reason)
    this.#options.log.warn('AttachFailed', `agent "${name}": ${reason}; it is tried again`)
  }

  #addLink(agent: KnownAgent): AgentLink {
    const { keys, subjects, broker, clock, onReport, onRefused } = this.#options
    const link: AgentLink = new AgentLink({
      agent,
      link: newEpoch(),
      keys: keys(),
      subjects,
      broker,
      clock,
      onReport: (report) => onReport(link, report),
      // An agent signs messages for an earlier run until it knows this one.
      onRefused: (reason) => link.isAttached && onRefused(reason),
    })
    this.#links.set(link.name, link)
    this.#bySubject.set(subjects.upFrom(link.name), link)
    return link
  }

  #removeLink(link: AgentLink): void {
    if (this.#links.get(link.name) !== link) return
    this.#links.delete(link.name)
    this.#bySubject.delete(this.#options.subjects.upFrom(link.name))
  }

  #toAttach({ link }: AgentLink, nonce: number): Attach {
    const { use, ownerTtlSeconds, resultTtlSeconds, agentTimeoutSeconds } = this.#options
    const times = { ownerTtlSeconds, resultTtlSeconds, agentTimeoutSeconds }
    const start = { epoch: this.#options.epoch(), run: this.#options.run() }
    return { kind: 'attach', nonce, link, ...times, ...use, ...start, folder: process.cwd() }
  }

  /** Reads results that a lost agent had stored while this driver was disconnected. */
  async #readLastEnds(name: string): Promise<void> {
    const { ends, subjects, clock, log } = this.#options
    const policy = { delayMs: rereadMs, maxAttempts: maxReads }
    const read = (): Promise<void> => ends.readStream(subjects.endsOf(name))
    try {
      await retry(policy, read, { clock, mayRetry: () => !this.#isClosed })
    } catch (error) {
      // Does not warn after `close`, because the session removes its stream then.
      const text = `results of agent "${name}" cannot be read: ${messageOf(error)}`
      if (!this.#isClosed) log.warn('StreamUnreadable', text)
    }
  }

  #startLosing(link: AgentLink, reason: string): void {
    this.#lose(link, reason).catch(this.#options.onFailed)
  }

  async #lose(link: AgentLink, reason: string): Promise<void> {
    const { jobs, listener, earlier } = this.#options
    const { name } = link
    if (link.isLost) return
    link.isLost = true
    jobs.placement.setUsable(name, false)
    await this.#readLastEnds(name)
    link.expectNoEvents()
    if (this.#links.get(name) !== link) return
    this.#removeLink(link)
    // Before any report, because the session submits the next attempt during a report.
    jobs.placement.removeNode(name)
    const untaken = earlier.forget(link, reason)
    const unbegun = earlier.unbegunOf(link)
    // If the value of an attempt is being read, its result has arrived.
    for (const one of link.jobs.toArray()) if (one.isEnding) jobs.leave(one)
    const all = link.jobs.toArray()
    const counted = jobs.countMoves(link)
    const begun = all.filter((one) => one.isStarted || counted.has(one))
    const moved = all.filter((one) => !one.isStarted && !counted.has(one))
    const hasLeft = link.agent.announcement.state === 'gone' && all.length === 0
    const leaving = link.abandoned.length > 0 ? agentClosed : null
    const tasks = [...link.abandoned, ...begun.map(({ uid }) => uid)]
    this.#reportLeft(name, hasLeft ? leaving : reason, tasks)
    if (moved.length > 0) {
      const fields = { count: moved.length, tasks: moved.map(({ uid }) => uid) }
      listener.notice(toEventNotice(TaskMoved, fields, { nodeId: name }))
    }
    // Copies the attempt numbers at this agent, because `move` changes them.
    const single = moved.filter(({ group }) => group === null)
    const left = single.map(({ uid, wireAttempt }) => [uid, wireAttempt] as const)
    // Noted before they are reported, so that a later start does not begin these attempts again.
    const lost = [...untaken, ...toLostAttempts(begun, name, reason)]
    const noted = this.used.lose(link, lost, [...unbegun, ...left])
    jobs.move(moved)
    jobs.leaveLost(begun, name)
    this.#options.onChange()
    await noted
    for (const one of begun) {
      if (jobs.has(one)) jobs.end(one, lostReport(one, name, reason), null)
    }
  }

  /** Reports that a node has left. `reason` is `null` if it left normally. */
  #reportLeft(nodeId: string, reason: string | null, tasks: readonly string[]): void {
    const { listener, directory, toNode } = this.#options
    const lost = reason === null ? {} : { lost: { reason, tasks } }
    listener.notice({ kind: 'node-left', nodeId, ...lost })
    // A restarted agent has joined before the exit of its predecessor was reported.
    const next = directory.agents.find(({ announcement }) => announcement.name === nodeId)
    if (next !== undefined) listener.notice({ kind: 'node-joined', node: toNode(next) })
  }
}

const challenge = { kind: 'challenge' } as const

interface DetachOptions {
  readonly use: SessionUse
  readonly run: () => string
  readonly epoch: () => number
  readonly broker: Broker
  readonly directory: AgentDirectory
  readonly clock: Clock
  readonly log: Log
  readonly ownerTtlSeconds: number
}

const answerMs = 5000
const retryMs = 200
const reconnected = new Error('the connection was down')

/**
 * Resolves when the agent holds no jobs of the session; with `null` if it does not answer. Sent
 * again after a reconnect. `isUsed`: whether this start of the driver uses the agent.
 */
async function detachFrom(
  name: string,
  reason: string,
  isUsed: boolean,
  options: DetachOptions,
): Promise<Detached | null> {
  const { directory, use, run, epoch, broker, clock, log, ownerTtlSeconds } = options
  const request = { kind: 'detach', ...use, run: run(), epoch: epoch(), reason } as const
  const ask = async (): Promise<Detached> => {
    const answer = directory.request(name, request, answerMs)
    return expectMessage(await unlessReconnected(broker, answer), 'detached')
  }
  let comesUntilMs = 0
  const mayRetry = (error: unknown): boolean => {
    const nowMs = clock.monotonicMs()
    // The request was lost with the connection; the agent may reconnect a little later.
    if (error === reconnected) comesUntilMs = nowMs + silenceMs
    return error === reconnected || (error instanceof NoResponderError && nowMs < comesUntilMs)
  }
  try {
    return await retry({ delayMs: retryMs }, ask, { clock, mayRetry })
  } catch (error) {
    // Warns only about agents of an earlier start, because the session knows the others.
    if (error instanceof NoResponderError || isUsed) return null
    const left = `tasks of session "${use.sessionId}" there end after ${ownerTtlSeconds} s`
    log.warn('AgentNotDetached', `agent "${name}" does not answer; ${left}`)
    return null
  }
}

/** Rejects with `reconnected` if the connection is restored before the answer arrives. */
async function unlessReconnected<Result>(broker: Broker, answer: Promise<Result>): Promise<Result> {
  const back = Promise.withResolvers<never>()
  const stop = broker.onConnection((isConnected) => {
    if (isConnected) back.reject(reconnected)
  })
  try {
    return await Promise.race([answer, back.promise])
  } finally {
    stop()
    answer.catch(() => {})
  }
}
