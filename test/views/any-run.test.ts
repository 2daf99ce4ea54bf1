import fc from 'fast-check'
import { expect, it } from 'vitest'
import { type EventClass, stampEvent } from '../../src/events/event.ts'
import { WorkerLost } from '../../src/events/library-events.ts'
import type { Clock } from '../../src/foundation/clock.ts'
import { counts } from '../../src/views/panels/counts.ts'
import { failures } from '../../src/views/panels/failures.ts'
import { lanes } from '../../src/views/panels/lanes.ts'
import { allDurations, names } from '../../src/views/panels/names.ts'
import { Pass } from '../../src/views/pass.ts'
import { resources } from '../../src/views/panels/resources.ts'
import { run } from '../../src/views/panels/run.ts'
import { summarize } from '../../src/views/summary.ts'
import { assertProperty } from '../property.ts'
import { anyEvents, condensed, life, toEvent } from './any-events.ts'
import { eventsIn, openTelemetry } from '../telemetry/open-telemetry.ts'

const panels = { run, names, failures, lanes, resources }

/** What telemetry costs is not in the record's events. */
const noCost = {
  main_cpu_seconds: 0,
  thread_cpu_seconds: 0,
  in_place_writes: 0,
  bytes_written: 0,
  spill_bytes: 0,
}

/** The results of the views, in the form of `telemetry.summary()` and of the metrics. */
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
      telemetry: noCost,
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
      const live = { ...telemetry.summary(), telemetry: noCost }
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
      expect(condensed(read.counts)).toEqual(condensed(live.counts))
      expect(condensed(read.states)).toEqual(condensed(live.states))
    }),
    { numRuns: 40, longRuns: 500 },
  )
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
      expect(byLane(second)).toEqual(byLane(first))
      expect(second.states.run).toEqual(first.states.run)
    }),
    { numRuns: 100, longRuns: 10_000 },
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

const byLane = (pass: Pass<typeof panels>) =>
  lanes.show(pass.states.lanes, { limit: 1000 }).lanes.toSorted((a, b) => a.id.localeCompare(b.id))
