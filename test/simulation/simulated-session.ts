/** The session of a simulation: follows the rules of the ledger, and keeps a record. */

import type {
  BackendListener,
  Connection,
  EarlierRun,
  Job,
  Notice,
  TaskReport,
} from '../../src/backends/backend.ts'
import { TaggedJob } from '../../src/backends/job-tag.ts'
import { TaskMoved } from '../../src/events/library-events.ts'
import { messageOf } from '../../src/foundation/errors.ts'
import type { FunctionSpec } from '../../src/tasks/spec.ts'
import type { Executions, TaskPlan } from './executions.ts'
import type { SeededRandom } from './seeded-random.ts'
import type { RecordedEnd, SimulatedRecord } from './simulated-record.ts'
import type { SimulatedProcess } from './virtual-time.ts'

export interface SimulatedSessionOptions {
  readonly plans: readonly TaskPlan[]
  /** Tasks are submitted in random parts within this time. */
  readonly submitMs: number
  readonly random: SeededRandom
  readonly record: SimulatedRecord
  readonly executions: Executions
  readonly trace: (text: string) => void
  readonly onViolation: (text: string) => void
  /** Whether both copies of a large value may be lost: that of the store and that of the agent. */
  readonly mayLoseValues: () => boolean
}

export interface SimulatedSessionParts {
  readonly process: SimulatedProcess
  readonly connection: Pick<Connection, 'submit' | 'cancel' | 'recorded'>
  /** The start of the agent with this name, if it is there. */
  readonly findStart: (name: string) => number | undefined
  /** Called when all tasks have ended and are recorded. */
  readonly onDone: () => void
}

export const sessionId = 'simulated'
const flushMs = [2, 20] as const
const discoveryWaitMs = 250

class SimulatedJob extends TaggedJob implements Job {
  readonly sessionId = sessionId
  readonly uid: string
  readonly attempt: number
  readonly isRetry: boolean
  readonly spec: FunctionSpec

  constructor({ uid, priority, inputBytes }: TaskPlan, attempt: number, isRetry: boolean) {
    super()
    this.uid = uid
    this.attempt = attempt
    this.isRetry = isRetry
    this.spec = {
      kind: 'function',
      executable: 'simulate',
      priority,
      timeoutSeconds: null,
      resources: { cores: 1, gpus: 0, memoryMb: 0, ranks: 1 },
      workDir: null,
      definition: { module: 'file:///simulated.js', name: 'simulate' },
      args: [' '.repeat(inputBytes)],
    }
  }
}

interface OpenTask {
  readonly plan: TaskPlan
  job: SimulatedJob
  attempt: number
  firstAttempt: number
  /** The node on which the attempt has begun; `null` if it has not. */
  startedOn: string | null
  isCanceled: boolean
}

/** A line of the record. `job` is set if it ends an attempt. */
interface Line {
  readonly job: Job | null
  readonly apply: () => void
}

export class SimulatedSession {
  readonly listener: BackendListener = {
    report: (job, report) => this.#handleReport(job, report),
    notice: (notice) => this.#handleNotice(notice),
  }
  /** What the record of earlier drivers says; `null` without a record. */
  readonly earlier: EarlierRun | null
  readonly #options: SimulatedSessionOptions
  readonly #open = new Map<string, OpenTask>()
  readonly #unsubmitted: TaskPlan[]
  #parts: SimulatedSessionParts | null = null
  #lines: Line[] = []
  #isFlushing = false
  #flushed: (() => void)[] = []

  constructor(options: SimulatedSessionOptions) {
    const { plans, record } = options
    this.#options = options
    const nodes = Array.from(record.nodes, ([nodeId, start]) => ({ nodeId, start }))
    this.earlier = record.isStarted ? { nodes } : null
    record.isStarted = true
    this.#unsubmitted = plans.filter(({ uid }) => record.of(uid).end === null)
  }

  /** Begins to submit tasks. */
  start(parts: SimulatedSessionParts): void {
    this.#parts = parts
    parts.process.clock.after(discoveryWaitMs, () => this.#submitSome())
  }

  get #connected(): SimulatedSessionParts {
    if (this.#parts === null) throw new Error('the session has not started')
    return this.#parts
  }

  get #process(): SimulatedProcess {
    return this.#connected.process
  }

  get #session(): SimulatedSessionParts['connection'] {
    return this.#connected.connection
  }

  get openTasks(): readonly string[] {
    return [...this.#open.keys(), ...this.#unsubmitted.map(({ uid }) => uid)]
  }

  cancel(uid: string): void {
    this.#process.do(() => {
      const task = this.#open.get(uid)
      if (task === undefined || task.isCanceled) return
      task.isCanceled = true
      this.#options.trace(`${uid} is canceled`)
      this.#session.cancel(task.job, 'canceled by the simulation')
    })
  }

  #submitSome(): void {
    const { random, submitMs, record, plans } = this.#options
    const count = random.integer(1, this.#unsubmitted.length)
    const jobs: SimulatedJob[] = []
    for (const plan of this.#unsubmitted.splice(0, count)) {
      const attempt = Math.max(1, record.of(plan.uid).attempts)
      const job = new SimulatedJob(plan, attempt, false)
      const state = { startedOn: null, isCanceled: false }
      this.#open.set(plan.uid, { plan, job, attempt, firstAttempt: 1, ...state })
      jobs.push(job)
    }
    if (jobs.length > 0) this.#session.submit(jobs)
    if (this.#unsubmitted.length === 0) return this.#closeIfDone()
    const pauseMs = (submitMs * count) / plans.length
    this.#process.clock.after(random.between(0, 2 * pauseMs), () => this.#submitSome())
  }

  /** Writes a line about a node that has joined, or has left. */
  noteNode(name: string, start: number | null): void {
    const { nodes } = this.#options.record
    this.#write(null, () => (start === null ? nodes.delete(name) : nodes.set(name, start)))
  }

  /** Calls back when everything so far is in the record. */
  afterFlush(then: () => void): void {
    if (this.#lines.length === 0) then()
    else this.#flushed.push(then)
  }

  #handleNotice(notice: Notice): void {
    const { trace, executions, onViolation } = this.#options
    if (notice.kind === 'node-left') {
      trace(`${notice.nodeId} has left: ${notice.lost?.reason ?? 'it was drained'}`)
      this.noteNode(notice.nodeId, null)
    } else if (notice.kind === 'node-joined') {
      const { nodeId } = notice.node
      const start = this.#connected.findStart(nodeId)
      if (start !== undefined) this.noteNode(nodeId, start)
    } else if (notice.kind === 'event' && notice.type === TaskMoved) {
      const { tasks } = notice.fields as { readonly tasks: readonly string[] }
      trace(`moved: ${tasks.join(' ')}`)
      for (const uid of tasks) {
        executions.addReport(uid)
        if (this.#open.get(uid)?.startedOn !== notice.nodeId) continue
        onViolation(`${uid} moves from ${notice.nodeId}, although it has begun there`)
      }
    }
  }

  #handleReport(job: Job, report: TaskReport): void {
    const { trace, onViolation, record } = this.#options
    const task = this.#open.get(job.uid)
    trace(`${job.uid} attempt ${job.attempt}: ${describe(report)}`)
    if (task === undefined || task.job !== job) {
      return onViolation(`${job.uid}: attempt ${job.attempt} is reported after its end`)
    }
    const { continued } = report
    if (continued !== undefined && continued.number > task.attempt) {
      task.attempt = continued.number
      task.firstAttempt += continued.uncounted
    }
    if (report.kind === 'start') {
      if (task.startedOn !== null) onViolation(`${job.uid}: attempt ${job.attempt} starts twice`)
      task.startedOn = report.nodeId
      const { attempt } = task
      this.#write(null, () => {
        const recorded = record.of(job.uid)
        recorded.attempts = Math.max(recorded.attempts, attempt)
      })
    } else if (report.kind === 'complete') this.#handleValue(task, report.value)
    else if (report.kind === 'fail') this.#handleFailure(task, report)
    else this.#end(task, 'canceled')
  }

  #handleValue(task: OpenTask, value: unknown): void {
    const { executions, onViolation } = this.#options
    const { uid, valueBytes } = task.plan
    const { execution, filling } = value as { readonly execution: number; readonly filling: string }
    if (!executions.hasCompleted(uid, execution) || filling.length !== valueBytes) {
      onViolation(`${uid} ends with a value that no execution has returned`)
    }
    this.#end(task, task.isCanceled ? 'canceled' : 'done')
  }

  #handleFailure(task: OpenTask, report: Extract<TaskReport, { kind: 'fail' }>): void {
    const { executions, onViolation, record, mayLoseValues } = this.#options
    const { plan, job } = task
    const { uid, retries } = plan
    const message = messageOf(report.error)
    const code = (report.error as { readonly code?: string }).code ?? ''
    const isLostValue = code === 'ResultLostError' && mayLoseValues()
    if (code !== 'NodeLostError' && !isLostValue && report.isThrown !== true) {
      onViolation(`${uid} fails with ${code}: ${message}`)
    }
    executions.addReport(uid)
    if (task.isCanceled) return this.#end(task, 'canceled')
    const next = task.attempt + 1
    const mayRetry = report.isFinal !== true && task.attempt - task.firstAttempt < retries
    if (!mayRetry) return this.#end(task, 'failed', message)
    this.#write(job, () => {
      const recorded = record.of(uid)
      recorded.failures.add(message)
      recorded.attempts = Math.max(recorded.attempts, next)
    })
    task.attempt = next
    task.startedOn = null
    task.job = new SimulatedJob(plan, next, true)
    this.#session.submit([task.job])
  }

  #end(task: OpenTask, end: RecordedEnd, failure: string | null = null): void {
    const { record, onViolation } = this.#options
    const { plan, job } = task
    this.#open.delete(plan.uid)
    this.#write(job, () => {
      const recorded = record.of(plan.uid)
      if (recorded.end !== null) onViolation(`${plan.uid} ends twice: ${recorded.end}, ${end}`)
      recorded.end = end
      if (failure !== null) recorded.failures.add(failure)
    })
  }

  #write(job: Job | null, apply: () => void): void {
    this.#lines.push({ job, apply })
    if (this.#isFlushing) return
    this.#isFlushing = true
    const { random } = this.#options
    this.#process.clock.after(random.between(...flushMs), () => this.#flush())
  }

  #flush(): void {
    const { record, executions } = this.#options
    const lines = this.#lines
    this.#lines = []
    this.#isFlushing = false
    if (record.isDiskFull) {
      record.lostLines += lines.length
      // A later driver does not know what these lines said, and their results are not kept for it.
      for (const { job } of lines) if (job !== null) executions.addReport(job.uid)
    } else {
      for (const { apply } of lines) apply()
      const jobs = lines.map(({ job }) => job).filter((job) => job !== null)
      if (jobs.length > 0) this.#session.recorded?.(jobs)
    }
    for (const resolve of this.#flushed.splice(0)) resolve()
    this.#closeIfDone()
  }

  #closeIfDone(): void {
    if (this.#open.size > 0 || this.#unsubmitted.length > 0 || this.#lines.length > 0) return
    this.#connected.onDone()
  }
}

function describe(report: TaskReport): string {
  const continued = report.continued === undefined ? '' : ` as ${report.continued.number}`
  if (report.kind === 'start') return `starts on ${report.nodeId}${continued}`
  if (report.kind === 'fail') return `fails: ${messageOf(report.error)}${continued}`
  return `${report.kind}${continued}`
}
