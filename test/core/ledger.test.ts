import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { AnyTask, TaskReport } from '../../src/backends/backend.ts'
import { WorkerLostError } from '../../src/foundation/errors.ts'
import type { Entry } from '../../src/core/entry.ts'
import { Ledger } from '../../src/core/ledger.ts'
import { type LifecycleEmitter, nullEmitter } from '../../src/core/lifecycle-emitter.ts'
import { hasEnded } from '../../src/tasks/lifecycle.ts'
import { FakeBackend, FakeSession } from '../../src/testing/fake-backend.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { quick } from '../session/open-session.ts'
import { assertProperty } from '../property.ts'

/** A ledger whose events are a list of types for each task. */
function openLedger(listen: (type: string, entry: Entry) => void = () => {}) {
  let ended = 0
  const told = new Map<string, string[]>()
  const tell = (entry: Entry, type: string): void => {
    const { uid } = entry.task
    told.set(uid, [...(told.get(uid) ?? []), type])
    listen(type, entry)
  }
  const emitter: LifecycleEmitter = {
    ...nullEmitter,
    created: (entry) => tell(entry, 'TaskCreated'),
    changed: (entry) => void (entry.lifecycle.event !== null && tell(entry, entry.lifecycle.event)),
  }
  const clock = new ManualClock()
  const warnings: string[] = []
  const ledger = new Ledger({
    clock,
    log: { warn: (code) => void warnings.push(code) },
    expectedBackend: () => null,
    sessionId: 's',
    workDir: null,
    limits: null,
    onEnded: () => ended++,
    onAttemptEnded() {},
  })
  ledger.emitter.use(emitter)
  const backend = new FakeBackend()
  const connection = backend.connect({
    report: (job, report) => ledger.record(job, report),
    notice() {},
  })
  const submit = (...tasks: AnyTask[]): void => {
    const entries = tasks.map((task) => {
      ledger.claim(task)
      return ledger.open(task, { backend, connection })
    })
    ledger.submit(entries)
  }
  return {
    ledger,
    backend,
    clock,
    submit,
    warnings,
    ended: () => ended,
    told: (task: AnyTask) => told.get(task.uid) ?? [],
  }
}

const order = new RegExp(
  '^TaskCreated TaskSubmitted TaskQueued (tutti\\.TaskAttempt )*(TaskStarted ' +
    '(tutti\\.TaskAttempt (tutti\\.AttemptStarted )?)*)?(TaskCompleted|TaskFailed|TaskCanceled)$',
)

type Step =
  | { readonly do: 'report'; readonly attempt: number; readonly report: TaskReport }
  | { readonly do: 'cancel' }
  | { readonly do: 'wait'; readonly ms: number }

const report = fc.constantFrom<TaskReport>(
  { kind: 'start', workerId: 'w', nodeId: 'n' },
  { kind: 'complete', value: 1 },
  { kind: 'fail', error: new Error('no') },
  { kind: 'fail', error: new WorkerLostError('gone') },
  { kind: 'cancel', reason: 'backend' },
)
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({ do: fc.constant('report' as const), attempt: fc.nat(4), report }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('cancel' as const) }) },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant('wait' as const), ms: fc.integer({ max: 500 }) }),
  },
)

describe('any sequence of reports', () => {
  it('ledger: any reports give one canonical event sequence, one end and one outcome', () => {
    assertProperty(
      fc.property(fc.array(step, { maxLength: 25 }), fc.nat(4), (steps, retries) => {
        const { ledger, backend, clock, submit, told, ended } = openLedger()
        const task = quick({ retries })
        submit(task)
        let changes = 0
        let reports = 0
        for (const one of steps) {
          const before = JSON.stringify([task.state, told(task), task.error?.message])
          if (one.do === 'cancel') ledger.requestCancel(task, 'asked')
          else if (one.do === 'wait') clock.stepWall(one.ms / 1000 - 0.2)
          else {
            const job = backend.jobs[Math.min(one.attempt, backend.jobs.length - 1)]
            const [late, lives] = [ledger.lateReports, backend.jobs.length]
            if (job !== undefined) ledger.record(job, one.report)
            reports++
            const isLate = ledger.lateReports > late
            if (!isLate) changes++
            const after = JSON.stringify([task.state, told(task), task.error?.message])
            // A late report changes nothing whatsoever.
            if (isLate) expect([after, backend.jobs.length]).toEqual([before, lives])
          }
        }
        expect(ledger.lateReports).toBe(reports - changes)
        ledger.cancelRest('over')
        expect(told(task).join(' ')).toMatch(order)
        expect(ended()).toBe(1)
        expect([hasEnded(task.state), ledger.openTasks]).toEqual([true, 0])
        expect(backend.jobs.length).toBeLessThanOrEqual(retries + 1)
      }),
      { numRuns: 500 },
    )
  })

  it('ledger: the first end of each of many tasks counts', async () => {
    const { ledger, backend, submit, told } = openLedger()
    const tasks = Array.from({ length: 50 }, () => quick())
    submit(...tasks)
    for (const job of backend.jobs) {
      ledger.record(job, { kind: 'complete', value: job.uid })
      ledger.record(job, { kind: 'complete', value: 'late' })
      ledger.record(job, { kind: 'fail', error: new Error('late') })
      ledger.record(job, { kind: 'cancel', reason: 'late' })
      ledger.record(job, { kind: 'start', workerId: 'late', nodeId: 'late' })
    }
    expect(ledger.lateReports).toBe(200)
    for (const task of tasks) {
      expect(await task).toBe(task.uid)
      expect(told(task).at(-1)).toBe('TaskCompleted')
    }
  })

  it('ledger: a report of an unknown job is counted as late', () => {
    const { ledger } = openLedger()
    const task = quick()
    const stray = new FakeSession().createJob(task)
    ledger.record(stray, { kind: 'complete', value: 1 })
    expect([ledger.lateReports, task.state]).toEqual([1, 'CREATED'])
  })

  it('ledger: a repeated start is late, and the worker stays the first one', () => {
    const workers: (string | null)[] = []
    const { ledger, backend, submit } = openLedger((_, entry) => void workers.push(entry.workerId))
    const task = quick()
    submit(task)
    const job = backend.jobOf(task)
    ledger.record(job, { kind: 'start', workerId: 'first', nodeId: 'n' })
    ledger.record(job, { kind: 'start', workerId: 'second', nodeId: 'm' })
    ledger.record(job, { kind: 'complete', value: 1 })
    expect(workers).toEqual([null, null, null, 'first', 'first'])
    expect(ledger.lateReports).toBe(1)
  })
})

describe('row 23: a cancel in the middle of a change', () => {
  const moments = [
    ['TaskCreated', 'TaskCreated TaskSubmitted TaskCanceled', 0],
    ['TaskSubmitted', 'TaskCreated TaskSubmitted TaskCanceled', 0],
    ['TaskQueued', 'TaskCreated TaskSubmitted TaskQueued TaskCanceled', 0],
  ] as const
  it.each(moments)(
    'row 23: a cancel during %s ends the task before the backend gets a job',
    (...row) => {
      const [when, expected, jobs] = row
      const answers: boolean[] = []
      const stage = openLedger((type, entry) => {
        if (type === when) answers.push(stage.ledger.requestCancel(entry.task, 'asked'))
      })
      const task = quick()
      stage.submit(task)
      expect(answers).toEqual([true])
      expect(stage.told(task).join(' ')).toBe(expected)
      expect([stage.backend.jobs.length, stage.backend.cancels.length]).toEqual([jobs, 0])
      expect(task.state).toBe('CANCELED')
    },
  )

  it('row 23: a cancel during tutti.TaskAttempt prevents the next attempt', () => {
    const stage = openLedger((type, entry) => {
      if (type === 'tutti.TaskAttempt') stage.ledger.requestCancel(entry.task, 'asked')
    })
    const task = quick({ retries: 3 })
    stage.submit(task)
    stage.backend.start(task)
    stage.backend.fail(task, new Error('once'))
    expect(stage.told(task).slice(3)).toEqual(['TaskStarted', 'tutti.TaskAttempt', 'TaskCanceled'])
    expect(stage.backend.jobs).toHaveLength(1)
  })

  it.each(['tutti.TaskAttempt', 'TaskCompleted'])(
    'ledger: a report that is repeated during %s is late',
    (when) => {
      const stage = openLedger((type, { task }) => {
        if (type !== when) return
        const [job = stage.backend.jobOf(task)] = stage.backend.jobs
        stage.ledger.record(job, { kind: 'fail', error: new WorkerLostError('again') })
      })
      const task = quick({ retries: 3 })
      stage.submit(task)
      if (when === 'tutti.TaskAttempt') stage.backend.fail(task, new Error('once'))
      stage.backend.complete(task, 'fine')
      const attempts = when === 'tutti.TaskAttempt' ? 2 : 1
      expect([stage.backend.jobs.length, stage.ledger.lateReports]).toEqual([attempts, 1])
      expect([task.state, task.returnValue]).toEqual(['DONE', 'fine'])
    },
  )

  it('row 23: a cancel during the terminal event is too late', () => {
    const answers: boolean[] = []
    const stage = openLedger((type, entry) => {
      if (type === 'TaskCompleted') answers.push(stage.ledger.requestCancel(entry.task, 'asked'))
    })
    const task = quick()
    stage.submit(task)
    stage.backend.complete(task)
    expect([answers, stage.backend.cancels, task.state]).toEqual([[false], [], 'DONE'])
  })

  const changes = [
    'TaskCreated',
    'TaskSubmitted',
    'TaskQueued',
    'TaskStarted',
    'tutti.TaskAttempt',
    'tutti.AttemptStarted',
    'TaskCompleted',
    'TaskFailed',
    'TaskCanceled',
  ]

  it.each(changes)('row 122: a task ends although telemetry throws at %s', async (failing) => {
    const stage = openLedger((type) => {
      if (type === failing) throw new Error('on purpose')
    })
    const { backend, ledger, submit, told, warnings } = stage
    const tasks = [quick({ retries: 1 }), quick(), quick()] as const
    const [retried, failed, canceled] = tasks
    submit(...tasks)
    const ends = Promise.allSettled(tasks)
    for (const task of tasks) backend.start(task)
    backend.fail(retried, new Error('try again'))
    backend.start(retried)
    backend.complete(retried, 1)
    backend.fail(failed, new Error('no'))
    backend.report(backend.jobOf(canceled), { kind: 'cancel', reason: 'asked' })
    expect((await ends).map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'rejected'])
    expect(tasks.map(({ state }) => state)).toEqual(['DONE', 'FAILED', 'CANCELED'])
    expect([stage.ended(), ledger.openTasks]).toEqual([3, 0])
    const thrown = tasks.flatMap((task) => told(task)).filter((type) => type === failing).length
    expect(thrown).toBeGreaterThan(0)
    expect(ledger.emitter.incompleteEvents).toBe(thrown)
    expect(warnings).toEqual(['TaskEventIncomplete'])
  })

  it('ledger: TaskQueued has its own time, after the subscribers of TaskSubmitted', () => {
    const times = new Map<string, number>()
    const stage = openLedger((type, { lifecycle }) => {
      times.set(type, lifecycle.time)
      // As with a slow listener.
      if (type === 'TaskSubmitted') stage.clock.stepWall(5)
    })
    stage.submit(quick())
    expect((times.get('TaskQueued') ?? 0) - (times.get('TaskSubmitted') ?? 0)).toBe(5)
  })
})
