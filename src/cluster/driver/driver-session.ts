/** One session's use of the cluster: claims it, attaches to agents, sends jobs, watches. */

import {
  type BackendListener,
  type Connection,
  type Job,
  toEventNotice,
} from '../../backends/backend.ts'
import { TaskMoved } from '../../events/library-events.ts'
import type { Clock } from '../../foundation/clock.ts'
import { BackendError, messageOf } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import type { Broker } from '../broker/broker.ts'
import { deriveKeys, type Keys, newEpoch, seal } from '../wire/envelope.ts'
import { encodeJobs, encodeLargeJob, payloadLimit } from '../wire/job-batches.ts'
import type { AgentReport, Attach, Attached, Beat } from '../wire/messages.ts'
import { type SessionSubjects, sessionSubjects } from '../wire/subjects.ts'
import type { AgentDirectory, KnownAgent } from './agent-directory.ts'
import { AgentLink } from './agent-link.ts'
import type { DriverJob } from './agent-link.ts'
import { DriverJobs } from './driver-jobs.ts'
import { EarlierRun } from './earlier-run.ts'
import { EndReceiver } from './end-receiver.ts'
import { expectNoOwner, noteUsedAgent, readUsedAgents, silenceMs } from './session-owner.ts'
import { lostReport, NoAgentWatch } from './unhappy-ends.ts'

export interface DriverSessionOptions {
  readonly sessionId: string
  readonly listener: BackendListener
  readonly broker: Broker
  readonly directory: AgentDirectory
  readonly token: string
  readonly clock: Clock
  readonly log: Log
  readonly agentTimeoutSeconds: number
  readonly ownerTtlSeconds: number
  readonly resultTtlSeconds: number
}

const tickMs = 500
const requestMs = 5000
/** A start is reported sooner than this. */
const recallMs = 400

export class DriverSession implements Connection {
  readonly #options: DriverSessionOptions
  readonly #keys: Keys
  readonly #subjects: SessionSubjects
  /** Its start: a later one supersedes it at every agent. */
  readonly #epoch: number
  readonly #jobs: DriverJobs
  readonly #agents = new Map<string, AgentLink>()
  readonly #earlier = new EarlierRun()
  readonly #ends: EndReceiver
  readonly #noAgents: NoAgentWatch
  readonly #unsubscribe: (() => void)[] = []
  #isReady = false
  #isPumpDue = false
  #failure: Error | null = null
  #refusedMessages = 0
  #cancelTick: () => void = () => {}
  #releasing: Promise<void> | null = null

  constructor(options: DriverSessionOptions) {
    const { token, sessionId, listener, clock, broker } = options
    this.#options = options
    this.#epoch = newEpoch(clock)
    this.#keys = deriveKeys(token, sessionId)
    this.#subjects = sessionSubjects(sessionId)
    this.#jobs = new DriverJobs(listener, clock)
    this.#noAgents = new NoAgentWatch(this.#jobs, broker.url, options.agentTimeoutSeconds)
    this.#ends = new EndReceiver({
      key: this.#keys.toDriver,
      subjects: this.#subjects,
      store: broker.store,
      jobs: this.#jobs,
      earlier: this.#earlier,
      agents: this.#agents,
      onEarlier: () => this.#continueWaiting(),
      onRefused: (reason) => this.#refuseMessage(reason),
    })
    void this.#start()
  }

  submit(jobs: readonly Job[]): void {
    for (const job of jobs) {
      const one = this.#jobs.add(job)
      if (this.#releasing !== null) {
        this.#jobs.end(one, { kind: 'cancel', reason: 'backend closed' }, null)
      } else if (this.#failure !== null) {
        this.#jobs.end(one, { kind: 'fail', error: this.#failure }, null)
      } else if (!this.#isReady || !this.#continueEarlier(one)) this.#jobs.placement.push(one)
    }
    this.#pumpSoon()
  }

  cancel(job: Job, reason: string): void {
    const one = this.#jobs.findOwn(job)
    if (one === null || one.cancelReason !== null) return
    one.cancelReason = reason
    if (one.agent === null) {
      this.#jobs.placement.remove(one)
      this.#jobs.end(one, { kind: 'cancel', reason }, null)
    } else one.agent.cancel([one.uid, one.wireAttempt], reason)
  }

  recorded(jobs: readonly Job[]): void {
    this.#jobs.recorded.recorded(jobs.length)
  }

  release(reason: string): Promise<void> {
    this.#releasing ??= this.#releaseOnce(reason)
    return this.#releasing
  }

  agentJoined(agent: KnownAgent): void {
    void this.#attach(agent)
  }

  agentDraining({ announcement }: KnownAgent): void {
    this.#jobs.placement.setUsable(announcement.name, false)
  }

  agentLost({ announcement }: KnownAgent, reason: string): void {
    const link = this.#agents.get(announcement.name)
    if (link?.epoch === announcement.epoch) void this.#lose(link, reason)
  }

  /** Claims the session, reads what an earlier start of it left, and attaches to the agents. */
  async #start(): Promise<void> {
    const { broker, directory, sessionId, resultTtlSeconds } = this.#options
    const { stream, allEnds, allUp, owner, used } = this.#subjects
    try {
      await expectNoOwner(broker, owner, sessionId)
      this.#unsubscribe.push(
        broker.subscribe(owner, (message) => message.respond(new Uint8Array())),
        broker.subscribe(allEnds, ({ subject, data }) => {
          this.#ends.take(subject, data)
          this.#pumpSoon()
        }),
        broker.subscribe(allUp, ({ subject, data }) => this.#takeUp(subject, data)),
        broker.onConnection((isConnected) => {
          if (isConnected) for (const agent of this.#agents.values()) agent.resend()
        }),
      )
      const isNew = await broker.store.openStream(stream, [allEnds, used], resultTtlSeconds)
      this.#unsubscribe.push(directory.listen(this))
      if (!isNew) {
        await this.#ends.readStream(allEnds)
        const names = await readUsedAgents(broker, this.#subjects, this.#keys)
        await Promise.all(names.map((name) => directory.locate(name)))
      }
      await Promise.all(directory.agents.map((agent) => this.#attach(agent)))
      this.#isReady = true
      this.#continueWaiting()
      this.#tick()
      this.#pumpSoon()
    } catch (error) {
      this.#fail(error as Error)
    }
  }

  async #attach(agent: KnownAgent): Promise<void> {
    const { name, epoch, facts, state } = agent.announcement
    if (this.#agents.has(name) || state !== 'ready' || this.#releasing !== null) return
    const { directory, broker, clock } = this.#options
    const isFirst = !this.#ends.hasUsed(epoch)
    const link: AgentLink = new AgentLink({
      agent,
      link: newEpoch(clock),
      keys: this.#keys,
      subjects: this.#subjects,
      broker,
      clock,
      onReport: (report) => this.#takeReport(link, report),
      onRefused: (reason) => this.#refuseMessage(reason),
    })
    this.#agents.set(name, link)
    try {
      if (isFirst) await noteUsedAgent(broker, this.#subjects, this.#keys, name)
      const request = this.#toAttach(link)
      const answer = (await directory.request(name, request, requestMs)) as Attached
      if (answer.kind === 'refused') throw new BackendError(answer.message, { code: answer.code })
      if (answer.epoch !== epoch || this.#agents.get(name) !== link) return
      link.attached(this.#ends.use(epoch), answer, isFirst)
      this.#jobs.placement.addNode(name, facts, answer.offer)
      // What an agent that was lost comes back with runs elsewhere by now.
      if (isFirst) this.#earlier.addHeld(link, answer.held)
      else for (const { uid, attempt } of answer.held) link.cancel([uid, attempt], 'it has moved')
      if (this.#isReady) this.#continueWaiting()
      this.#pumpSoon()
    } catch (error) {
      if (this.#agents.get(name) === link) this.#agents.delete(name)
      if (error instanceof BackendError && error.code === 'SessionInUseError') this.#fail(error)
      else this.#options.log.warn('AttachFailed', `agent "${name}": ${messageOf(error)}`)
    }
  }

  #toAttach({ link }: AgentLink): Attach {
    const { sessionId, ownerTtlSeconds, resultTtlSeconds } = this.#options
    const own = { sessionId, epoch: this.#epoch, folder: process.cwd() }
    return { kind: 'attach', link, ownerTtlSeconds, resultTtlSeconds, ...own }
  }

  #fail(error: Error): void {
    this.#failure = error
    for (const one of this.#jobs.placement.takeAll()) {
      this.#jobs.end(one, { kind: 'fail', error }, null)
    }
  }

  /** For jobs that were submitted before it was known what an earlier start left. */
  #continueWaiting(): void {
    if (this.#earlier.isEmpty || !this.#isReady) return
    for (const one of this.#jobs.all) {
      if (one.agent !== null || !this.#earlier.has(one.uid)) continue
      this.#jobs.placement.remove(one)
      if (!this.#continueEarlier(one)) this.#jobs.placement.push(one)
    }
  }

  /** Takes the end or the running attempt of an earlier start; `false` when the job must run. */
  #continueEarlier(one: DriverJob): boolean {
    if (this.#earlier.isEmpty) return false
    const jobs = this.#jobs
    const { end, adoption } = this.#earlier.take(one.uid, one.wireAttempt)
    if (end !== undefined) {
      // What was canceled with its driver has not ended for this one.
      const isOver = end.outcome.kind !== 'cancel'
      jobs.numberAfter(one, isOver ? end.attempt - 1 : end.attempt)
      if (isOver) void this.#ends.takeEnd(one, end, null, null)
      return isOver
    }
    if (adoption === undefined || !this.#agents.has(adoption.agent.name)) return false
    const { agent, held } = adoption
    jobs.numberAfter(one, held.attempt - 1)
    jobs.placement.book(agent.name, one)
    jobs.assign(one, agent)
    const { beganMs, workerId } = held
    if (beganMs !== null && workerId !== null) jobs.reportStart(one, agent, beganMs, workerId)
    return true
  }

  #pumpSoon(): void {
    if (this.#isPumpDue || !this.#isReady) return
    this.#isPumpDue = true
    this.#options.clock.nextTurn(() => {
      this.#isPumpDue = false
      if (this.#failure === null && this.#releasing === null) this.#pump()
    })
  }

  #pump(): void {
    const limitBytes = payloadLimit(this.#options.broker.maxPayload)
    for (const [name, jobs] of this.#jobs.placement.assign()) {
      const agent = this.#agents.get(name)
      if (agent === undefined) continue
      for (const one of jobs) this.#jobs.assign(one, agent)
      const { batches, large, unsendable } = encodeJobs(jobs, limitBytes)
      for (const { payload } of batches) agent.send(payload)
      for (const { job, spec } of large) void this.#sendLarge(agent, job, spec)
      for (const { job, error } of unsendable) this.#jobs.end(job, { kind: 'fail', error }, null)
    }
  }

  async #sendLarge(agent: AgentLink, one: DriverJob, spec: Buffer): Promise<void> {
    const object = `${one.uid}/${one.wireAttempt}/spec`
    try {
      await this.#options.broker.store.putObject(this.#subjects.stream, object, spec)
      if (one.agent === agent) agent.send(encodeLargeJob(one, object))
    } catch (error) {
      if (one.agent === agent) this.#jobs.end(one, { kind: 'fail', error }, null)
    }
  }

  #takeUp(subject: string, data: Uint8Array): void {
    for (const agent of this.#agents.values()) {
      if (this.#subjects.upFrom(agent.name) === subject) return agent.receive(subject, data)
    }
  }

  #takeReport(agent: AgentLink, report: AgentReport): void {
    const jobs = this.#jobs
    jobs.placement.setOffer(agent.name, report.offer)
    agent.endMessages = report.endMessages
    for (const { uid, attempt, atMs, workerId } of report.starts) {
      const one = jobs.find(uid, attempt)
      if (one?.agent === agent) jobs.reportStart(one, agent, atMs, workerId)
    }
    const returned = report.returned.map(([uid, attempt]) => jobs.find(uid, attempt))
    jobs.placeAgain(returned.filter((one) => one?.agent === agent).filter((one) => one !== null))
    this.#pumpSoon()
  }

  async #lose(link: AgentLink, reason: string): Promise<void> {
    const { listener, log } = this.#options
    const { name } = link
    this.#jobs.placement.setUsable(name, false)
    // Ends that it told before it was lost, if this side was not connected then.
    await this.#ends.readStream(this.#subjects.endsOf(name)).catch((error: unknown) => {
      log.warn('StreamUnreadable', `ends of "${name}": ${messageOf(error)}`)
    })
    if (this.#agents.get(name) !== link) return
    this.#agents.delete(name)
    this.#earlier.forget(link)
    const jobs = link.jobs.toArray()
    const [begun, moved] = [
      jobs.filter((one) => one.isStarted),
      jobs.filter((one) => !one.isStarted),
    ]
    const tasks = begun.map(({ uid }) => uid)
    const isDrained = link.agent.announcement.state === 'gone' && jobs.length === 0
    listener.notice({
      kind: 'node-left',
      nodeId: name,
      ...(isDrained ? {} : { lost: { reason, tasks } }),
    })
    if (moved.length > 0) {
      const fields = { count: moved.length, tasks: moved.map(({ uid }) => uid) }
      listener.notice(toEventNotice(TaskMoved, fields, { nodeId: name }))
    }
    this.#jobs.placeAgain(moved)
    for (const one of begun) this.#jobs.end(one, lostReport(one, name, reason), null)
    this.#jobs.placement.removeNode(name)
    this.#pumpSoon()
  }

  #tick(): void {
    const { clock } = this.#options
    this.#cancelTick = clock.after(tickMs, () => this.#tick(), { background: true })
    const nowMs = clock.monotonicMs()
    this.#beat()
    for (const link of this.#agents.values()) {
      const isHeard = nowMs - link.agent.heardMs < silenceMs
      const isReady = link.agent.announcement.state === 'ready'
      this.#jobs.placement.setUsable(link.name, isHeard && isReady)
      link.tick()
      // After a connection was down the agent has sent more than has come.
      if (link.isMissingEnds) {
        this.#ends.readStream(this.#subjects.endsOf(link.name)).catch(() => {
          // Tried again at the next tick.
        })
      }
    }
    this.#recallWaiting(nowMs)
    this.#noAgents.failUnplaceable(nowMs)
    this.#pumpSoon()
  }

  #beat(): void {
    const { beat: subject } = this.#subjects
    const beat: Beat = { kind: 'beat', hasWaiting: this.#jobs.placement.waiting > 0 }
    const header = { epoch: this.#epoch, number: 0, acknowledged: 0 }
    this.#options.broker.publish(subject, seal(this.#keys.toAgent, subject, header, beat))
  }

  /** Takes back what waits at a busy node while another one is idle, such as a new one. */
  #recallWaiting(nowMs: number): void {
    const { placement } = this.#jobs
    let free = placement.waiting > 0 ? 0 : placement.freeCores
    for (const link of this.#agents.values()) {
      const count = Math.min(free, placement.waitingAt(link.name))
      if (count === 0) continue
      free -= link.recall(count, nowMs - recallMs)
    }
  }

  #refuseMessage(reason: string): void {
    if (this.#refusedMessages++ > 0) return
    const text = `a message of an agent was refused: ${reason}; further ones are counted`
    this.#options.log.warn('MessageRefused', text)
  }

  async #releaseOnce(reason: string): Promise<void> {
    const { broker, directory, sessionId } = this.#options
    const cancel = { kind: 'cancel', reason } as const
    for (const one of this.#jobs.placement.takeAll()) this.#jobs.end(one, cancel, null)
    const detach = { kind: 'detach', sessionId, epoch: this.#epoch, reason } as const
    await Promise.allSettled(
      Array.from(this.#agents.keys(), (name) => directory.request(name, detach, requestMs)),
    )
    for (const one of this.#jobs.all) this.#jobs.end(one, cancel, null)
    this.#cancelTick()
    for (const unsubscribe of this.#unsubscribe) unsubscribe()
    await broker.store.remove(this.#subjects.stream).catch((error: unknown) => {
      this.#options.log.warn('StreamNotRemoved', messageOf(error))
    })
  }
}
