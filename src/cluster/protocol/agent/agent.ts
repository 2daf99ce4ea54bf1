/**
 * The decisions of one session on an agent. `advance` takes what has happened and returns what is
 * to be done; it changes the state in place, and reuses the array that it returns.
 */

import type { ErrorRecord } from '../../../foundation/error-record.ts'
import type { Moment } from '../../../tasks/lifecycle.ts'
import { decode, encode } from '../../wire/codec.ts'
import type { Header } from '../../wire/envelope.ts'
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
    this.#apply(stimulus, now, nowMs)
    if (this.isEnding) this.#ending.advance(nowMs)
    const dueMs = Math.min(this.#reports.dueMs, this.#outbox.dueMs)
    if (dueMs < this.#wakeMs) {
      this.#wakeMs = dueMs
      this.#out.push({ kind: 'wake', afterMs: Math.max(0, dueMs - nowMs) })
    }
    return this.#out
  }

  #apply(stimulus: AgentStimulus, now: Moment, nowMs: number): void {
    switch (stimulus.kind) {
      case 'report':
        return this.#jobs.handleReport(stimulus.job, stimulus.report, nowMs)
      case 'begin':
        return this.#begin(stimulus.maxCores, nowMs)
      case 'wake':
        return this.#wake(nowMs)
      case 'message':
        return this.#handleMessage(stimulus.header, stimulus.message, nowMs)
      case 'idle':
        return this.#handleIdle(stimulus.header, stimulus.message, nowMs)
      case 'beat':
        return this.#handleBeat(stimulus.header, stimulus.beat, nowMs)
      case 'unreadable-beat':
        return this.#handleUnreadableBeat(stimulus.reason, nowMs)
      case 'ready':
        return this.#jobs.enqueue(stimulus.jobs, stimulus.specs)
      case 'unready':
        return this.#jobs.giveBack(stimulus.jobs, stimulus.why, nowMs)
      case 'spec':
        return this.#jobs.handleSpec(stimulus.request, stimulus.spec, nowMs)
      case 'notice': {
        const { notice } = stimulus
        const held = notice.taskId === null ? undefined : this.held.get(notice.taskId)
        return this.#reports.addEvent(notice, held, now)
      }
      case 'withdrawn':
        return this.#handleWithdrawn(stimulus.jobs, nowMs)
      case 'attach':
        return this.#attach(stimulus.attach, nowMs)
      case 'tick':
        return this.#tick(nowMs)
      case 'link':
        return this.#handleLink(stimulus.isUp, nowMs)
      case 'drain':
        this.#isDraining = true
        this.#jobs.isRefusing = true
        return this.#withdraw()
      case 'end':
        return this.#end(stimulus.reason, stimulus.keepsResults, nowMs)
      case 'released':
        this.#outbox.flush(nowMs)
        this.#reports.sendEvents(nowMs)
        return this.#ending.handleReleased(nowMs)
      case 'limit-wait':
        return this.#ending.limitWait(nowMs)
      case 'drop':
        return this.#outbox.close()
      default:
        return this.#handleStore(stimulus, nowMs)
    }
  }

  #handleStore(
    stimulus: Exclude<AgentStimulus, { kind: Exclude<AgentStimulus['kind'], StoreKind> }>,
    nowMs: number,
  ): void {
    switch (stimulus.kind) {
      case 'appended':
        return this.#outbox.handleAppended(stimulus.number, stimulus.connection, nowMs)
      case 'append-refused': {
        const { number, connection, error, isFull } = stimulus
        return this.#outbox.handleRefusal(number, connection, error, isFull)
      }
      case 'stream':
        if (this.isEnding) this.#ending.handleStream(stimulus.isOurs, nowMs)
        return this.#outbox.handleStream(stimulus.isOurs, stimulus.created)
      case 'room':
        return this.#outbox.handleRoom(stimulus.isMade)
      case 'put':
        return this.#outbox.handlePut(stimulus.id, stimulus.name, nowMs)
      case 'unputable': {
        const result = this.#outbox.large.markUnputable(stimulus.id, stimulus.error)
        if (result !== null) this.#outbox.sendShort(result, null, nowMs)
        return
      }
      case 'store-problem':
        return this.#outbox.block(stimulus.error, stimulus.isFull)
    }
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

type StoreKind =
  | 'appended'
  | 'append-refused'
  | 'stream'
  | 'room'
  | 'put'
  | 'unputable'
  | 'store-problem'

const changed = { kind: 'changed' } as const
