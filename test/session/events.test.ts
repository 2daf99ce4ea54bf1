import { describe, expect, it, onTestFinished } from 'vitest'
import { defineEvent } from '../../src/events/define-event.ts'
import { makeEvent } from '../../src/events/make-event.ts'
import { registerSecret } from '../../src/foundation/secrets.ts'
import { Session } from '../../src/session/session.ts'
import { AITask } from '../../src/tasks/ai-task.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { FakeBackend } from '../../src/testing/fake-backend.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { attribute, type EventRecord, openSession, quick, typesOf } from './open-session.ts'

/** Three digests. */
const hashPattern = /^(?:[\da-f]{32}\.){2}[\da-f]{32}$/

describe("a task's events", () => {
  it('events: a successful task has all fields in all its events', async () => {
    const { session, backend, clock, eventsOf } = await openSession()
    const task = new ComputeTask({
      executable: '/opt/simulate',
      arguments: ['--n', '10'],
      uid: 'sim-1',
      attributes: { campaign: { round: 7 } },
    })
    await session.submitTasks([task])
    await clock.advance(2000)
    backend.start(task)
    await clock.advance(500)
    backend.report(backend.jobOf(task), {
      kind: 'complete',
      value: { stdout: 'out', stderr: '', exitCode: 0 },
      facts: { workerId: 'f1', cpuSeconds: 0.25, peakMemoryBytes: 4096, exitCode: 0 },
    })

    const about = { campaign: { round: 7 }, executable: '/opt/simulate', task_type: 'compute' }
    const common = { session_id: 's1', task_id: 'sim-1' }
    const events = await eventsOf(task)
    expect(events.map((event) => ({ ...event, event_id: '' }))).toEqual([
      fields('TaskCreated', 1000, {
        ...common,
        backend: '',
        attributes: {
          ...about,
          task_name: 'simulate',
          definition_hash: expect.stringMatching(hashPattern) as string,
        },
      }),
      fields('TaskSubmitted', 1000, {
        ...common,
        attributes: { ...about, 'tutti.arguments': ['--n', '10'] },
      }),
      fields('TaskQueued', 1000, { ...common, attributes: about }),
      fields('TaskStarted', 1002, {
        ...common,
        node_id: 'fake-node',
        attributes: { ...about, worker_id: 'f1', attempt: 1 },
      }),
      fields('TaskCompleted', 1002.5, {
        ...common,
        node_id: 'fake-node',
        attributes: {
          ...about,
          worker_id: 'f1',
          attempt: 1,
          cpu_seconds: 0.25,
          peak_memory_bytes: 4096,
          exit_code: 0,
        },
        duration_seconds: 0.5,
      }),
    ])
    expect(new Set(events.map(({ event_id }) => event_id)).size).toBe(5)
    expect(
      events.every((event) => Object.isFrozen(event) && Object.isFrozen(event.attributes)),
    ).toBe(true)
    expect(await task).toEqual({ stdout: 'out', stderr: '', exitCode: 0 })
    expect([task.stdout, task.stderr, task.exitCode, task.state]).toEqual(['out', '', 0, 'DONE'])
  })

  it('events: each is emitted when its state is reached', async () => {
    const { session, backend, eventsOf } = await openSession()
    const task = quick()
    expect([task.state, task.backend]).toEqual(['CREATED', null])
    await session.submitTasks([task])
    expect([task.state, task.backend]).toEqual(['QUEUED', 'local'])
    backend.start(task)
    expect(task.state).toBe('RUNNING')
    expect((await eventsOf(task)).length).toBe(4)
    backend.complete(task, undefined)
    expect([task.state, task.returnValue, task.error]).toEqual(['DONE', undefined, null])
    expect(await task).toBeUndefined()
    expect((await eventsOf(task)).length).toBe(5)
  })

  it('events: incomplete_lifecycle marks every kind of end without RUNNING', async () => {
    const { session, backend, clock, eventsOf } = await openSession()
    const [done, failed, canceled] = [quick(), quick(), quick()]
    await session.submitTasks([done, failed, canceled])
    await clock.advance(3000)
    backend.complete(done)
    backend.fail(failed, new RangeError('no'))
    backend.report(backend.jobOf(canceled), { kind: 'cancel', reason: 'allocation ended' })
    for (const [task, type] of [
      [done, 'TaskCompleted'],
      [failed, 'TaskFailed'],
      [canceled, 'TaskCanceled'],
    ] as const) {
      const events = await eventsOf(task)
      expect(typesOf(events)).toEqual(['TaskCreated', 'TaskSubmitted', 'TaskQueued', type])
      const end = events.at(-1)
      expect(end).toMatchObject({ duration_seconds: 0, node_id: null })
      expect(attribute(end, 'incomplete_lifecycle')).toBe(true)
      expect(attribute(end, 'worker_id')).toBeUndefined()
    }
    const [, , , end] = await eventsOf(canceled)
    expect(end).not.toHaveProperty('error_type')
    expect(attribute(end, 'reason')).toBe('allocation ended')
  })

  it('events: name a function, also an anonymous one', async () => {
    const { session, eventsOf } = await openSession()
    const named = new ComputeTask({ function: function integrate() {} })
    const anonymous = new ComputeTask({
      function: (
        () => () =>
          1
      )(),
    })
    await session.submitTasks([named, anonymous])
    const about = async (task: ComputeTask<unknown>) => (await eventsOf(task))[0]?.attributes
    expect(await about(named)).toMatchObject({ executable: 'integrate', task_type: 'function' })
    expect(await about(anonymous)).toMatchObject({ executable: 'anonymous', task_type: 'function' })
  })

  it("events: name an AI task's model: its own, or the assigned backend's", async () => {
    const { session, eventsOf } = await openSession({ backends: [{ name: 'llm', model: 'small' }] })
    const own = new AITask({ prompt: 'Why?', model: 'large', backend: 'llm' })
    const given = new AITask({ prompt: 'Why?', backend: 'llm' })
    await session.submitTasks([own, given])
    const executables = async (task: AITask) =>
      (await eventsOf(task)).map((event) => [
        attribute(event, 'executable'),
        attribute(event, 'task_type'),
      ])
    const queued = (model: string) => [model, 'ai']
    expect(await executables(own)).toEqual(Array.from({ length: 3 }, () => queued('large')))
    expect(await executables(given)).toEqual([queued(''), queued('small'), queued('small')])
  })

  it("events: times and durations follow the backend's report", async () => {
    const { session, backend, clock, eventsOf } = await openSession()
    const task = quick()
    await session.submitTasks([task])
    await clock.advance(5000)
    const job = backend.jobOf(task)
    const at = (seconds: number) => ({ wallSeconds: 1000 + seconds, monotonicMs: seconds * 1000 })
    backend.report(job, { kind: 'start', workerId: 'w', nodeId: 'n', at: at(1) })
    backend.report(job, { kind: 'complete', value: 1, at: at(1.25) })
    const [started, completed] = (await eventsOf(task)).slice(3)
    expect(started).toMatchObject({ event_time: 1001, emit_time: 1005 })
    expect(completed).toMatchObject({ event_time: 1001.25, duration_seconds: 0.25 })
  })

  it('row 28: steps of the wall clock make no negative duration and no earlier time', async () => {
    const { session, backend, clock, eventsOf } = await openSession()
    const [back, forth] = [quick(), quick()]
    await session.submitTasks([back, forth])
    backend.start(back)
    backend.start(forth)
    clock.stepWall(-3600)
    await clock.advance(1500)
    backend.complete(back)
    clock.stepWall(7200)
    await clock.advance(500)
    backend.complete(forth)
    for (const [task, seconds] of [
      [back, 1.5],
      [forth, 2],
    ] as const) {
      const events = await eventsOf(task)
      expect(events.at(-1)?.duration_seconds).toBe(seconds)
      const times = events.map(({ event_time }) => event_time)
      expect(times).toEqual(times.toSorted((a, b) => a - b))
      expect(events.every(({ emit_time, event_time }) => emit_time >= event_time)).toBe(true)
    }
  })

  const lateSession = (): { session: Session; backend: FakeBackend; clock: ManualClock } => {
    const clock = new ManualClock(1000)
    const backend = new FakeBackend()
    const session = new Session([backend], { clock })
    onTestFinished(() => session.close())
    return { session, backend, clock }
  }

  it('events: telemetry that starts late begins with the next change', async () => {
    const { session, backend } = lateSession()
    const task = quick()
    await session.submitTasks([task])
    const telemetry = await session.startTelemetry()
    const heard: string[] = []
    telemetry.subscribe((event) => void (event.task_id !== null && heard.push(event.event_type)))
    backend.start(task)
    backend.complete(task)
    await telemetry.flush()
    expect(heard).toEqual(['TaskStarted', 'TaskCompleted'])
    await expect(session.startTelemetry()).rejects.toThrow(/already started/)
  })

  it('events: TaskSubmitted has the resources, unless they are the default', async () => {
    const { session, eventsOf } = await openSession()
    const [plain, large] = [
      quick(),
      quick({ resources: { cores: 2, memoryMb: 5, labels: { zone: 'a' } } }),
    ]
    await session.submitTasks([plain, large])
    const resources = { cores: 2, gpus: 0, memory_mb: 5, ranks: 1, labels: { zone: 'a' } }
    const seen = (await eventsOf(large)).map((event) => attribute(event, 'resources'))
    expect(seen).toEqual([undefined, resources, undefined])
    expect(Object.isFrozen(seen[1])).toBe(true)
    for (const event of await eventsOf(plain))
      expect(event.attributes).not.toHaveProperty('resources')
  })

  it('events: TaskSubmitted has the priority, unless it is 0', async () => {
    const { session, eventsOf } = await openSession()
    const [plain, urgent] = [quick({ priority: 0 }), quick({ priority: 7 })]
    await session.submitTasks([plain, urgent])
    const prioritiesOf = async (task: typeof plain) =>
      (await eventsOf(task)).map((event) => attribute(event, 'tutti.priority'))
    expect(await prioritiesOf(urgent)).toEqual([undefined, 7, undefined])
    expect(await prioritiesOf(plain)).toEqual([undefined, undefined, undefined])
  })

  it('events: telemetry that did not see TaskStarted tells 0.0 everywhere', async () => {
    const { session, backend, clock } = lateSession()
    const [done, failed, canceled, retried] = [quick(), quick(), quick(), quick({ retries: 1 })]
    const tasks = [done, failed, canceled, retried]
    await session.submitTasks(tasks)
    for (const task of tasks) backend.start(task)
    await clock.advance(3000)
    const telemetry = await session.startTelemetry()
    const ends: EventRecord[] = []
    telemetry.subscribe((event) => void (event.task_id !== null && ends.push(event)))
    await clock.advance(2000)
    backend.complete(done)
    backend.fail(failed, new Error('on purpose'))
    session.cancel(canceled)
    backend.report(backend.jobOf(canceled), { kind: 'cancel', reason: 'asked' })
    backend.fail(retried, new Error('once'))
    backend.start(retried)
    await clock.advance(1000)
    backend.complete(retried)
    await telemetry.flush()
    const types = ['TaskCompleted', 'TaskFailed', 'TaskCanceled', 'tutti.TaskAttempt']
    expect(typesOf(ends)).toEqual([...types, 'tutti.AttemptStarted', 'TaskCompleted'])
    const [attempt] = ends.splice(3, 2)
    expect(attempt).toMatchObject({ start_time: 1000, duration_seconds: 5 })
    for (const end of ends) {
      expect(end.duration_seconds).toBe(0)
      expect(end.attributes).toMatchObject({ incomplete_lifecycle: true })
    }
    expect(telemetry.readMetrics()).toMatchObject({
      tasks_started: 0,
      tasks_running: 0,
      tasks_completed: 2,
      tasks_failed: 1,
      tasks_canceled: 1,
      task_duration_seconds_count: 0,
      task_duration_seconds_sum: 0,
    })
    const { tasks: counted, duration } = telemetry.summary()
    expect(counted).toMatchObject({ completed: 2, failed: 1, canceled: 1, running: 0 })
    expect(duration).toMatchObject({ mean: 0, max: 0 })
    const spans = telemetry.taskSpans()
    expect(spans.map(({ attributes }) => attributes['status'])).toEqual([
      'completed',
      'failed',
      'canceled',
      'completed',
    ])
    expect(spans.flatMap(({ events }) => events)).toEqual([])
  })
})

describe("the user's own attributes", () => {
  it("row 88: a task's own attributes are masked in its events and spans, keys too", async () => {
    registerSecret('sesame-open-123')
    const { session, backend, telemetry, eventsOf } = await openSession()
    const attributes = {
      url: 'https://x:sesame-open-123@host',
      list: [{ 'sesame-open-123': 'sesame-open-123' }],
      round: 7,
    }
    const task = quick({ attributes })
    telemetry.registerSpanEnricher(() => ({ from_enricher: 'sesame-open-123' }))
    await session.submitTasks([task])
    const Own = defineEvent('test.Own', {})
    const own = makeEvent(Own, { session_id: 's', backend: 'b', attributes })
    telemetry.spanScope('scope', attributes, () => telemetry.annotateCurrentSpan(own))
    backend.start(task)
    backend.complete(task)
    const events = await eventsOf(task)
    expect(events.length).toBeGreaterThan(3)
    for (const event of [...events, own]) {
      expect(event.attributes).toMatchObject({
        url: 'https://x:[masked]@host',
        list: [{ '[masked]': '[masked]' }],
        round: 7,
      })
    }
    await session.close()
    expect(telemetry.exportAsOtlp()).toContain('[masked]')
    expect(telemetry.exportAsOtlp()).not.toContain('sesame-open-123')
    expect(attributes.url).toContain('sesame-open-123')
  })
})

describe('results in events', () => {
  const resultOf = async (value: unknown, keepResults = true) => {
    const { session, backend, eventsOf } = await openSession({ telemetry: { keepResults } })
    const task = quick()
    await session.submitTasks([task])
    backend.complete(task, value)
    const { result, result_omitted } = (await eventsOf(task)).at(-1)?.attributes ?? {}
    return { result, result_omitted }
  }

  it('results in events: absent without keepResults', async () => {
    expect(await resultOf(42, false)).toEqual({ result: undefined, result_omitted: undefined })
  })

  it('results in events: JSON', async () => {
    expect(await resultOf({ a: [1, null, 'x'] })).toEqual({ result: '{"a":[1,null,"x"]}' })
    const nested = { 'a b': ['é', '\ud800', true, -1.5e-7, {}, []], n: null }
    const { result } = await resultOf(nested)
    expect(JSON.parse(String(result))).toStrictEqual(nested)
  })

  class Point {
    readonly x = 1
  }
  const unequal: readonly [string, () => unknown][] = [
    ['undefined', () => undefined],
    ['NaN', () => [NaN]],
    ['a negative zero', () => -0],
    ['a Map', () => new Map([['a', 1]])],
    ['a Date', () => ({ at: new Date(0) })],
    ['a typed array', () => new Float64Array(2)],
    ['an undefined property', () => ({ a: undefined })],
    ['a hole', () => Object.assign([], { 1: 'x' })],
    ['an instance', () => new Point()],
    ['a proxy', () => new Proxy({}, {})],
    ['text that becomes too long in JSON', () => '\n'.repeat(40_000)],
  ]
  it.each(unequal)(
    'results in events: %s does not come back equal, so it is omitted',
    async (_, of) => {
      expect(await resultOf(of())).toEqual({ result: undefined, result_omitted: true })
    },
  )

  it('results in events: one with a secret is omitted', async () => {
    registerSecret('hunter2hunter2')
    const omitted = { result: undefined, result_omitted: true }
    expect(await resultOf({ answer: 'it is hunter2hunter2' })).toEqual(omitted)
  })

  it('row 110: encoding a large result stops at the limit', async () => {
    const omitted = { result: undefined, result_omitted: true }
    let looks = 0
    const buffer = Object.assign(Buffer.alloc(100_000_000), { toJSON: () => looks++ })
    expect(await resultOf({ buffer })).toEqual(omitted)
    expect(looks).toBe(0)
    const watched = (): unknown[] => {
      const list: unknown[] = []
      for (let at = 0; at < 1000; at++) {
        Object.defineProperty(list, at, { enumerable: true, get: () => ++looks })
      }
      return list
    }
    expect(await resultOf(Array.from({ length: 1000 }, watched))).toEqual(omitted)
    expect(looks).toBeLessThan(65_536)
    const wide = Array.from({ length: 60_000 }, () => 1)
    expect(await resultOf(Array.from({ length: 5000 }, () => wide))).toEqual(omitted)
  })

  it('results in events: omitted when JSON cannot hold them in 64 KB', async () => {
    const omitted = { result: undefined, result_omitted: true }
    const cycle: unknown[] = []
    cycle.push(cycle)
    expect(await resultOf('x'.repeat(65_534))).toMatchObject({
      result: expect.any(String) as string,
    })
    expect(await resultOf('x'.repeat(65_535))).toEqual(omitted)
    expect(await resultOf('é'.repeat(40_000))).toEqual(omitted)
    expect(await resultOf(cycle)).toEqual(omitted)
    expect(await resultOf({ id: 1n })).toEqual(omitted)
  })
})

function fields(type: string, time: number, rest: object): object {
  const base = { event_id: '', event_type: type, event_time: time, emit_time: time }
  return { ...base, backend: 'local', node_id: null, ...rest }
}
