/**
 * The decisions of one session on an agent. `advance` takes what has happened and returns what is
 * to be done; it changes the state in place, and reuses the array that it returns.
 */

import type { ErrorRecord } from '../../../foundation/error-record.ts'
import type { Moment } from '../../../tasks/lifecycle.ts'
import { decode, encode } from '../../wire/codec.ts'
import type { Header } from '../../wire/envelope.ts'
import type { Handlers } from '../../wire/forms.ts'
import type {
  AgentReport,
  Attach,
  DriverMessage,
  Heartbeat,
  JobReference,
  Message,
  Offer,
} from '../../wire/messages.ts'
import { AgentEnding } from './agent-ending.ts'
import { AgentJobs } from './agent-jobs.ts'
import { AgentOutbox } from './agent-outbox.ts'
import { AgentReports } from './agent-reports.ts'
import type { AgentInstruction, AgentStimulus } from './agent-stimuli.ts'
import { type HeldAttempt, HeldAttempts } from './held-attempts.ts'
import { KeptMessages } from './kept-messages.ts'
import { KnownDriver } from './known-driver.ts'

export interface AgentMachineOptions {
  /** Identifies the session and the backend of its driver. */
  readonly sessionId: string
  readonly agent: { readonly name: string; readonly start: number }
  /** Identifies this machine. */
  readonly use: number
  /** The largest payload of a message. */
  readonly limitBytes: () => number
  /** The agent's offer to the session. */
  readonly offer: (nowMs: number) => Offer
  readonly toRecord: (error: unknown) => ErrorRecord
}

export class AgentMachine {
  readonly held: HeldAttempts
  readonly driver: KnownDriver
  readonly #options: AgentMachineOptions
  readonly #out: AgentInstruction[] = []
  readonly #kept = new KeptMessages()
  readonly #outbox: AgentOutbox
  readonly #reports: AgentReports
  readonly #jobs: AgentJobs
  readonly #ending: AgentEnding
  #wakeMs = Infinity
  #isDraining = false
  /** What waits for the answer to `withdraw`. */
  #attaching: Attach | null = null
  #recalled: JobReference[] = []
  #isTrimming = false
  readonly #handlers: Handlers<AgentStimulus, [nowMs: number, now: Moment]> = {
    report: ({ job, report }, nowMs) => this.#jobs.handleReport(job, report, nowMs),
    begin: ({ maxCores }, nowMs) => this.#begin(maxCores, nowMs),
    wake: (_, nowMs) => this.#wake(nowMs),
    message: ({ header, message }, nowMs) => this.#handleMessage(header, message, nowMs),
    idle: ({ header, message }, nowMs) => this.#handleIdle(header, message, nowMs),
    beat: ({ header, beat }, nowMs) => this.#handleBeat(header, beat, nowMs),
    'unreadable-beat': ({ reason }, nowMs) => this.#handleUnreadableBeat(reason, nowMs),
    ready: ({ jobs, specs }) => this.#jobs.enqueue(jobs, specs),
    unready: ({ jobs, why }, nowMs) => this.#jobs.giveBack(jobs, why, nowMs),
    spec: ({ request, spec }, nowMs) => this.#jobs.handleSpec(request, spec, nowMs),
    notice: ({ notice }, _, now) => {
      const held = notice.taskId === null ? undefined : this.held.get(notice.taskId)
      this.#reports.addEvent(notice, held, now)
    },
    withdrawn: ({ jobs }, nowMs) => this.#handleWithdrawn(jobs, nowMs),
    attach: ({ attach }, nowMs) => this.#attach(attach, nowMs),
    tick: (_, nowMs) => this.#tick(nowMs),
    link: ({ isUp }, nowMs) => this.#handleLink(isUp, nowMs),
    drain: () => {
      this.#isDraining = true
      this.#jobs.isRefusing = true
      this.#withdraw()
    },
    end: ({ reason, keepsResults }, nowMs) => this.#end(reason, keepsResults, nowMs),
    released: (_, nowMs) => {
      this.#outbox.flush(nowMs)
      this.#reports.sendEvents(nowMs)
      this.#ending.handleReleased(nowMs)
    },
    'limit-wait': (_, nowMs) => this.#ending.limitWait(nowMs),
    drop: () => this.#outbox.close(),
    appended: ({ number, connection }, nowMs) =>
      this.#outbox.handleAppended(number, connection, nowMs),
    'append-refused': ({ number, connection, error, isFull }) =>
      this.#outbox.handleRefusal(number, connection, error, isFull),
    stream: ({ isOurs, created }, nowMs) => {
      if (this.isEnding) this.#ending.handleStream(isOurs, nowMs)
      this.#outbox.handleStream(isOurs, created)
    },
    room: ({ isMade }) => this.#outbox.handleRoom(isMade),
    put: ({ id, name }, nowMs) => this.#outbox.handlePut(id, name, nowMs),
    unputable: ({ id, error }, nowMs) => {
      const result = this.#outbox.large.markUnputable(id, error)
      if (result !== null) this.#outbox.sendShort(result, null, nowMs)
    },
    'store-problem': ({ error, isFull }) => this.#outbox.block(error, isFull),
  }

  constructor(options: AgentMachineOptions, nowMs: number) {
    const { agent, limitBytes, offer } = options
    const [out, kept] = [this.#out, this.#kept]
    this.#options = options
    this.held = new HeldAttempts(nowMs)
    this.driver = new KnownDriver(nowMs)
    const { driver } = this
    this.#outbox = new AgentOutbox({
      ...options,
      agent: agent.name,
      out,
      driver,
      kept,
      ahead: (atMs) => offer(atMs).ahead,
      onFlush: (atMs) => this.#reports.sendEvents(atMs),
    })
    this.#reports = new AgentReports({
      limitBytes,
      header: (atMs) => ({ offer: offer(atMs), needsRoom: this.#outbox.needsRoom }),
      driverStart: () => driver.start,
      unacknowledgedBytes: () => kept.eventBytes,
      send: (payload, hasEvents, atMs) => this.#send(payload, hasEvents, atMs),
      onDropped: (why) => out.push({ kind: 'dropped-event', why }),
    })
    const [outbox, reports] = [this.#outbox, this.#reports]
    this.#jobs = new AgentJobs({ ...options, out, held: this.held, driver, outbox, reports })
    this.#ending = new AgentEnding({ out, kept, driver, outbox })
  }

  /** Whether the session has jobs to begin. Only active sessions get a share of the node. */
  get isActive(): boolean {
    return this.held.queued > 0 || this.driver.hasWaiting
  }

  get isEnding(): boolean {
    return this.#ending.hasBegun
  }

  get agents(): number {
    return this.driver.agents
  }

  /** Whether the stream need not keep the message with this number of results. */
  isRecorded(number: number): boolean {
    return this.#kept.isRecorded(number)
  }

  advance(stimulus: AgentStimulus, now: Moment): readonly AgentInstruction[] {
    this.#out.length = 0
    if (this.#ending.isDone) return this.#out
    const { monotonicMs: nowMs } = now
    const handle: (one: never, nowMs: number, now: Moment) => void = this.#handlers[stimulus.kind]
    handle(stimulus as never, nowMs, now)
    if (this.isEnding) this.#ending.advance(nowMs)
    const dueMs = Math.min(this.#reports.dueMs, this.#outbox.dueMs)
    if (dueMs < this.#wakeMs) {
      this.#wakeMs = dueMs
      this.#out.push({ kind: 'wake', afterMs: Math.max(0, dueMs - nowMs) })
    }
    return this.#out
  }

  #wake(nowMs: number): void {
    // A timer may fire a little early.
    const dueMs = Math.max(nowMs, this.#wakeMs)
    this.#wakeMs = Infinity
    this.#reports.wake(dueMs, nowMs)
    if (this.#outbox.dueMs <= dueMs) this.#outbox.flush(nowMs)
  }

  #tick(nowMs: number): void {
    this.#sendIdle(nowMs)
    if (!this.driver.link.isBroken) this.#reports.send(nowMs)
    this.#outbox.tick()
    if (this.isEnding) return
    // If no attempt has ended recently, takes waiting attempts back from the backend: another node
    // may begin them sooner.
    this.#isTrimming = true
    if (this.held.work.isStalled(nowMs)) this.#withdraw()
    else this.#handleWithdrawn([], nowMs)
    const silentMs = nowMs - this.driver.lastHeardMs
    if (silentMs > this.driver.ownerTtlMs) this.#out.push({ kind: 'give-up' })
  }

  #handleLink(isUp: boolean, nowMs: number): void {
    this.driver.setConnected(isUp, nowMs)
    if (!isUp) return
    this.#outbox.handleConnected()
    this.#sendIdle(nowMs)
  }

  #send(payload: Buffer, hasEvents: boolean, nowMs: number): void {
    const { link, isConnected } = this.driver
    const header = link.nextHeader(nowMs)
    if (hasEvents) this.#kept.addEvents(link.id, header.number, payload)
    if (isConnected) this.#out.push({ kind: 'send', header, payload })
  }

  /** Sends an unnumbered message if one side may lack something. */
  #sendIdle(nowMs: number): void {
    const idle = this.driver.link.tick(nowMs)
    if (idle === null || !this.driver.isConnected) return
    this.#out.push({ kind: 'send', header: idle.header, payload: encode(idle.message) })
  }

  #attach(attach: Attach, nowMs: number): void {
    if (attach.driverStart === this.driver.start) return this.#reconcile(attach, nowMs)
    // Attempts that wait in the backend are forgotten with the others.
    this.#attaching = attach
    this.#withdraw()
  }

  /**
   * Answers with what the agent holds, and sends again what the driver lacks. Returned jobs and
   * starts are not repeated, because the answer tells them.
   */
  #reconcile(attach: Attach, nowMs: number): void {
    const { driver } = this
    const { start: sentByStart } = driver
    const isLater = attach.driverStart !== sentByStart
    this.#outbox.flush(nowMs)
    this.#reports.sendEvents(nowMs)
    this.#reports.reset()
    if (isLater) {
      this.#jobs.forgetWaiting(nowMs)
      this.#kept.resetTaken()
    } else this.#kept.acknowledgeEvents(attach.applied.link, attach.applied.number)
    driver.attach(attach, nowMs)
    const { use, agent, offer } = this.#options
    const at = this.#out.length
    const taken = attach.use === use && !isLater ? attach.taken : 0
    for (const { events, results } of this.#kept.takeResent(taken)) {
      if (results !== null) this.#outbox.resend(results, nowMs)
      else this.#reports.resend(decode(events.payload) as AgentReport, sentByStart, nowMs)
    }
    const answer = {
      kind: 'attached',
      start: agent.start,
      offer: offer(nowMs),
      held: [...this.#jobs.heldJobs, ...this.#outbox.large.heldJobs],
      use,
      resent: driver.link.sent,
    } as const
    // The driver needs the answer before the messages of the new link.
    this.#out.splice(at, 0, { kind: 'answer', answer })
    this.#out.push(changed)
  }

  #handleIdle(header: Header, message: Message<'idle'>, nowMs: number): void {
    const { link } = this.driver
    if (header.scope !== link.id) return
    const wasBroken = link.isBroken
    link.receiveIdle(header, message, nowMs)
    this.#kept.acknowledgeEvents(link.id, link.acknowledged)
    if (link.isBroken && !wasBroken) this.#sendIdle(nowMs)
  }

  #handleBeat(header: Header, beat: Heartbeat, nowMs: number): void {
    if (header.scope !== this.driver.start) return
    if (!this.driver.receiveBeat(header, beat, nowMs)) {
      this.#out.push({ kind: 'refused-message', reason: 'it was sent before' })
      return
    }
    this.held.work.hasDriverJobs = beat.hasWaiting
    if (beat.needsRoom) this.#outbox.makeRoom()
  }

  /** After a silence, the heartbeat may come from a new driver that has not attached yet. */
  #handleUnreadableBeat(reason: string, nowMs: number): void {
    if (!this.driver.isSilent(nowMs)) this.#out.push({ kind: 'refused-message', reason })
  }

  #handleMessage(header: Header, message: DriverMessage | null, nowMs: number): void {
    const { link } = this.driver
    if (header.scope !== link.id) return
    const wasBroken = link.isBroken
    const isNext = link.receive(header, nowMs)
    this.#kept.acknowledgeEvents(link.id, link.acknowledged)
    if (link.isBroken && !wasBroken) this.#sendIdle(nowMs)
    if (!isNext || message === null) return
    if (message.kind === 'jobs') this.#jobs.receive(message, nowMs)
    else if (message.kind === 'cancel') this.#jobs.cancel(message.jobs, message.reason, nowMs)
    else if (message.kind === 'recall') {
      this.#recalled.push(...message.jobs)
      this.#withdraw()
    } else if (message.kind === 'recorded') {
      this.#kept.markRecorded(message.through, message.taken, message.lost)
      this.#out.push(changed)
    } else this.#outbox.restore(message.number)
  }

  /** Submits queued jobs, but none while the driver is silent or results cannot be stored. */
  #begin(maxCores: number, nowMs: number): void {
    if (this.isEnding || this.#outbox.isBlocked || this.#kept.isFull) return
    if (!this.driver.isSilent(nowMs)) this.#jobs.begin(maxCores)
  }

  #withdraw(): void {
    this.#out.push({ kind: 'withdraw' })
  }

  /** Continues with jobs that the backend gave back before it began them. */
  #handleWithdrawn(jobs: readonly HeldAttempt[], nowMs: number): void {
    this.held.requeue(jobs)
    const attach = this.#attaching
    this.#attaching = null
    if (attach !== null) return this.#reconcile(attach, nowMs)
    if (this.#isDraining) this.#jobs.return(this.held.waiting, nowMs)
    this.#jobs.returnNamed(this.#recalled, nowMs)
    this.#recalled = []
    if (this.#isTrimming) {
      const { ahead } = this.#options.offer(nowMs)
      this.#jobs.return(this.held.findExcess(ahead, this.driver.placing, nowMs), nowMs)
    }
    this.#isTrimming = false
    this.#out.push(changed)
  }

  #end(reason: string, keepsResults: boolean, nowMs: number): void {
    if (this.isEnding) return
    this.#jobs.isRefusing = true
    this.#ending.begin(keepsResults)
    this.#jobs.cancelWaiting(reason, nowMs)
    this.#out.push({ kind: 'release', reason })
  }
}

const changed = { kind: 'changed' } as const
