import { hostname } from 'node:os'
import { readdirSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { checkpointFormat } from '../../src/checkpoint/format.ts'
import { defineEvent } from '../../src/events/define-event.ts'
import type { BaseEvent } from '../../src/events/event.ts'
import { makeEvent } from '../../src/events/make-event.ts'
import { ResourceUpdate } from '../../src/events/resource-update.ts'
import {
  TaskCanceled,
  TaskCompleted,
  TaskCreated,
  TaskFailed,
  TaskQueued,
  TaskStarted,
  TaskSubmitted,
} from '../../src/events/vocabulary.ts'
import { runInTask } from '../../src/foundation/task-context.ts'
import { version } from '../../src/foundation/version.ts'
import {
  eventsIn,
  linesIn,
  openTelemetry,
  spansIn,
  emitTaskEvent,
  typesOf,
} from './open-telemetry.ts'

const Note = defineEvent('canonical.Note', { text: 'str' })
const note = (fields: object = {}) =>
  makeEvent(Note, { session_id: 's1', backend: 'app', ...fields })

describe('a canonical run', () => {
  it('a run: subscribers and file get the events in order, each with its span', async () => {
    const { telemetry, clock, folder } = openTelemetry()
    const received: BaseEvent[] = []
    telemetry.subscribe((event) => void received.push(event))
    await telemetry.start()
    const to = { sink: telemetry, clock }
    const emitted: BaseEvent[] = []
    for (const one of [TaskCreated, TaskSubmitted, TaskQueued, TaskStarted]) {
      emitted.push(emitTaskEvent(to, one, 'a'))
      await clock.advance(1000)
    }
    emitted.push(emitTaskEvent(to, TaskCompleted, 'a', { duration_seconds: 1 }))
    await telemetry.stop()

    const order = ['TaskCreated', 'TaskSubmitted', 'TaskQueued', 'TaskStarted', 'TaskCompleted']
    expect(typesOf(received)).toEqual(['SessionStarted', ...order, 'SessionEnded'])
    // Every subscriber gets the same objects.
    expect(received.slice(1, -1).every((event, at) => event === emitted[at])).toBe(true)

    const lines = linesIn(folder)
    const shape = lines.map((line) => [line.section, line['name'] ?? 'metrics'])
    expect(shape).toEqual([
      ['event', 'SessionStarted'],
      ...order.map((name) => ['event', name]),
      ['span', 'task'],
      ['event', 'SessionEnded'],
      ['span', 'session'],
      ['metric', 'metrics'],
    ])
    const [taskSpan, sessionSpan] = spansIn(folder)
    const ids = eventsIn(folder).map(({ trace_id, span_id }) => [trace_id, span_id])
    const [trace, task, session] = [taskSpan?.trace_id, taskSpan?.span_id, sessionSpan?.span_id]
    expect(trace).toMatch(/^[0-9a-f]{32}$/)
    expect(task).toMatch(/^[0-9a-f]{16}$/)
    expect(session).toMatch(/^[0-9a-f]{16}$/)
    expect(ids).toEqual([[trace, session], ...order.map(() => [trace, task]), [trace, session]])
    expect([taskSpan?.parent_span_id, sessionSpan?.parent_span_id]).toEqual([session, null])
  })

  it('a run: a line has every field of its event and no other', async () => {
    const { telemetry, clock, folder } = openTelemetry()
    await telemetry.start()
    const to = { sink: telemetry, clock }
    const failed = emitTaskEvent(to, TaskFailed, 'a', {
      error_type: 'RangeError',
      duration_seconds: 0,
      node_id: 'n1',
      attributes: { executable: 'f', task_type: 'function', error_type: 'RangeError' },
    })
    await telemetry.stop()
    const line = eventsIn(folder)[1]
    expect(line).toEqual({
      section: 'event',
      name: 'TaskFailed',
      trace_id: line?.trace_id,
      span_id: line?.span_id,
      ...JSON.parse(JSON.stringify(failed)),
    })
    expect(line?.event_id).toBe(failed.event_id)
  })

  it('a run: SessionStarted has facts about the run, SessionEnded its duration', async () => {
    const { telemetry, clock, folder } = openTelemetry()
    await telemetry.start()
    await clock.advance(2500)
    await telemetry.stop()
    const [started, ended, ...more] = eventsIn(folder)
    expect(more).toEqual([])
    expect(started).toMatchObject({
      event_type: 'SessionStarted',
      session_id: 's1',
      backend: 'tutti',
      task_id: null,
      node_id: null,
    })
    expect(started?.attributes).toEqual({
      format: checkpointFormat,
      version,
      host: hostname(),
      pid: process.pid,
      program: expect.not.stringContaining('/') as string,
    })
    expect(ended).toMatchObject({ backend: 'tutti', duration_seconds: 2.5, task_id: null })
    expect(readdirSync(folder)).toEqual(['s1.1700000000.telemetry.jsonl'])
  })

  it('ResourceUpdate: has the span of the session, also inside a task or a scope', async () => {
    const { telemetry, clock, folder } = openTelemetry()
    await telemetry.start()
    emitTaskEvent({ sink: telemetry, clock }, TaskCreated, 'a')
    runInTask('a', () =>
      telemetry.spanScope('inner', () =>
        telemetry.emit(makeEvent(ResourceUpdate, { session_id: 's1', backend: 'local' })),
      ),
    )
    await telemetry.stop()
    const events = eventsIn(folder)
    expect(events[2]?.event_type).toBe('ResourceUpdate')
    expect(events[2]?.span_id).toBe(events[0]?.span_id)
  })
})

describe('a custom event', () => {
  it('custom event: has the span of its task, else the active one, else the session', async () => {
    const { telemetry, clock, folder } = openTelemetry()
    await telemetry.start()
    const to = { sink: telemetry, clock }
    emitTaskEvent(to, TaskCreated, 'a')
    emitTaskEvent(to, TaskCreated, 'b')
    telemetry.emit(note({ text: 'session' }))
    telemetry.emit(note({ text: 'of a', task_id: 'a' }))
    telemetry.spanScope('outer', () => {
      telemetry.emit(note({ text: 'outer' }))
      telemetry.emit(note({ text: 'a before outer', task_id: 'a' }))
    })
    runInTask('b', () => telemetry.emit(note({ text: 'running b' })))
    runInTask('b', () => telemetry.emit(note({ text: 'unknown in b', task_id: 'nobody' })))
    emitTaskEvent(to, TaskCanceled, 'a')
    telemetry.emit(note({ text: 'a has ended', task_id: 'a' }))
    runInTask('a', () => telemetry.emit(note({ text: 'inside a that has ended' })))
    await telemetry.stop()

    const spans = spansIn(folder)
    const spanOf = (uid: string) =>
      spans.find(({ attributes }) => attributes['task_id'] === uid)?.span_id
    const session = spans.find(({ name }) => name === 'session')?.span_id
    const outer = spans.find(({ name }) => name === 'outer')?.span_id
    const found = eventsIn(folder)
      .filter(({ name }) => name === 'canonical.Note')
      .map((line) => [line['text'], line.span_id])
    expect(found).toEqual([
      ['session', session],
      ['of a', spanOf('a')],
      ['outer', outer],
      ['a before outer', spanOf('a')],
      ['running b', spanOf('b')],
      ['unknown in b', spanOf('b')],
      ['a has ended', session],
      ['inside a that has ended', session],
    ])
  })
})

describe('a task span', () => {
  it('task span: has the specified attributes for each end', async () => {
    const { telemetry, clock, folder } = openTelemetry()
    await telemetry.start()
    const to = { sink: telemetry, clock }
    for (const uid of ['done', 'failed', 'canceled']) {
      emitTaskEvent(to, TaskCreated, uid)
      emitTaskEvent(to, TaskSubmitted, uid)
    }
    await clock.advance(1500)
    emitTaskEvent(to, TaskCompleted, 'done')
    emitTaskEvent(to, TaskFailed, 'failed', { error_type: 'RangeError' })
    emitTaskEvent(to, TaskCanceled, 'canceled')
    await telemetry.stop()
    const common = { session_id: 's1', backend: 'local' }
    const what = { executable: './simulate', task_type: 'compute' }
    const spans = spansIn(folder).filter(({ name }) => name === 'task')
    expect(spans.map(({ attributes }) => attributes)).toEqual([
      { ...common, task_id: 'done', ...what, status: 'completed' },
      { ...common, task_id: 'failed', ...what, status: 'failed', error_type: 'RangeError' },
      { ...common, task_id: 'canceled', ...what, status: 'canceled' },
    ])
    expect(spans.map((span) => [span.status_code, span.status_description])).toEqual([
      ['OK', null],
      ['ERROR', 'RangeError'],
      ['UNSET', null],
    ])
    for (const span of spans) {
      expect(span).toMatchObject({ start_time: 1_700_000_000, end_time: 1_700_000_001.5 })
      expect(span.duration_ms).toBe(1500)
    }
    const session = spansIn(folder).find(({ name }) => name === 'session')
    expect(session?.attributes).toEqual({ session_id: 's1', backend: 'tutti' })
  })

  it('task span: has TaskQueued and TaskStarted once, with their further attributes', async () => {
    const { telemetry, clock, folder } = openTelemetry()
    await telemetry.start()
    const to = { sink: telemetry, clock }
    const attributes = { executable: 'f', task_type: 'function', worker_id: 'w1', attempt: 1 }
    emitTaskEvent(to, TaskCreated, 'a')
    await clock.advance(1000)
    emitTaskEvent(to, TaskQueued, 'a', { attributes: { position: 3 } })
    await clock.advance(1000)
    emitTaskEvent(to, TaskStarted, 'a', { attributes })
    await clock.advance(1000)
    emitTaskEvent(to, TaskStarted, 'a', { attributes: { worker_id: 'w2' } })
    emitTaskEvent(to, TaskQueued, 'a')
    emitTaskEvent(to, TaskCompleted, 'a')
    await telemetry.stop()
    const [span] = spansIn(folder)
    expect(span?.events).toEqual([
      { name: 'TaskQueued', time: 1_700_000_001, attributes: { position: '3' } },
      { name: 'TaskStarted', time: 1_700_000_002, attributes: { worker_id: 'w1', attempt: '1' } },
    ])
    expect(telemetry.taskSpans()).toEqual([{ ...span, section: undefined }])
  })

  it('task span: opens at the first event when TaskCreated is missing', async () => {
    const { telemetry, clock, folder } = openTelemetry()
    await telemetry.start()
    const to = { sink: telemetry, clock }
    emitTaskEvent(to, TaskStarted, 'a', { event_time: 0 })
    expect(telemetry.readMetrics()['tasks_running']).toBe(1)
    emitTaskEvent(to, TaskCompleted, 'a', { event_time: 0 })
    expect(telemetry.readMetrics()['tasks_running']).toBe(0)
    await telemetry.stop()
    const [span, session] = spansIn(folder)
    expect(span).toMatchObject({ name: 'task', start_time: 0, end_time: 0, duration_ms: 0 })
    expect(span?.events).toEqual([{ name: 'TaskStarted', time: 0, attributes: {} }])
    expect(span?.parent_span_id).toBe(session?.span_id)
    expect(telemetry.taskSpans()).toHaveLength(1)
  })

  it('task span: late and repeated events open no second span', async () => {
    const { telemetry, clock, folder } = openTelemetry()
    await telemetry.start()
    const to = { sink: telemetry, clock }
    for (const one of [TaskCreated, TaskStarted, TaskCompleted]) emitTaskEvent(to, one, 'a')
    for (const one of [TaskStarted, TaskFailed, TaskCompleted, TaskCreated])
      emitTaskEvent(to, one, 'a')
    await telemetry.stop()
    const spans = spansIn(folder).filter(({ name }) => name === 'task')
    expect(spans).toHaveLength(1)
    const ofTask = eventsIn(folder).filter(({ task_id: uid }) => uid === 'a')
    expect(ofTask).toHaveLength(7)
    expect(new Set(ofTask.map(({ span_id: id }) => id))).toEqual(new Set([spans[0]?.span_id]))
    expect(telemetry.readMetrics()).toMatchObject({
      tasks_started: 1,
      tasks_completed: 1,
      tasks_failed: 0,
      tasks_running: 0,
    })
  })
})
