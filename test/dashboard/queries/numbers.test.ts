import fc from 'fast-check'
import { expect, it } from 'vitest'
import type { Clock } from '../../../src/foundation/clock.ts'
import { counts } from '../../../src/views/panels/counts.ts'
import { failures } from '../../../src/views/panels/failures.ts'
import { names } from '../../../src/views/panels/names.ts'
import { pace } from '../../../src/views/panels/pace.ts'
import { Pass } from '../../../src/views/pass.ts'
import { collectColumns } from '../../../src/views/moments/run-columns.ts'
import { measurePaces } from '../../../src/views/moments/paces.ts'
import { eachTask } from '../../../src/views/tasks.ts'
import { findText, textAt } from '../../../src/views/columns.ts'
import { assertProperty } from '../../property.ts'
import { life, toEvent } from '../../views/any-events.ts'
import { passOver } from '../../views/synthetic-run.ts'
import { allTasks, ask, sourceOf } from './query-run.ts'

/** Tasks one after another, one event per second. */
const runs = fc.array(life, { minLength: 1, maxLength: 12 }).map((lives) => {
  const drafts = lives.flatMap((events, at) =>
    events.map((event) => ({ ...event, uid: `task-${at}` })),
  )
  return drafts.map((draft, at) => toEvent(draft, { now: () => at } as Clock))
})

it('panels have the numbers of the views of the same run', async () => {
  await assertProperty(
    fc.asyncProperty(runs, async (events) => {
      const source = sourceOf(events, { state: 'running' })
      const { pass } = source
      const { counts: shown } = await ask(source, 'head', {})
      const totals = counts.show(pass.counts)
      expect([shown.done, shown.failed, shown.canceled, shown.total]).toEqual([
        totals.completed,
        totals.failed,
        totals.canceled,
        totals.tasks,
      ])
      const { total, ...parts } = shown
      expect(Object.values(parts).reduce((sum, one) => sum + one, 0)).toBe(total)
      const progress = await ask(source, 'progress', {})
      const views = names.show(pass.states.names, { durations: true })
      expect(progress.names.toSorted((a, b) => (a.name < b.name ? -1 : 1))).toMatchObject(
        views
          .toSorted((a, b) => (a.name < b.name ? -1 : 1))
          .map(({ name, completed, failed, duration }) => {
            return { name, done: completed, failed, p50: duration?.p50 ?? null }
          }),
      )
      const { groups } = await ask(source, 'failures', {})
      const own = failures.show(pass.states.failures, { limit: 100 })
      expect(groups.map(({ count, message }) => [count, message])).toEqual(
        own.groups.map(({ count, message }) => [count, message]),
      )
    }),
    { numRuns: 60, longRuns: 2000 },
  )
})

it('tasks have the times of the views, and are sorted by them', async () => {
  const sorts = fc.constantFrom('waited', 'ran' as const)
  await assertProperty(
    fc.asyncProperty(runs, sorts, fc.boolean(), async (events, sort, isDescending) => {
      const source = sourceOf(events, { state: 'running' })
      const { rows } = await ask(source, 'tasks', { ...allTasks, sort, isDescending })
      const sign = isDescending ? -1 : 1
      const valueOf = (value: number | null): number => (value === null ? Infinity : sign * value)
      const expected = [...eachTask(source.pass)]
        .map(({ uid, waited, ran, runningFor }) => ({ uid, waited, ran: ran ?? runningFor }))
        .toSorted((a, b) => valueOf(a[sort as 'ran']) - valueOf(b[sort as 'ran']) || 0)
      expect(rows.map(({ uid, waited, ran }) => ({ uid, waited, ran }))).toEqual(expected)
    }),
    { numRuns: 60, longRuns: 2000 },
  )
})

it('paces from columns are those of the panel that counts events', () => {
  assertProperty(
    fc.property(runs, fc.nat(20), (events, later) => {
      const counted = new Pass({ names, pace })
      for (const event of events) counted.take(event)
      const pass = passOver(events)
      const now = events.length + later
      const state = pass.states.names
      const measured = measurePaces(collectColumns(pass), state, now)
      for (let name = 0; name < state.names.size; name++) {
        const text = textAt(state.names, name)
        const query = { namesState: counted.states.names, names: [text], now }
        const expected = pace.show(counted.states.pace, query)
        expect(measured[findText(state.names, text)]).toEqual(expected)
      }
    }),
    { numRuns: 60, longRuns: 2000 },
  )
})
