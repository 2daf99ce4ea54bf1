/** A small scheduler that drives a launcher pool and records its reports and notices. */

import { readdirSync, readFileSync } from 'node:fs'
import { afterAll, onTestFinished } from 'vitest'
import type { Job, Notice, TaskReport } from '../../../../src/backends/backend.ts'
import type { Batch, ExecutorListener } from '../../../../src/backends/local/executor.ts'
import {
  LauncherPool,
  type LauncherPoolOptions,
} from '../../../../src/backends/local/programs/launcher-pool.ts'
import { systemClock } from '../../../../src/foundation/clock.ts'
import { processLog } from '../../../../src/foundation/log.ts'
import { ComputeTask, type ExecutableOptions } from '../../../../src/tasks/compute-task.ts'

export type LastReport = Exclude<TaskReport, { kind: 'start' }>
export type StartReport = Extract<TaskReport, { kind: 'start' }>

/** One submitted program and what is to come of it. */
export interface Run {
  readonly job: Job
  readonly started: Promise<StartReport>
  readonly ended: Promise<LastReport>
}

export class PoolDriver implements ExecutorListener {
  readonly pool: LauncherPool
  readonly reports: { readonly job: Job; readonly report: TaskReport }[] = []
  readonly notices: Notice[] = []
  readonly givenBack: Job[] = []
  readonly finished: Batch[] = []
  assigned = 0
  readonly #queue: { job: Job; gpuIds: readonly number[] }[] = []
  readonly #waiting = new Map<
    Job,
    { started: PromiseWithResolvers<StartReport>; ended: PromiseWithResolvers<LastReport> }
  >()
  readonly #onNotice: (() => void)[] = []

  constructor(options: Partial<LauncherPoolOptions> = {}) {
    this.pool = new LauncherPool({
      maxProcesses: 4,
      nodeId: 'n',
      idPrefix: 'n',
      clock: systemClock,
      log: processLog,
      listener: this,
      ...options,
    })
  }

  submit(options: ExecutableOptions, gpuIds: readonly number[] = []): Run {
    const task = new ComputeTask(options)
    const job: Job = { sessionId: 's', uid: task.uid, attempt: 1, spec: task.spec }
    return this.submitJob(job, gpuIds)
  }

  submitJob(job: Job, gpuIds: readonly number[] = []): Run {
    const waiting = {
      started: Promise.withResolvers<StartReport>(),
      ended: Promise.withResolvers<LastReport>(),
    }
    this.#waiting.set(job, waiting)
    this.#queue.push({ job, gpuIds })
    this.#pump()
    return { job, started: waiting.started.promise, ended: waiting.ended.promise }
  }

  run(options: ExecutableOptions): Promise<LastReport> {
    return this.submit(options).ended
  }

  /** All reports of a job, in order. */
  reportsOf(job: Job): TaskReport[] {
    return this.reports.filter((each) => each.job === job).map(({ report }) => report)
  }

  /** Forgets what was recorded until now. */
  forget(): void {
    for (const list of [this.reports, this.notices, this.givenBack, this.finished]) list.length = 0
    this.assigned = 0
  }

  nextNotice(): Promise<void> {
    return new Promise((resolve) => this.#onNotice.push(resolve))
  }

  report(job: Job, report: TaskReport): void {
    this.reports.push({ job, report })
    const waiting = this.#waiting.get(job)
    if (report.kind === 'start') waiting?.started.resolve(report)
    else waiting?.ended.resolve(report)
  }

  resultDropped(): void {}

  notice(notice: Notice): void {
    this.notices.push(notice)
    for (const resolve of this.#onNotice.splice(0)) resolve()
  }

  requeue(jobs: readonly Job[]): void {
    this.givenBack.push(...jobs)
    this.#queue.unshift(...jobs.map((job) => ({ job, gpuIds: [] })))
    this.#pump()
  }

  finish(batch: Batch): void {
    this.finished.push(batch)
    this.#pump()
  }

  #pump(): void {
    while (this.pool.freeSlots > 0 && this.#queue.length > 0) {
      const next = this.#queue.shift()
      if (next === undefined) return
      this.assigned++
      this.pool.assign({ jobs: [next.job], gpuIds: next.gpuIds })
    }
  }
}

/** A driver whose pool is closed when the test is over. */
export function openPool(options: Partial<LauncherPoolOptions> = {}): PoolDriver {
  const driver = new PoolDriver(options)
  onTestFinished(() => driver.pool.close('the test is over'))
  return driver
}

/**
 * A driver for all tests of a group whose programs end with their test. Its launcher, which starts
 * with the first program, costs as much CPU time as a hundred programs.
 */
export function sharedPool(options: Partial<LauncherPoolOptions> = {}): () => PoolDriver {
  let driver: PoolDriver | null = null
  afterAll(() => driver?.pool.close('the tests are over'))
  return () => {
    driver ??= new PoolDriver(options)
    driver.forget()
    return driver
  }
}

export function expectCompleted(report: LastReport): {
  stdout: string
  stderr: string
  exitCode: number
} {
  if (report.kind === 'complete') return report.value as ReturnType<typeof expectCompleted>
  throw new Error(`expected a completion, got ${report.kind}`, { cause: errorOf(report) })
}

/** The error of a failure; a test that gets anything else fails. */
export function expectFailed(report: LastReport): Error & { code?: string; hint?: string } {
  if (report.kind === 'fail' && report.error instanceof Error) return report.error
  throw new Error(`expected a failure, got ${report.kind}`)
}

const errorOf = (report: LastReport): unknown => (report.kind === 'fail' ? report.error : report)

/** A process as `/proc` shows it. */
export interface ProcessEntry {
  readonly pid: number
  readonly parent: number
  readonly group: number
  readonly state: string
  readonly command: string
}

/** Every process of the machine, without zombies. */
export function processes(): ProcessEntry[] {
  return readdirSync('/proc').flatMap((name) => {
    if (!/^\d+$/.test(name)) return []
    try {
      const stat = readFileSync(`/proc/${name}/stat`, 'utf8')
      const command = readFileSync(`/proc/${name}/cmdline`, 'utf8').replaceAll('\0', ' ').trim()
      const [state = '', parent, group] = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
      if (state === 'Z' || state === 'X') return []
      return [{ pid: Number(name), parent: Number(parent), group: Number(group), state, command }]
    } catch {
      return []
    }
  })
}

/** The launcher processes of this process. */
export const launchersOf = (parent: number): ProcessEntry[] =>
  processes().filter((each) => each.parent === parent && /launcher\.[jt]s$/.test(each.command))
