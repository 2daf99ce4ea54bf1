/** The agents that a session uses: attaches to them, and detects lost ones. */

import { type BackendListener, type SampledNode, toEventNotice } from '../../backends/backend.ts'
import { TaskMoved } from '../../events/library-events.ts'
import { sleep } from '../../foundation/clock.ts'
import { BackendError, messageOf } from '../../foundation/errors.ts'
import { retry } from '../../runtime/retry.ts'
import { type Broker, NoResponderError } from '../broker/broker.ts'
import { newEpoch } from '../wire/envelope.ts'
import {
  agentClosedReason,
  type AgentReport,
  type AgentStart,
  type Attach,
  type Detached,
  expectMessage,
  maxSilenceMs,
} from '../wire/messages.ts'
import type { AgentDirectory, DirectoryListener, KnownAgent } from './agent-directory.ts'
import { AgentLink } from './agent-link.ts'
import type { DriverJobs } from '../protocol/driver-jobs.ts'
import { EarlierAgents } from './earlier-agents.ts'
import type { EarlierRun } from '../protocol/earlier-run.ts'
import type { RemoteAgent } from '../protocol/remote-agent.ts'
import { type ResultReceiver, toLostReport, toLostAttempts } from './result-receiver.ts'
import { UsedAgents, type UsedAgentsOptions } from './used-agents.ts'

export interface SessionAgentsOptions extends UsedAgentsOptions {
  readonly directory: AgentDirectory
  readonly listener: BackendListener
  readonly jobs: DriverJobs
  readonly results: ResultReceiver
  readonly earlier: EarlierRun
  /** The agents and the links to them, by name. This class adds and removes both together. */
  readonly agents: Map<string, RemoteAgent>
  readonly links: Map<string, AgentLink>
  readonly lossSeconds: number
  readonly ownerTtlSeconds: number
  readonly agentTimeoutSeconds: number
  /** Called when an agent has become ready for jobs, or was lost together with its jobs. */
  readonly onChange: () => void
  readonly toNode: (agent: KnownAgent) => SampledNode
  readonly onReport: (agent: RemoteAgent, report: AgentReport) => void
  readonly onRefused: (reason: string) => void
  /** Called if a newer driver of the session uses an agent, or after an unexpected error. */
  readonly onFailed: (error: unknown) => void
}

const requestTimeoutMs = 5000
/** How many times to try to read a lost agent's results. The server may be restarting. */
const maxReadAttempts = 5
const readDelayMs = 200

export class SessionAgents implements DirectoryListener {
  readonly #options: SessionAgentsOptions
  readonly #links: Map<string, AgentLink>
  readonly #bySubject = new Map<string, AgentLink>()
  /** Pending attaches. Each resolves when the agent's results for an earlier start have arrived. */
  readonly #attaching = new Map<string, Promise<void>>()
  readonly #reading = new Set<AgentLink>()
  readonly used: UsedAgents
  readonly earlier: EarlierAgents
  /** By agent: the last logged reason why attaching failed. */
  readonly #problems = new Map<string, string>()
  /** Whether the session is claimed. Before that, agents are not attached to. */
  #isClaimed = false
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
      reportRestart: (name, reason) => this.#reportLeft(name, reason, []),
      attachTimeoutMs: options.lossSeconds * 1000 + 2 * requestTimeoutMs,
    })
  }

  agentJoined(agent: KnownAgent): void {
    if (this.#isClaimed) this.#attach(agent)
  }

  agentDraining({ announcement }: KnownAgent): void {
    this.#options.jobs.placement.setUsable(announcement.name, false)
  }

  agentLost({ announcement }: KnownAgent, reason: string): void {
    const { name, epoch, state } = announcement
    const link = this.#links.get(name)
    if (link?.agent.epoch === epoch) this.#startRemoval(link, reason)
    else if (link === undefined) {
      // The agent had joined, but this session has no link to it.
      this.#reportLeft(name, state === 'gone' ? null : reason, [])
      this.used.noteLost({ name, epoch }, []).catch(this.#options.onFailed)
    }
  }

  /**
   * Attaches to all known agents, with retries. Resolves when their results for an earlier start
   * have arrived, or the agents are lost. First called when the session has been claimed, then at
   * every tick.
   */
  async attachAll(): Promise<void> {
    this.#isClaimed = true
    for (const agent of this.#options.directory.agents) this.#attach(agent)
    await Promise.all(this.#attaching.values())
  }

  #hasAttached({ name, epoch }: AgentStart): boolean {
    const link = this.#links.get(name)
    return link?.agent.epoch === epoch && link.agent.isAttached && !this.#attaching.has(name)
  }

  receive(subject: string, data: Uint8Array): void {
    this.#bySubject.get(subject)?.receive(subject, data)
  }

  reconnected(): void {
    for (const link of this.#links.values()) link.resend()
    this.used.reconnected()
    this.#restoreNotes()
  }

  #restoreNotes(): void {
    const listAttached = (): RemoteAgent[] =>
      [...this.#options.agents.values()].filter(({ isAttached }) => isAttached)
    this.used.restoreNotes(listAttached).catch(() => {
      // `tick` restores missing notes again.
    })
  }

  tick(nowMs: number): void {
    for (const link of this.#links.values()) this.#watch(link, nowMs)
    this.attachAll().catch(this.#options.onFailed)
    this.#restoreNotes()
    this.used.tick(nowMs)
  }

  /**
   * Stops using all agents, including those of an earlier start. Resolves with `false` if a later
   * start uses them.
   */
  async detach(reason: string): Promise<boolean> {
    this.close()
    const names = new Set(this.#links.keys())
    for (const { name } of this.earlier.undecided) names.add(name)
    const answers = await Promise.all(
      // An attached agent may be lost before it answers, for example if its batch job was canceled.
      // This is not logged.
      Array.from(names, (name) => detachAgent(name, reason, this.#links.has(name), this.#options)),
    )
    return !answers.some((answer) => answer?.isSuperseded)
  }

  /** Stops using all agents without notifying them. */
  close(): void {
    this.#isClosed = true
    for (const link of this.#links.values()) link.ignoreEvents()
    this.used.close()
  }

  #watch(link: AgentLink, nowMs: number): void {
    // A lost agent gets no jobs, even if it has just sent a message.
    const { agent, known } = link
    if (agent.isLost) return
    const { jobs, directory } = this.#options
    const { announcement, lastHeardMs } = known
    const isHeard = nowMs - lastHeardMs < maxSilenceMs
    jobs.placement.setUsable(agent.name, isHeard && announcement.state === 'ready')
    link.tick()
    const lossMs = this.#options.lossSeconds * 1000
    // Detects an agent that answers pings but sends no messages for this session.
    const silentMs = lastHeardMs - Math.max(link.lastHeardMs, directory.receivingSinceMs)
    if (agent.isAttached && silentMs > lossMs) {
      return this.#startRemoval(link, 'it has given up the session')
    }
    // After a disconnect, messages with results may be missing.
    if (!agent.results.isMissing() || this.#reading.has(link)) return
    this.#reading.add(link)
    this.#readMissing(link)
      .finally(() => this.#reading.delete(link))
      .catch(this.#options.onFailed)
  }

  async #readMissing(link: AgentLink): Promise<boolean> {
    const { results, subjects, broker } = this.#options
    await results.readStream(subjects.agentResults(link.agent.name)).catch(() => {
      // The stream may be gone. This is retried at the next tick.
    })
    return broker.isConnected && link.requestMissing()
  }

  #attach(known: KnownAgent): void {
    const { name, state } = known.announcement
    if (state === 'gone') return
    if (state === 'draining' && !this.earlier.has(known.announcement)) return
    if (this.#links.has(name) || this.#isClosed) return
    const done = (): void => {
      if (this.#attaching.get(name) === attaching) this.#attaching.delete(name)
    }
    const attaching = this.#attachTo(known).catch(this.#options.onFailed).finally(done)
    this.#attaching.set(name, attaching)
  }

  async #attachTo(known: KnownAgent): Promise<void> {
    const { name, epoch } = known.announcement
    const { directory, results, jobs, earlier } = this.#options
    const link = this.#addLink(known)
    const { agent } = link
    try {
      await this.used.add(agent)
      const challenged = await directory.request(name, challenge, requestTimeoutMs)
      const request = this.#toAttach(link, expectMessage(challenged, 'challenged').nonce)
      const attached = await directory.request(name, request, requestTimeoutMs)
      const answer = expectMessage(attached, 'attached', 'refused')
      if (answer.kind === 'refused') throw new BackendError(answer.message, { code: answer.code })
      if (this.#links.get(name) !== link) return
      if (answer.epoch !== epoch) throw new Error('it was started again')
      const isFirst = !results.hasUsedEpoch(answer.endsEpoch)
      const { endsEpoch } = answer
      link.markAttached(
        results.acceptEpoch(endsEpoch),
        answer,
        isFirst,
        earlier.findUnread(endsEpoch),
      )
      if (isFirst) await this.#readEarlier(link)
      if (!this.#isUsed(link)) return
      this.#problems.delete(name)
      jobs.addAgent(known.announcement, answer.offer)
      earlier.markFound(agent)
      // If this is not the first attach, the agent had been lost, and the jobs that it still holds
      // have moved to other agents.
      if (isFirst) earlier.addHeld(agent, answer.held)
      else for (const { uid, attempt } of answer.held) agent.cancel([uid, attempt], 'it has moved')
      agent.hasReportedEarlier = true
      this.#options.onChange()
    } catch (error) {
      // `#removeLost` removes the link of a lost agent, and reports the loss.
      if (!agent.isLost) this.#removeLink(link)
      if (error instanceof BackendError && error.code === 'SessionInUseError') {
        this.#options.onFailed(error)
      } else if (!agent.isLost) this.#reportProblem(name, messageOf(error))
    }
  }

  /**
   * Reads the results for an earlier start before any job is sent. Otherwise finished tasks would
   * run a second time.
   */
  async #readEarlier(link: AgentLink): Promise<void> {
    this.#reading.add(link)
    const { results } = link.agent
    while (results.isMissingEarlier && this.#isUsed(link)) {
      await this.#readMissing(link)
      if (results.isMissingEarlier) await sleep(this.#options.clock, readDelayMs)
    }
    this.#reading.delete(link)
  }

  #isUsed(link: AgentLink): boolean {
    return !this.#isClosed && !link.agent.isLost && this.#links.get(link.agent.name) === link
  }

  /** Logs a reason only when it changes, because attaching is retried every half second. */
  #reportProblem(name: string, reason: string): void {
    if (this.#problems.get(name) === reason || this.#isClosed) return
    this.#problems.set(name, reason)
    this.#options.log.warn('AttachFailed', `agent "${name}": ${reason}; it is tried again`)
  }

  #addLink(known: KnownAgent): AgentLink {
    const { agents, keys, subjects, broker, clock, onReport, onRefused } = this.#options
    const link: AgentLink = new AgentLink({
      known,
      link: newEpoch(),
      keys: keys(),
      subjects,
      broker,
      clock,
      onReport: (report) => onReport(link.agent, report),
      // Until the agent is attached, it may sign its messages for an earlier run.
      onRefused: (reason) => link.agent.isAttached && onRefused(reason),
    })
    const { name } = link.agent
    agents.set(name, link.agent)
    this.#links.set(name, link)
    this.#bySubject.set(subjects.fromAgent(name), link)
    return link
  }

  #removeLink({ agent: { name } }: AgentLink): void {
    this.#options.agents.delete(name)
    this.#links.delete(name)
    this.#bySubject.delete(this.#options.subjects.fromAgent(name))
  }

  #toAttach({ link }: AgentLink, nonce: number): Attach {
    const { use, ownerTtlSeconds, resultTtlSeconds, agentTimeoutSeconds } = this.#options
    const times = { ownerTtlSeconds, resultTtlSeconds, agentTimeoutSeconds }
    const start = { epoch: this.#options.epoch(), run: this.#options.run() }
    return { kind: 'attach', nonce, link, ...times, ...use, ...start, folder: process.cwd() }
  }

  /** Reads results that a lost agent stored while this driver was disconnected. */
  async #readLastResults(name: string): Promise<void> {
    const { results, subjects, clock, log } = this.#options
    const policy = { delayMs: readDelayMs, maxAttempts: maxReadAttempts }
    const read = (): Promise<void> => results.readStream(subjects.agentResults(name))
    try {
      await retry(policy, read, { clock, mayRetry: () => !this.#isClosed })
    } catch (error) {
      // After `close` this is not logged, because the session removes its stream.
      const text = `results of agent "${name}" cannot be read: ${messageOf(error)}`
      if (!this.#isClosed) log.warn('StreamUnreadable', text)
    }
  }

  #startRemoval(link: AgentLink, reason: string): void {
    this.#removeLost(link, reason).catch(this.#options.onFailed)
  }

  async #removeLost(link: AgentLink, reason: string): Promise<void> {
    const { jobs, listener, earlier } = this.#options
    const { agent } = link
    const { name } = agent
    if (agent.isLost) return
    agent.isLost = true
    jobs.placement.setUsable(name, false)
    await this.#readLastResults(name)
    link.ignoreEvents()
    this.#removeLink(link)
    // This comes before any report, because the session submits the next attempt during a report.
    jobs.placement.removeNode(name)
    const lostEarlier = earlier.removeAgent(agent, reason)
    const unbegun = earlier.findUnbegun(agent)
    const { begun, moved } = jobs.divideLost(agent)
    const hasLeft = agent.announcement.state === 'gone' && begun.length + moved.length === 0
    const leaving = agent.abandoned.length > 0 ? agentClosedReason : null
    const tasks = [...agent.abandoned, ...begun.map(({ uid }) => uid)]
    this.#reportLeft(name, hasLeft ? leaving : reason, tasks)
    if (moved.length > 0) {
      const fields = { count: moved.length, tasks: moved.map(({ uid }) => uid) }
      listener.notice(toEventNotice(TaskMoved, fields, { nodeId: name }))
    }
    // Copies the attempt numbers that this agent knows, because `move` changes them.
    const ungrouped = moved.filter(({ group }) => group === null)
    const movedAttempts = ungrouped.map(({ uid, wireAttempt }) => [uid, wireAttempt] as const)
    // Lost attempts are noted before they are reported, so that a later start does not repeat them.
    const lost = [...lostEarlier, ...toLostAttempts(begun, name, reason)]
    // The agent may have begun attempts of an earlier start that it has not listed.
    const isUnknown = !agent.hasReportedEarlier && this.earlier.has(agent)
    const state = isUnknown ? 'missing' : 'left'
    const noted = this.used.noteLost(agent, lost, [...unbegun, ...movedAttempts], state)
    jobs.move(moved)
    jobs.detachLost(begun, name)
    this.#options.onChange()
    await noted
    for (const one of begun) {
      if (jobs.has(one)) jobs.end(one, toLostReport(one, name, reason), null)
    }
  }

  /** Reports that a node has left. `reason` is `null` if it left normally. */
  #reportLeft(nodeId: string, reason: string | null, tasks: readonly string[]): void {
    const { listener, directory, toNode } = this.#options
    const lost = reason === null ? {} : { lost: { reason, tasks } }
    listener.notice({ kind: 'node-left', nodeId, ...lost })
    // A restarted agent joins before the exit of its predecessor is reported, so its join is
    // reported again.
    const next = directory.agents.find(({ announcement }) => announcement.name === nodeId)
    if (next !== undefined) listener.notice({ kind: 'node-joined', node: toNode(next) })
  }
}

const challenge = { kind: 'challenge' } as const

const answerTimeoutMs = 5000
const retryDelayMs = 200
const reconnectedError = new Error('the connection was down')

/**
 * Resolves when the agent holds no jobs of the session, or with `null` if it does not answer.
 * Repeats the request after a reconnect.
 */
async function detachAgent(
  name: string,
  reason: string,
  isUsed: boolean,
  options: SessionAgentsOptions,
): Promise<Detached | null> {
  const { directory, use, run, epoch, broker, clock, log, ownerTtlSeconds } = options
  const request = { kind: 'detach', ...use, run: run(), epoch: epoch(), reason } as const
  const ask = async (): Promise<Detached> => {
    const answer = directory.request(name, request, answerTimeoutMs)
    return expectMessage(await rejectOnReconnect(broker, answer), 'detached')
  }
  let mayReturnUntilMs = 0
  const mayRetry = (error: unknown): boolean => {
    const nowMs = clock.monotonicMs()
    // The request was lost with the connection. The agent may reconnect a little later.
    if (error === reconnectedError) mayReturnUntilMs = nowMs + maxSilenceMs
    return (
      error === reconnectedError || (error instanceof NoResponderError && nowMs < mayReturnUntilMs)
    )
  }
  try {
    return await retry({ delayMs: retryDelayMs }, ask, { clock, mayRetry })
  } catch (error) {
    // Agents that this start uses are not logged here, because the session reports their loss.
    if (error instanceof NoResponderError || isUsed) return null
    const consequence = `tasks of session "${use.sessionId}" there end after ${ownerTtlSeconds} s`
    log.warn('AgentNotDetached', `agent "${name}" does not answer; ${consequence}`)
    return null
  }
}

async function rejectOnReconnect<Result>(broker: Broker, answer: Promise<Result>): Promise<Result> {
  const reconnected = Promise.withResolvers<never>()
  const stop = broker.onConnection((isConnected) => {
    if (isConnected) reconnected.reject(reconnectedError)
  })
  try {
    return await Promise.race([answer, reconnected.promise])
  } finally {
    stop()
    answer.catch(() => {})
  }
}
