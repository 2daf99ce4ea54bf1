import fc from 'fast-check'
import { expect, it } from 'vitest'
import { type EventClass, stampEvent } from '../../src/events/event.ts'
import { TaskAttempt, WorkerLost } from '../../src/events/library-events.ts'
import { ResourceUpdate } from '../../src/events/resource-update.ts'
import * as vocabulary from '../../src/events/vocabulary.ts'
import type { Clock } from '../../src/foundation/clock.ts'
import { counts } from '../../src/views/panels/counts.ts'
import { failures } from '../../src/views/panels/failures.ts'
import { allDurations, names } from '../../src/views/panels/names.ts'
import { Pass } from '../../src/views/pass.ts'
import { resources } from '../../src/views/panels/resources.ts'
import { run } from '../../src/views/panels/run.ts'
import { summarize } from '../../src/views/summary.ts'
import { assertProperty } from '../property.ts'
import { eventsIn, openTelemetry } from '../telemetry/open-telemetry.ts'

const { TaskCreated, TaskSubmitted, TaskQueued, TaskStarted } = vocabulary
const { TaskCompleted, TaskFailed, TaskCanceled } = vocabulary
const panels = { run, names, failures, resources }

/** An event to be, of a task or of a node. */
interface Draft {
  readonly of: EventClass
  readonly uid: string | null
  readonly fields: Readonly<Record<string, unknown>>
}

/** Halves add up exactly in any order. */
const seconds = fc.oneof(
  { weight: 5, arbitrary: fc.nat(200).map((halves) => halves / 2) },
  { weight: 1, arbitrary: fc.constantFrom(-1, Number.NaN, Infinity) },
)
const lifecycle = [TaskCreated, TaskSubmitted, TaskQueued, TaskStarted] as readonly unknown[]
const ends = [TaskCompleted, TaskFailed, TaskCanceled] as readonly unknown[]

const fieldsOf = fc.record({
  duration_seconds: seconds,
  error_type: fc.constantFrom('RangeError', 'unknown'),
  attributes: fc.record({
    executable: fc.constantFrom('simulate', 'sort', ''),
    task_type: fc.constant('function'),
    error_type: fc.constantFrom('RangeError', 'TypeError'),
    error_message: fc.constantFrom('bad seed', 'out of memory'),
  }),
})

const uid = fc.constantFrom('a', 'b', 'c', 'd', 'e')

/** Any lifecycle event of any task, in any order: repeated, late, without a start. */
const anyTaskEvent: fc.Arbitrary<Draft> = fc.record({
  of: fc.constantFrom(...([...lifecycle, ...ends] as EventClass[])),
  uid,
  fields: fieldsOf,
})
const retry: fc.Arbitrary<Draft> = fc.record({
  of: fc.constant(TaskAttempt as unknown as EventClass),
  uid,
  fields: fc.constant({ attempt: 1, error_type: 'Error', error_message: 'again' }),
})
const poll: fc.Arbitrary<Draft> = fc.record({
  of: fc.constant(ResourceUpdate as unknown as EventClass),
  uid: fc.constant(null),
  fields: fc.record({
    node_id: fc.constantFrom('n1', 'n2'),
    gpu_id: fc.constantFrom(null, 0),
    cpu_percent: fc.constantFrom(null, 0, 50, 100),
    memory_percent: fc.constantFrom(null, 25),
    gpu_percent: fc.constant(null),
    disk_read_bytes: fc.constant(null),
    disk_write_bytes: fc.constant(null),
    net_sent_bytes: fc.constant(null),
    net_recv_bytes: fc.constant(null),
  }),
})
const anyEvents = fc.array(
  fc.oneof(
    { weight: 8, arbitrary: anyTaskEvent },
    { weight: 1, arbitrary: retry },
    { weight: 1, arbitrary: poll },
  ),
  { maxLength: 80 },
)

const toEvent = ({ of, uid: task_id, fields }: Draft, clock: Clock) =>
  stampEvent(of, clock, { session_id: 's1', backend: 'local', task_id, ...fields })

/** What the views say, in the form of `telemetry.summary()` and of the metrics. */
function showAll(pass: Pass<typeof panels>) {
  const totals = counts.show(pass.counts)
  return {
    totals,
    summary: summarize({
      sessionId: run.show(pass.states.run).sessionId,
      durationSeconds: run.show(pass.states.run).durationSeconds ?? 0,
      totals,
      durations: allDurations(pass.states.names),
      lateResults: 0,
      nodes: resources.show(pass.states.resources),
    }),
    metrics: {
      tasks_submitted: totals.submitted,
      tasks_started: totals.started,
      tasks_completed: totals.completed,
      tasks_failed: totals.failed,
      tasks_canceled: totals.canceled,
      tasks_running: totals.running,
      tasks_queued: totals.queued,
      task_duration_seconds_count: totals.durationCount,
      task_duration_seconds_sum: totals.durationSum,
    },
  }
}

it('telemetry and views: any events give the same totals and the same summary', async () => {
  const lateStart = fc.nat(20)
  await assertProperty(
    fc.asyncProperty(anyEvents, lateStart, async (drafts, startedAt) => {
      const { telemetry, clock } = openTelemetry()
      const pass = new Pass(panels)
      telemetry.subscribe((event) => pass.take(event))
      for (const [at, draft] of drafts.entries()) {
        if (at === startedAt) await telemetry.start()
        telemetry.emit(toEvent(draft, clock))
        await clock.advance(500)
      }
      await telemetry.start()
      await telemetry.flush()
      const shown = showAll(pass)
      expect(telemetry.readMetrics()).toMatchObject(shown.metrics)
      const live = telemetry.summary()
      expect(live).toEqual({ ...shown.summary, duration_seconds: live.duration_seconds })
      await telemetry.stop()
      const { running: _, ...tasks } = telemetry.summary().tasks
      expect(telemetry.summary()).toMatchObject({
        session_id: 's1',
        duration_seconds: showAll(pass).summary.duration_seconds,
        tasks,
      })
    }),
    { numRuns: 60, longRuns: 1000 },
  )
})

it('views: the live events and the file give the same states', async () => {
  await assertProperty(
    fc.asyncProperty(anyEvents, async (drafts) => {
      const { telemetry, clock, folder } = openTelemetry()
      const live = new Pass(panels)
      telemetry.subscribe((event) => live.take(event))
      await telemetry.start()
      for (const draft of drafts) telemetry.emit(toEvent(draft, clock))
      await telemetry.stop()
      const read = new Pass(panels)
      for (const line of eventsIn(folder)) read.take(line)
      expect(read.counts).toEqual(live.counts)
      expect(read.states).toEqual(live.states)
    }),
    { numRuns: 40, longRuns: 500 },
  )
})

/** The events of one task as a session emits them: some missing, one end or none. */
const life = fc
  .record({
    hasStage: fc.array(fc.boolean(), { minLength: 4, maxLength: 4 }),
    end: fc.constantFrom(...(ends as EventClass[]), null),
    retries: fc.nat(2),
    fields: fieldsOf,
  })
  .map(({ hasStage, end, retries, fields }) => {
    const before = lifecycle.filter((_, at) => hasStage[at] === true) as EventClass[]
    const attempts = Array.from({ length: retries }, () => TaskAttempt as unknown as EventClass)
    return [...before, ...attempts, ...(end === null ? [] : [end])].map((of) => ({ of, fields }))
  })

it('views: any order of events that the tasks allow gives the same totals', () => {
  const clock = { now: () => 100 } as Clock
  const lives = fc.array(life, { maxLength: 8 })
  const choices = fc.array(fc.nat(), { maxLength: 80 })
  assertProperty(
    fc.property(lives, choices, (given, picks) => {
      const inOrder = given.map((events, at) =>
        events.map((event) => toEvent({ ...event, uid: `task-${at}` }, clock)),
      )
      const lost = stampEvent(WorkerLost as unknown as EventClass, clock, {
        session_id: 's1',
        backend: 'local',
      })
      const first = new Pass(panels)
      for (const event of [lost, ...inOrder.flat()]) first.take(event)
      const second = new Pass(panels)
      for (const event of [...merge(inOrder, picks), lost]) second.take(event)
      expect(showAll(second)).toEqual(showAll(first))
      expect(byName(second)).toEqual(byName(first))
      expect(byCause(second)).toEqual(byCause(first))
      expect(second.states.run).toEqual(first.states.run)
    }),
    { numRuns: 300, longRuns: 10_000 },
  )
})

/** One sequence of all lists, each in its own order; `picks` choose which list is next. */
function merge<T>(lists: readonly (readonly T[])[], picks: readonly number[]): T[] {
  const rest = lists.map((list) => [...list])
  const merged: T[] = []
  for (let at = 0; rest.some((list) => list.length > 0); at++) {
    const open = rest.filter((list) => list.length > 0)
    merged.push(...(open[(picks[at] ?? 0) % open.length]?.splice(0, 1) ?? []))
  }
  return merged
}

const byName = (pass: Pass<typeof panels>) =>
  names
    .show(pass.states.names, { durations: true })
    .toSorted((a, b) => a.name.localeCompare(b.name))

const byCause = (pass: Pass<typeof panels>) =>
  failures
    .show(pass.states.failures, { limit: 100 })
    .groups.map(({ name, errorType, message, count }) => [name, errorType, message, count].join())
    .toSorted()
