import { describe, expect, it } from 'vitest'
import { makeEvent } from '../../src/events/make-event.ts'
import { TaskCreated, TaskStarted } from '../../src/events/vocabulary.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { FakeBackend, FakeSession } from '../../src/testing/fake-backend.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { RecordingListener, RecordingSink } from '../../src/testing/recorders.ts'

const jobOf = () => new FakeSession().createJob(new ComputeTask({ function: () => 1 }))

describe('FakeBackend', () => {
  it('FakeBackend keeps jobs and cancels until a test reports', () => {
    const [backend, listener] = [
      new FakeBackend({ name: 'f', model: 'm' }),
      new RecordingListener(),
    ]
    const connection = backend.connect(listener)
    const first = jobOf()
    const second = { ...first, attempt: 2 }
    connection.submit([first])
    connection.submit([second])
    connection.cancel(second, 'enough')
    expect(backend.jobs).toEqual([first, second])
    expect(backend.jobOf(first)).toBe(second)
    expect(backend.cancels).toEqual([{ job: second, reason: 'enough' }])
    expect(listener.jobs).toEqual([])
    backend.start(first)
    backend.complete(first, 7)
    expect(listener.of(second)).toEqual([
      { kind: 'start', workerId: 'f1', nodeId: 'fake-node' },
      { kind: 'complete', value: 7 },
    ])
    const notice = { kind: 'node-left', nodeId: 'n' } as const
    backend.notice(notice)
    expect(listener.notices).toEqual([notice])
    expect(() => backend.jobOf(jobOf())).toThrow(/was not submitted to f/)
  })

  it('FakeBackend cancels the open jobs of a released session, and all jobs on close', async () => {
    const backend = new FakeBackend()
    const [one, two] = [new RecordingListener(), new RecordingListener()]
    const [mine, theirs, late] = [jobOf(), jobOf(), jobOf()]
    const connection = backend.connect(one)
    connection.submit([mine])
    const submitted = backend.nextSubmission()
    const other = backend.connect(two)
    other.submit([theirs])
    await submitted
    await connection.release('done')
    expect([one.of(mine), two.of(theirs)]).toEqual([[{ kind: 'cancel', reason: 'done' }], []])
    const closing = backend.close()
    expect(backend.close()).toBe(closing)
    await closing
    other.submit([late])
    for (const job of [theirs, late]) {
      expect(two.of(job)).toEqual([{ kind: 'cancel', reason: 'backend closed' }])
    }
  })

  it('FakeBackend reports no second end of a job on release or close', async () => {
    const [backend, listener] = [new FakeBackend(), new RecordingListener()]
    const connection = backend.connect(listener)
    const [completed, failed] = [jobOf(), jobOf()]
    connection.submit([completed, failed])
    backend.complete(completed, 1)
    backend.fail(failed, 'broken')
    await connection.release('done')
    await backend.close()
    expect(listener.of(completed)).toEqual([{ kind: 'complete', value: 1 }])
    expect(listener.of(failed)).toEqual([{ kind: 'fail', error: 'broken' }])
  })

  it('FakeBackend takes more jobs at once than a call has arguments', () => {
    const backend = new FakeBackend()
    const job = jobOf()
    backend.connect(new RecordingListener()).submit(Array.from({ length: 300_000 }, () => job))
    expect(backend.jobs.length).toBe(300_000)
  })
})

describe('RecordingListener', () => {
  it('RecordingListener wakes whoever waits, once the condition holds', async () => {
    const listener = new RecordingListener()
    const [one, two] = [jobOf(), jobOf()]
    const heard: string[] = []
    const both = listener.ended([one, two]).then(() => heard.push('ended'))
    const started = listener.started(one).then(() => heard.push('started'))
    listener.report(one, { kind: 'start', workerId: 'w', nodeId: 'n' })
    await started
    listener.report(one, { kind: 'complete', value: 1 })
    await Promise.resolve()
    expect(heard).toEqual(['started'])
    listener.report(two, { kind: 'fail', error: 1 })
    await both
    await listener.ended([one, two])
    expect([listener.kindsOf(one), listener.hasEnded(two)]).toEqual([['start', 'complete'], true])
  })
})

describe('RecordingSink', () => {
  const base = { session_id: 's', backend: 'b' }

  it('RecordingSink gives events in order, and reports too few and too many', async () => {
    const sink = new RecordingSink()
    const waiting = sink.waitFor(({ event_type }) => event_type === 'TaskStarted')
    const [created, started] = [makeEvent(TaskCreated, base), makeEvent(TaskStarted, base)]
    sink.emit(created)
    sink.emit(started)
    expect(await waiting).toBe(started)
    expect(await sink.waitFor(() => true)).toBe(created)
    expect(() => sink.take('TaskStarted')).toThrow(
      'Expected TaskStarted as event 0, got TaskCreated',
    )
    expect(sink.take('TaskCreated')).toBe(created)
    expect(() => sink.expectNothingMore()).toThrow('Expected nothing more, got TaskStarted')
    sink.take('TaskStarted')
    sink.expectNothingMore()
    expect(() => sink.take('TaskStarted')).toThrow('got nothing')
  })
})

describe('ManualClock', () => {
  it('ManualClock stands still, fires timers in order, and forgets canceled ones', async () => {
    const clock = new ManualClock(100)
    const fired: string[] = []
    const note = (name: string) => () => void fired.push(`${name} ${clock.monotonicMs()}`)
    clock.after(20, note('late'))
    clock.after(10, () => {
      note('early')()
      clock.after(5, note('nested'))
    })
    const cancel = clock.after(15, note('never'))
    cancel()
    expect([clock.pendingTimers, clock.now()]).toEqual([2, 100])
    await clock.advance(9)
    expect(fired).toEqual([])
    await clock.advance(11)
    expect(fired).toEqual(['early 10', 'nested 15', 'late 20'])
    clock.stepWall(-50)
    expect([clock.now(), clock.monotonicMs()]).toEqual([50.02, 20])
    await new Promise<void>((resolve) => clock.nextTurn(resolve))
  })
})
