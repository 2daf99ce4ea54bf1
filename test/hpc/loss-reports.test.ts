import { describe, expect, it } from 'vitest'
import type { Job, TaskReport } from '../../src/backends/backend.ts'
import { WorkerLostError } from '../../src/foundation/errors.ts'
import { ExecutableFailedError } from '../../src/foundation/task-errors.ts'
import type { AllocationState } from '../../src/hpc/allocation.ts'
import { LossReports } from '../../src/hpc/allocation-watch.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

const job = { uid: 'one' } as Job

/** An allocation whose state the test decides, and the reports about tasks on it. */
function reported() {
  const clock = new ManualClock()
  const running: AllocationState = { endsAt: null, lost: null, isEnding: false }
  const asked = { state: running, count: 0 }
  const told: TaskReport[] = []
  const listener = {
    report: (_: Job, report: TaskReport): void => void told.push(report),
    notice: () => {},
  }
  const allocation = {
    label: 'job 7',
    nodes: [],
    limitSeconds: null,
    hasThisProcess: false,
    state: () => {
      asked.count++
      return Promise.resolve(asked.state)
    },
    start: () => [],
    facts: {},
    startRanks: () => {
      throw new Error('no ranks')
    },
  }
  const reports = new LossReports(listener, allocation, clock, () => {})
  const fail = (error: Error): TaskReport => {
    const report: TaskReport = { kind: 'fail', error }
    reports.report(job, report)
    return report
  }
  const change = (state: Partial<AllocationState>): void => {
    asked.state = { ...running, ...state }
  }
  return { clock, asked, told, fail, change }
}

function ended(exitCode: number | null, signal: string | null): Error {
  return new ExecutableFailedError('sleep ended', { uid: 'one', exitCode, signal, stderr: '' })
}

const killed = [
  ['killed by SIGTERM', ended(null, 'SIGTERM')],
  ['killed by SIGKILL', ended(null, 'SIGKILL')],
  ['that a shell reports as killed', ended(143, null)],
  ['whose worker died', new WorkerLostError('the worker died')],
  ['whose node was lost', new WorkerLostError('the node', { code: 'NodeLostError' })],
] as const

describe('a task that fails while the job ends', () => {
  it.each(killed)('row 101: one %s ends CANCELED', async (_, error) => {
    const { clock, told, fail, change } = reported()
    fail(error)
    // The scheduler says so only after the processes of the job have died.
    await clock.advance(100)
    change({ isEnding: true, lost: 'COMPLETING' })
    await clock.advance(400)
    expect(told).toEqual([])
    change({ lost: 'CANCELLED' })
    await clock.advance(250)
    expect(told).toEqual([{ kind: 'cancel', reason: 'AllocationLostError: CANCELLED' }])
  })

  it('a task that fails by itself while the job ends is reported immediately', () => {
    const { asked, told, fail } = reported()
    const report = fail(ended(1, null))
    expect(told).toEqual([report])
    expect(asked.count).toBe(0)
  })
})

describe('a task that is killed while the job runs', () => {
  it('a task killed while the job runs fails normally, and one query serves many', async () => {
    const { clock, asked, told, fail } = reported()
    const reports = Array.from({ length: 100 }, () => fail(ended(null, 'SIGKILL')))
    await clock.advance(500)
    expect(told).toEqual(reports)
    expect(asked.count).toBe(1)
  })
})
