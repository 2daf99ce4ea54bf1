/** The agents that a session uses: reconciles with them, and decides what their loss means. */

import { toEventNotice } from '../../../backends/backend.ts'
import { NodeLost, TaskMoved } from '../../../events/library-events.ts'
import {
  agentClosedReason,
  type AgentReport,
  type AgentStart,
  maxSilenceMs,
  type Message,
  type ResultsMessage,
} from '../../wire/messages.ts'
import type { DriverInstruction, LinkMessage } from './driver-interface.ts'
import type { DriverJobs } from './driver-jobs.ts'
import { Link } from '../link.ts'
import { type ReceivedResults, toLostReport, toLostResult } from './received-results.ts'
import { type AnnouncedAgent, RemoteAgent, toReference } from './remote-agent.ts'

export interface SessionAgentsOptions {
  readonly jobs: DriverJobs
  readonly results: ReceivedResults
  readonly agents: Map<string, RemoteAgent>
  readonly lossSeconds: number
  readonly instruct: (instruction: DriverInstruction) => void
  /** Called when jobs may continue or be placed. */
  readonly onChange: () => void
  readonly onReport: (agent: RemoteAgent, report: AgentReport) => void
}

/** Longer cancel reasons are cut for the agent. The session keeps the whole reason. */
const maxReasonLength = 1000

export class SessionAgents {
  readonly #options: SessionAgentsOptions
  readonly #agents: Map<string, RemoteAgent>
  readonly #instruct: (instruction: DriverInstruction) => void
  /** By link: the agents whose answers are awaited. */
  readonly #attaching = new Map<number, RemoteAgent>()
  /** By agent: the last reason why attaching failed. */
  readonly #problems = new Map<string, string>()
  /** The agents of an earlier start that have not answered, and until when they are awaited. */
  #awaited: readonly AgentStart[] = []
  #awaitedUntilMs = -Infinity
  readonly #canceling = new Set<RemoteAgent>()
  #links = 0
  #isClaimed = false
  #isClosed = false

  constructor(options: SessionAgentsOptions) {
    this.#options = options
    this.#agents = options.agents
    this.#instruct = options.instruct
  }

  /** The session is owned: from now on, agents are attached to. `earlier`: those of the record. */
  claim(links: number, earlier: readonly AgentStart[], nowMs: number): void {
    this.#isClaimed = true
    this.#links = links
    this.#awaited = earlier
    this.#awaitedUntilMs = nowMs + this.#options.lossSeconds * 1000 + maxSilenceMs
    for (const agent of this.#agents.values()) this.#reconcile(agent, nowMs)
  }

  join(known: AnnouncedAgent, nowMs: number): void {
    const agent = new RemoteAgent(known, () => this.#addCanceling(agent))
    const earlier = this.#agents.get(agent.name)
    if (earlier !== undefined) this.#lose(earlier, restartedReason)
    // The last results of the earlier start may still be being read.
    this.#options.jobs.placement.removeNode(agent.name)
    this.#agents.set(agent.name, agent)
    if (this.#isClaimed) this.#reconcile(agent, nowMs)
  }

  drain({ name, start }: AgentStart): void {
    if (this.#agents.get(name)?.start !== start) return
    this.#options.jobs.placement.setUsable(name, false)
  }

  loseStart({ name, start }: AgentStart, reason: string): void {
    const agent = this.#agents.get(name)
    if (agent?.start === start) this.#lose(agent, reason)
  }

  close(): void {
    this.#isClosed = true
  }

  /** Every link may have lost messages. */
  breakLinks(nowMs: number): void {
    for (const agent of this.#agents.values()) {
      agent.link?.break()
      this.#reconcile(agent, nowMs)
    }
  }

  #addCanceling(agent: RemoteAgent): void {
    if (this.#canceling.size === 0) this.#instruct({ kind: 'next turn' })
    this.#canceling.add(agent)
  }

  /** All cancels of a turn of the event loop are sent together. */
  sendCancels(): void {
    const canceling = [...this.#canceling]
    this.#canceling.clear()
    for (const agent of canceling) {
      if (agent.state === 'lost') continue
      if (agent.state === 'new' || agent.state === 'attaching') this.#canceling.add(agent)
      else {
        for (const [whole, jobs] of agent.takeCancels()) {
          const reason = whole.slice(0, maxReasonLength)
          this.#instruct({ kind: 'send', agent, message: { kind: 'cancel', jobs, reason } })
        }
      }
    }
  }

  /** Whether an agent that is there cannot get jobs yet. */
  get isAttaching(): boolean {
    for (const { isPlaced, state, announcement } of this.#agents.values()) {
      if (!isPlaced && state !== 'lost' && announcement.state === 'ready') return true
    }
    return false
  }

  /** Whether agents of an earlier start may still answer. Ends the wait for those that do not. */
  isAwaiting(nowMs: number): boolean {
    this.#awaited = this.#awaited.filter(({ name, start }) => {
      const agent = this.#agents.get(name)
      return agent?.start !== start || !agent.hasReportedEarlier
    })
    if (this.#awaited.length === 0) return false
    const isGone = ({ name, start }: AgentStart): boolean => {
      const found = this.#agents.get(name)
      return found !== undefined && found.start !== start
    }
    const isLate = nowMs >= this.#awaitedUntilMs
    for (const one of this.#awaited) if (isLate || isGone(one)) this.#reportMissing(one)
    this.#awaited = isLate ? [] : this.#awaited.filter((one) => !isGone(one))
    return this.#awaited.length > 0
  }

  #reportMissing(agent: AgentStart): void {
    const { name, start } = agent
    this.#options.results.returned.addMissing(agent)
    const found = this.#agents.get(name)
    const wasRestarted = found !== undefined && found.start !== start
    const reason = wasRestarted ? restartedReason : 'it was gone when the driver returned'
    if (wasRestarted) this.#instruct({ kind: 'report left', nodeId: name, reason, tasks: [] })
    else {
      const notice = toEventNotice(NodeLost, { reason, tasks: [] }, { nodeId: name })
      this.#instruct({ kind: 'notice', notice })
    }
  }

  tick(nowMs: number): void {
    for (const agent of this.#agents.values()) if (agent.state !== 'lost') this.#watch(agent, nowMs)
  }

  #watch(agent: RemoteAgent, nowMs: number): void {
    const { link, name, state, known, announcement } = agent
    const isHeard = nowMs - known.lastHeardMs < maxSilenceMs
    const isUsable = state === 'attached' && isHeard && announcement.state === 'ready'
    this.#options.jobs.placement.setUsable(name, isUsable)
    if (link === null || state === 'new' || state === 'attaching') {
      return this.#reconcile(agent, nowMs)
    }
    this.reportResults(agent)
    // Agents report at every tick. A silent one has given up the session or obeys another driver.
    const maxMs = Math.max(this.#options.lossSeconds * 1000, maxSilenceMs)
    if (nowMs - link.lastHeardMs >= maxMs) link.break()
    const idle = link.tick(nowMs)
    if (link.isBroken) this.#reconcile(agent, nowMs)
    else if (idle !== null) this.#instruct({ kind: 'send idle', agent, ...idle })
  }

  /** Tells the agent which of its results it need not keep. */
  reportResults(agent: RemoteAgent): void {
    const report = agent.results.takeReport()
    if (report === null) return
    this.#instruct({ kind: 'send', agent, message: { kind: 'recorded', ...report } })
  }

  /** Begins a new link: driver and agent compare what they have. */
  #reconcile(agent: RemoteAgent, nowMs: number): void {
    const { announcement, state, link, name } = agent
    if (!this.#isClaimed || this.#isClosed || state === 'lost') return
    if (link !== null && this.#attaching.get(link.id) === agent) return
    const isKept = agent.use !== 0 || this.#isAwaited(agent)
    if (announcement.state === 'gone' || (announcement.state === 'draining' && !isKept)) return
    if (link !== null && (state === 'resending' || state === 'attached')) {
      agent.applied = { link: link.id, number: link.received }
    }
    this.#options.jobs.placement.setUsable(name, false)
    const next = new Link(++this.#links, nowMs)
    agent.link = next
    agent.state = 'attaching'
    agent.early = []
    this.#attaching.set(next.id, agent)
    const { applied, use, results } = agent
    const { driverStart } = this.#options.jobs
    const request = { driverStart, link: next.id, applied, use, taken: results.arrived }
    this.#instruct({ kind: 'attach', agent, request })
  }

  #isAwaited({ name, start }: AgentStart): boolean {
    return this.#awaited.some((one) => one.name === name && one.start === start)
  }

  handleProblem(link: number, problem: string): void {
    const agent = this.#attaching.get(link)
    this.#attaching.delete(link)
    if (agent === undefined || agent.state === 'lost') return
    // It is tried again at the next tick.
    if (this.#problems.get(agent.name) === problem) return
    this.#problems.set(agent.name, problem)
    const text = `agent "${agent.name}": ${problem}; it is tried again`
    this.#warn('AttachFailed', text)
  }

  #warn(code: string, text: string): void {
    this.#instruct({ kind: 'warn', code, text })
  }

  handleAnswer(linkId: number, answer: Message<'attached'>, nowMs: number): void {
    const agent = this.#attaching.get(linkId)
    this.#attaching.delete(linkId)
    if (agent === undefined || agent.link?.id !== linkId || agent.state === 'lost') return
    if (answer.start !== agent.start) {
      agent.state = 'new'
      return
    }
    this.#problems.delete(agent.name)
    const isFirst = agent.use === 0
    if (!isFirst && agent.use !== answer.use) {
      // The agent has begun a new part of the session. Its earlier part is lost.
      this.#lose(agent, 'it has given up the session')
      return this.join(agent.known, nowMs)
    }
    agent.use = answer.use
    agent.offer = answer.offer
    agent.resent = answer.resent
    agent.state = 'resending'
    agent.results.repeatReport()
    if (isFirst) this.#instruct({ kind: 'flush', agent })
    this.#compareHeld(agent, answer)
    const early = agent.early
    agent.early = []
    for (const apply of early) apply()
    this.#finishResending(agent, nowMs)
  }

  #compareHeld(agent: RemoteAgent, { held }: Message<'attached'>): void {
    const { jobs, results } = this.#options
    const listed = new Set<unknown>()
    for (const one of held) {
      const { uid, attempt, driverStart, beganMs, workerId } = one
      const known = jobs.find(-1, uid, attempt, driverStart)
      if (known?.agent === agent) {
        listed.add(known)
        if (beganMs !== null && workerId !== null) {
          jobs.reportStart(known, agent, { beganMs, workerId }, jobs.readTime())
        }
        if (known.cancelReason !== null) agent.cancel(toReference(known), known.cancelReason)
      } else if (
        driverStart !== jobs.driverStart &&
        (!agent.hasReportedEarlier || results.returned.isHeld(agent, one))
      ) {
        results.returned.addHeld(agent, one)
      } else agent.cancel([uid, attempt, driverStart], 'it has moved')
    }
    this.sendCancels()
    agent.unlisted = agent.jobs.toArray().filter((one) => !listed.has(one) && !one.isUnsent)
  }

  /** The agent has repeated everything: what it neither lists nor has ended never reached it. */
  #finishResending(agent: RemoteAgent, nowMs: number): void {
    const { jobs } = this.#options
    if (agent.state !== 'resending' || (agent.link?.received ?? 0) < agent.resent) return
    agent.state = 'attached'
    const denied = agent.unlisted.filter((one) => one.agent === agent && !one.isEnding)
    agent.unlisted = []
    jobs.requeue(denied)
    this.#place(agent, nowMs)
    this.#options.onChange()
  }

  /** The record names the agent: a returned driver would miss it. */
  handleRecorded(agent: RemoteAgent, nowMs: number): void {
    agent.isRecorded = true
    this.#place(agent, nowMs)
    this.#options.onChange()
  }

  /** Lets the agent get jobs, once it has reported everything and is recorded. */
  #place(agent: RemoteAgent, nowMs: number): void {
    const { jobs, results } = this.#options
    const { name, announcement, known } = agent
    if (agent.state !== 'attached' || !agent.isRecorded) return
    if (agent.isPlaced) jobs.placement.setOffer(name, agent.offer)
    else {
      agent.isPlaced = true
      jobs.addAgent(announcement, agent.offer)
      results.returned.markFound(agent)
    }
    const isHeard = nowMs - known.lastHeardMs < maxSilenceMs
    jobs.placement.setUsable(name, isHeard && announcement.state === 'ready')
  }

  receive(name: string, { header, payload, size }: LinkMessage, nowMs: number): void {
    const agent = this.#agents.get(name)
    const link = agent?.link
    if (agent === undefined || link === null || link === undefined) return
    if (header.scope !== link.id || agent.state === 'lost') return
    if (agent.state === 'attaching') {
      agent.early.push(() => this.#apply(agent, link, { header, payload, size }, nowMs))
    } else this.#apply(agent, link, { header, payload, size }, nowMs)
  }

  #apply(agent: RemoteAgent, link: Link, message: LinkMessage, nowMs: number): void {
    const { header, payload, size } = message
    if (payload.kind === 'idle') link.receiveIdle(header, payload, nowMs)
    else if (link.receive(header, nowMs)) this.#handlePayload(agent, payload, size)
    // A broken link is replaced at the next tick.
    if (!link.isBroken) this.#finishResending(agent, nowMs)
  }

  #handlePayload(agent: RemoteAgent, payload: AgentReport | ResultsMessage, size: number): void {
    if (payload.kind === 'report') {
      this.#options.onReport(agent, payload)
      return
    }
    this.#options.results.addMessage(agent, payload, size)
    if (agent.results.isReportUrgent) this.reportResults(agent)
  }

  #lose(agent: RemoteAgent, reason: string): void {
    const { jobs } = this.#options
    if (agent.state === 'lost') return
    const wasUsed = agent.use !== 0 || agent.jobs.size > 0
    agent.state = 'lost'
    agent.early = []
    if (agent.link !== null) this.#attaching.delete(agent.link.id)
    jobs.placement.setUsable(agent.name, false)
    agent.lossReason = reason
    if (wasUsed && this.#isClaimed) this.#instruct({ kind: 'read results', agent })
    else this.finishLoss(agent)
  }

  /** Called when the last results of a lost agent were read: what has not ended by now is lost. */
  finishLoss(agent: RemoteAgent): void {
    const { jobs, results } = this.#options
    const { name, lossReason: reason } = agent
    if (this.#agents.get(name) === agent) {
      this.#agents.delete(name)
      // This comes before any report, because the session submits the next attempt during a report.
      jobs.placement.removeNode(name)
    }
    results.returned.removeAgent(agent, (held) => toLostResult(held, name, reason))
    const { begun, moved } = jobs.divideLost(agent)
    const hasLeft = agent.announcement.state === 'gone' && begun.length + moved.length === 0
    const leaving = agent.abandoned.length > 0 ? agentClosedReason : null
    const tasks = [...agent.abandoned, ...begun.map(({ uid }) => uid)]
    this.#instruct({ kind: 'report left', nodeId: name, reason: hasLeft ? leaving : reason, tasks })
    if (moved.length > 0) {
      const fields = { count: moved.length, tasks: moved.map(({ uid }) => uid) }
      const notice = toEventNotice(TaskMoved, fields, { nodeId: name })
      this.#instruct({ kind: 'notice', notice })
    }
    jobs.move(moved)
    jobs.detachLost(begun, name)
    for (const one of begun) jobs.end(one, toLostReport(one, name, reason), null)
    this.#options.onChange()
  }
}

const restartedReason = 'it was started again'
