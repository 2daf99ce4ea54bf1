/** The jobs of a session on an agent: how they arrive, begin, end, and go back to the driver. */

import type { TaskReport } from '../../../backends/backend.ts'
import type { TaskSpec } from '../../../tasks/spec.ts'
import { unpackJobs } from '../../wire/job-batches.ts'
import type { HeldJob, JobReference, Message, SentJob, WireJob } from '../../wire/messages.ts'
import type { AgentOutbox } from './agent-outbox.ts'
import type { AgentReports } from './agent-reports.ts'
import type { AgentInstruction, SpecRequest, Unready } from './agent-stimuli.ts'
import { HeldAttempt, type HeldAttempts, toHeldJob } from './held-attempts.ts'
import type { KnownDriver } from './known-driver.ts'

export interface AgentJobsOptions {
  /** Identifies the session and the backend of its driver. */
  readonly sessionId: string
  readonly out: AgentInstruction[]
  readonly held: HeldAttempts
  readonly driver: KnownDriver
  readonly outbox: AgentOutbox
  readonly reports: AgentReports
}

type Returnable = SentJob & { readonly driverStart: number }

export class AgentJobs {
  /** Whether jobs that arrive go back at once. */
  isRefusing = false
  readonly #options: AgentJobsOptions
  readonly #out: AgentInstruction[]
  readonly #held: HeldAttempts
  /** Jobs whose specs are being loaded from the store. */
  readonly #arriving = new Map<string, SpecRequest>()
  /** Jobs that have just arrived. */
  #unprepared: HeldAttempt[] = []
  #sequence = 0

  constructor(options: AgentJobsOptions) {
    this.#options = options
    this.#out = options.out
    this.#held = options.held
  }

  /** The jobs that have neither ended nor been returned. */
  get heldJobs(): readonly HeldJob[] {
    const arriving = [...this.#arriving.values()].map((one) => ({ ...one, ...notBegun }))
    return [...this.#held.toArray(), ...arriving].map(toHeldJob)
  }

  /** Forgets jobs that have not begun: a later driver sends again what it needs. */
  forgetWaiting(nowMs: number): void {
    for (const one of this.#held.waiting) this.#held.delete(one, nowMs)
    this.#arriving.clear()
  }

  receive(message: Message<'jobs'>, nowMs: number): void {
    unpackJobs(
      message,
      (job, spec) => this.#hold(job, spec, nowMs),
      (job) => this.#holdOther(job, nowMs),
    )
    this.#prepare()
  }

  #holdOther(job: WireJob, nowMs: number): void {
    const { index, uid, attempt, spec, specObject } = job
    if (spec !== null) return this.#hold(job, spec, nowMs)
    if (specObject === null) return
    const driverStart = this.#options.driver.start
    const request: SpecRequest = { index, uid, attempt, driverStart, object: specObject }
    this.#arriving.set(uid, request)
    this.#out.push({ kind: 'load-spec', request })
  }

  /** A spec was loaded; `null` if the broker does not have it. */
  handleSpec(request: SpecRequest, spec: TaskSpec | null, nowMs: number): void {
    // The job may have been canceled, or a later driver may have attached.
    if (this.#arriving.get(request.uid) !== request) return
    this.#arriving.delete(request.uid)
    // If the store has lost the spec, the driver stores and sends it again.
    if (spec === null) this.#options.reports.addReturned(request, nowMs)
    else this.#hold(request, spec, nowMs)
    this.#prepare()
  }

  #hold(job: SentJob, spec: TaskSpec, nowMs: number): void {
    // The driver gave up an earlier attempt when it lost this agent, but the attempt runs on here.
    // It keeps its cores until it has ended.
    const older = this.#held.get(job.uid)
    if (older !== undefined) {
      this.#held.delete(older, nowMs)
      const reason = 'a later attempt has arrived'
      if (!older.isWaiting) this.#out.push({ kind: 'cancel', job: older, reason })
    }
    const driverStart = this.#options.driver.start
    if (this.isRefusing) {
      return this.#options.reports.addReturned({ ...job, driverStart }, nowMs)
    }
    const { sessionId } = this.#options
    const held = new HeldAttempt(sessionId, driverStart, job, spec, ++this.#sequence)
    this.#held.add(held, nowMs)
    this.#unprepared.push(held)
  }

  #prepare(): void {
    if (this.#unprepared.length === 0) return
    this.#out.push({ kind: 'prepare', jobs: this.#unprepared })
    this.#unprepared = []
  }

  enqueue(jobs: readonly HeldAttempt[], specs: readonly TaskSpec[]): void {
    for (const [at, held] of jobs.entries()) {
      if (!held.isHeld || !held.isWaiting || held.isQueued) continue
      held.spec = specs[at] ?? held.spec
      this.#held.enqueue(held)
    }
    this.#out.push({ kind: 'arrived' })
  }

  giveBack(jobs: readonly HeldAttempt[], why: Unready, nowMs: number): void {
    const waiting = jobs.filter(({ isHeld, isWaiting }) => isHeld && isWaiting)
    if (why.kind === 'failed') {
      const { error } = why
      for (const held of waiting) this.#finish(held, { kind: 'fail', error }, nowMs, nowMs)
      return
    }
    if (why.kind === 'lost-bundle') this.#options.reports.addLostBundle(why.digest, nowMs)
    for (const held of waiting) {
      this.#held.delete(held, nowMs)
      const notAllowed = why.kind === 'not-allowed' ? why.notAllowed : undefined
      this.#options.reports.addReturned(held, nowMs, notAllowed)
    }
    this.#out.push(changed)
  }

  begin(maxCores: number): void {
    const jobs = this.#held.takeFromQueue(maxCores)
    if (jobs.length > 0) this.#out.push({ kind: 'submit', jobs })
  }

  handleReport(job: HeldAttempt, report: TaskReport, nowMs: number): void {
    const atMs = report.at?.monotonicMs ?? nowMs
    if (report.kind !== 'start') {
      if (job.isHeld) this.#finish(job, report, atMs, nowMs)
      else this.#releaseCores(job)
    } else if (job.isHeld) {
      job.beganMs = atMs
      job.workerId = report.workerId
      job.files = report.facts ?? null
      this.#options.reports.addStart(job, nowMs)
    }
  }

  #finish(
    held: HeldAttempt,
    report: Exclude<TaskReport, { kind: 'start' }>,
    atMs: number,
    nowMs: number,
  ): void {
    this.#held.markEnded(held, atMs, nowMs)
    this.#options.outbox.add(held, report, atMs, this.#held.work, nowMs)
    this.#releaseCores(held)
  }

  #releaseCores(held: HeldAttempt): void {
    this.#held.releaseCores(held)
    this.#out.push(changed)
  }

  cancel(jobs: readonly JobReference[], reason: string, nowMs: number): void {
    for (const [uid, attempt, driverStart = this.#options.driver.start] of jobs) {
      const held = this.#held.get(uid)
      if (isNamed(held, attempt, driverStart)) this.#cancelHeld(held, reason, nowMs)
      const request = this.#arriving.get(uid)
      if (isNamed(request, attempt, driverStart)) this.#cancelArriving(request, reason, nowMs)
      const result = this.#options.outbox.large.cancel(uid, attempt, driverStart, reason)
      if (result !== null) this.#options.outbox.sendShort(result, null, nowMs)
    }
  }

  #cancelHeld(held: HeldAttempt, reason: string, nowMs: number): void {
    if (held.isWaiting) this.#finish(held, { kind: 'cancel', reason }, nowMs, nowMs)
    else this.#out.push({ kind: 'cancel', job: held, reason })
  }

  #cancelArriving(request: SpecRequest, reason: string, nowMs: number): void {
    this.#arriving.delete(request.uid)
    const report = { kind: 'cancel', reason } as const
    this.#options.outbox.add({ ...request, ...notBegun }, report, nowMs, this.#held.work, nowMs)
  }

  returnNamed(jobs: readonly JobReference[], nowMs: number): void {
    for (const [uid, attempt, driverStart = this.#options.driver.start] of jobs) {
      const held = this.#held.get(uid)
      if (isNamed(held, attempt, driverStart)) this.return([held], nowMs)
    }
  }

  /** Gives jobs that have not begun back to the driver. */
  return(jobs: readonly HeldAttempt[], nowMs: number): void {
    for (const held of jobs) {
      if (!held.isWaiting) continue
      this.#held.delete(held, nowMs)
      this.#options.reports.addReturned(held, nowMs)
    }
  }

  /** Ends all jobs that the backend does not have. */
  cancelWaiting(reason: string, nowMs: number): void {
    for (const held of this.#held.waiting) this.#cancelHeld(held, reason, nowMs)
    for (const request of this.#arriving.values()) this.#cancelArriving(request, reason, nowMs)
  }
}

const changed = { kind: 'changed' } as const
const notBegun = { beganMs: null, workerId: null }

const isNamed = <Job extends Returnable>(
  job: Job | undefined,
  attempt: number,
  driverStart: number,
): job is Job => job?.attempt === attempt && job.driverStart === driverStart
