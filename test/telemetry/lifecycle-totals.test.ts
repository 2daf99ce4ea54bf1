import fc from 'fast-check'
import { expect, it } from 'vitest'
import type { EventClass } from '../../src/events/event.ts'
import {
  TaskCanceled,
  TaskCompleted,
  TaskCreated,
  TaskFailed,
  TaskQueued,
  TaskStarted,
  TaskSubmitted,
} from '../../src/events/vocabulary.ts'
import { openTelemetry, spansIn, emitTaskEvent } from './open-telemetry.ts'
import { assertProperty } from '../property.ts'

const classes = [
  TaskCreated,
  TaskSubmitted,
  TaskQueued,
  TaskStarted,
  TaskCompleted,
  TaskFailed,
  TaskCanceled,
] as unknown as readonly EventClass[]
const ends = new Set(['TaskCompleted', 'TaskFailed', 'TaskCanceled'])

/** A plain model of the totals, independent of the code under test. */
class Model {
  readonly #seen = new Map<string, Set<string>>()
  readonly #end = new Map<string, string>()
  durations = 0

  add(uid: string, type: string, seconds: number): void {
    if (this.#end.has(uid)) return
    const seen = this.#seen.get(uid) ?? new Set()
    this.#seen.set(uid, seen.add(type))
    if (!ends.has(type)) return
    this.#end.set(uid, type)
    if (seen.has('TaskStarted') && type !== 'TaskCanceled') this.durations += seconds
  }

  values(): Record<string, number> {
    const tasks = [...this.#seen]
    const saw = (type: string) => tasks.filter(([, seen]) => seen.has(type)).length
    const ran = ([uid, seen]: [string, Set<string>]) =>
      seen.has('TaskStarted') && this.#end.get(uid) !== 'TaskCanceled' && this.#end.has(uid)
    return {
      tasks_submitted: saw('TaskSubmitted'),
      tasks_started: saw('TaskStarted'),
      tasks_completed: saw('TaskCompleted'),
      tasks_failed: saw('TaskFailed'),
      tasks_canceled: saw('TaskCanceled'),
      tasks_running: tasks.filter(([uid, seen]) => seen.has('TaskStarted') && !this.#end.has(uid))
        .length,
      task_duration_seconds_count: tasks.filter(ran).length,
      task_duration_seconds_sum: this.durations,
    }
  }

  get open(): string[] {
    return [...this.#seen.keys()].filter((uid) => !this.#end.has(uid))
  }

  get tasks(): number {
    return this.#seen.size
  }
}

const step = fc.record({
  uid: fc.constantFrom('a', 'b', 'c', 'd'),
  at: fc.nat(classes.length - 1),
  seconds: fc.nat(1000),
  time: fc.option(fc.integer({ min: -5, max: 5 }), { nil: undefined }),
})

it('totals: any events of several tasks give the totals of a plain model', async () => {
  await assertProperty(
    fc.asyncProperty(fc.array(step, { maxLength: 60 }), fc.boolean(), async (steps, isEnded) => {
      const { telemetry, clock, folder } = openTelemetry()
      await telemetry.start()
      const model = new Model()
      const emit = (uid: string, one: EventClass, fields: Record<string, unknown>): void => {
        emitTaskEvent({ sink: telemetry, clock }, one, uid, fields)
        const { duration_seconds: seconds = 0 } = fields as { duration_seconds?: number }
        model.add(uid, one.eventType, seconds)
        const metrics = telemetry.readMetrics()
        expect(metrics).toMatchObject(model.values())
        expect(metrics['tasks_running']).toBeGreaterThanOrEqual(0)
      }
      for (const { uid, at, seconds, time } of steps) {
        const one = classes[at]
        if (one === undefined) continue
        emit(uid, one, {
          duration_seconds: seconds,
          ...(time === undefined ? {} : { event_time: time }),
        })
      }
      if (isEnded) for (const uid of model.open) emit(uid, TaskCanceled as EventClass, {})
      if (model.open.length === 0) expect(telemetry.readMetrics()['tasks_running']).toBe(0)
      await telemetry.stop()
      expect(telemetry.readMetrics()['tasks_running']).toBe(0)
      const spans = spansIn(folder).filter(({ name }) => name === 'task')
      expect(spans).toHaveLength(model.tasks)
      for (const span of spans) {
        expect(span.duration_ms).toBeGreaterThanOrEqual(0)
        expect(span.end_time).toBeGreaterThanOrEqual(span.start_time)
      }
    }),
    { numRuns: 60 },
  )
})
