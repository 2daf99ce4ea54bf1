import fc from 'fast-check'
import { expect, it } from 'vitest'
import { Replay } from '../../../src/dashboard/fold/replay.ts'
import type { Clock } from '../../../src/foundation/clock.ts'
import type { ViewEvent } from '../../../src/views/panel.ts'
import { assertProperty } from '../../property.ts'
import { life, toEvent } from '../../views/any-events.ts'
import { viewEvent } from '../../views/view-event.ts'
import { done, endedRecord, line, writeRecord } from '../test-dashboard.ts'
import { allTasks, ask, sourceOf } from './query-run.ts'

/** The events of some tasks, one second apart, in an order that the tasks allow. */
const runs = fc
  .tuple(fc.array(life, { minLength: 1, maxLength: 8 }), fc.array(fc.nat(), { maxLength: 80 }))
  .map(([lives, picks]) => {
    const rest = lives.map((events, at) => events.map((event) => ({ ...event, uid: `task-${at}` })))
    const events: ViewEvent[] = [viewEvent('SessionStarted', null, { event_time: 0 })]
    for (let at = 0; rest.some((list) => list.length > 0); at++) {
      const open = rest.filter((list) => list.length > 0)
      const next = open[(picks[at] ?? 0) % open.length]?.shift()
      const clock = { now: () => events.length } as Clock
      if (next !== undefined) events.push(toEvent(next, clock))
    }
    return events
  })

/** What the panels show, without what a record keeps only for its end. */
async function showAll(source: ReturnType<typeof sourceOf>, at?: number) {
  const filter = at === undefined ? {} : { at }
  const head = await ask(source, 'head', { filter })
  const { rows } = await ask(source, 'tasks', { ...allTasks, filter })
  const stream = await ask(source, 'stream', { filter, range: {}, cells: 100 })
  const { names } = await ask(source, 'progress', { filter })
  const { groups } = await ask(source, 'failures', { filter })
  const { workers } = await ask(source, 'workers', { filter })
  return {
    counts: head.counts,
    rate: head.rate,
    folds: head.folds,
    rows,
    blocks: stream.blocks,
    names: names.map((name) => ({ ...name, text: '' })),
    failures: groups.map(({ name, count, tasks, firstTime, lastTime }) => {
      return { name, count, tasks, firstTime, lastTime }
    }),
    workers,
  }
}

it('a replayed time shows what a pass up to that time shows', async () => {
  await assertProperty(
    fc.asyncProperty(runs, fc.nat(80), async (events, cut) => {
      const at = cut % events.length
      const before = events.slice(0, at + 1)
      const expected = sourceOf(before, { state: 'running', now: at })
      const whole = sourceOf([...events, viewEvent('SessionEnded', null, { event_time: 1000 })])
      expect(await showAll(whole, at)).toEqual(await showAll(expected))
    }),
    { numRuns: 100, longRuns: 5000 },
  )
})

it('viewers of two times and of the whole run, in turn, each see their own', async () => {
  await assertProperty(
    fc.asyncProperty(runs, fc.nat(80), fc.nat(80), async (events, one, other) => {
      const end = viewEvent('SessionEnded', null, { event_time: 1000 })
      const create = (): ReturnType<typeof sourceOf> => sourceOf([...events, end])
      const shared = create()
      for (const at of [undefined, one, other, undefined, one]) {
        expect(await showAll(shared, at)).toEqual(await showAll(create(), at))
      }
    }),
    { numRuns: 30, longRuns: 2000 },
  )
})

it('a replay tells when the whole run began and ended, also before its first event', async () => {
  const events = [100, 107].map((time) => viewEvent('Custom', null, { event_time: time }))
  for (const at of [50, 100, 103]) {
    const head = await ask(sourceOf(events), 'head', { filter: { at } })
    expect([head.startTime, head.endTime]).toEqual([100, 107])
  }
})

it('a replayed time of a resumed run is read from its record', async () => {
  const start = (time: number, from?: string): ViewEvent =>
    viewEvent('SessionStarted', null, { event_time: time, attributes: { resumed_from: from } })
  const asked: number[] = []
  const source = sourceOf([start(0), start(10, 'first'), viewEvent('SessionEnded')], {
    at: (time) => {
      asked.push(time)
      return Promise.resolve(sourceOf([start(0)]))
    },
  })
  await ask(source, 'head', { filter: { at: 5 } })
  expect(asked).toEqual([5])
})

const never = new AbortController().signal
const eventTime = (text: string): number => (JSON.parse(text) as { event_time: number }).event_time

it('readings for two times do not stop each other', async () => {
  const lines = [line('SessionStarted'), done('t1'), done('t2'), line('SessionEnded')]
  const replay = new Replay(writeRecord(...lines))
  const start = eventTime(lines[0] ?? '')
  const read = await Promise.all([
    replay.read(start + 4, never),
    replay.read(start + 8, never),
    replay.read(start + 4, never),
  ])
  expect(read.map(({ views }) => views.pass.counts.totals.completed)).toEqual([1, 2, 1])
  expect(read[2]).toBe(read[0])
  expect(await replay.read(start + 4, never)).toBe(read[0])
})

it('a replay of a large run does not keep a time while it reads another one', async () => {
  const replay = new Replay(endedRecord(3), 2)
  const first = await replay.read(1e12, never)
  expect(await replay.read(1e12, never)).toBe(first)
  await replay.read(2e12, never)
  expect(await replay.read(1e12, never)).not.toBe(first)
})

it('a time whose readers have left can be read again', async () => {
  const replay = new Replay(endedRecord(3))
  const leaving = new AbortController()
  const left = replay.read(1e12, leaving.signal)
  leaving.abort(new Error('left'))
  await expect(left).rejects.toThrow('left')
  const { views } = await replay.read(1e12, never)
  expect(views.pass.counts.totals.completed).toBe(3)
})
