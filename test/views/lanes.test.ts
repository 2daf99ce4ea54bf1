import { expect, it } from 'vitest'
import type { ViewEvent } from '../../src/views/panel.ts'
import { lanes, type LanesState } from '../../src/views/panels/lanes.ts'
import { Pass } from '../../src/views/pass.ts'
import { viewEvent } from './view-event.ts'

const started = (uid: string, time: number, worker = 'n1/local/w1'): ViewEvent =>
  viewEvent('TaskStarted', uid, {
    event_time: time,
    node_id: 'n1',
    attributes: { worker_id: worker },
  })
const ended = (uid: string, time: number, type = 'TaskCompleted'): ViewEvent =>
  viewEvent(type, uid, { event_time: time })

function lanesOver(events: Iterable<ViewEvent>): LanesState {
  const pass = new Pass({ lanes })
  for (const event of events) pass.take(event)
  return pass.states.lanes
}

it('lanes: each attempt is a segment of its worker, with its own end', () => {
  const again = { worker_id: 'n1/local/w2', node_id: 'n1' }
  const state = lanesOver([
    started('a', 10),
    viewEvent('tutti.TaskAttempt', 'a', { event_time: 12, retry_at: 15 }),
    viewEvent('tutti.AttemptStarted', 'a', { event_time: 16, attempt: 2, ...again }),
    started('b', 17),
    ended('a', 20, 'TaskFailed'),
    viewEvent('TaskCompleted', 'never-started', { event_time: 30 }),
  ])
  const shown = lanes.show(state, { limit: 10 })
  expect(shown.level).toBe(0)
  expect(shown.segments).toEqual([
    { lane: 0, task: 0, start: 10, end: 12, outcome: 'retried', attempt: 1, retryDelay: 3 },
    { lane: 1, task: 0, start: 16, end: 20, outcome: 'failed', attempt: 2, retryDelay: 0 },
    { lane: 0, task: 1, start: 17, end: 30, outcome: 'running', attempt: 1, retryDelay: 0 },
  ])
  const common = { backend: 'local', nodeId: 'n1' }
  expect(shown.lanes).toEqual([
    { id: 'n1/local/w1', ...common, segments: 2, failed: 1 },
    { id: 'n1/local/w2', ...common, segments: 1, failed: 1 },
  ])
})

function* manyTasks(count: number): Generator<ViewEvent> {
  for (let at = 0; at < count; at++) {
    yield started(`t${at}`, at, `n1/local/w${at % 2}`)
    yield ended(`t${at}`, at + 0.5, at % 10 === 0 ? 'TaskFailed' : 'TaskCompleted')
  }
}

it('lanes: more segments than the limit get a coarser level, whose cells sum them all', () => {
  const state = lanesOver(manyTasks(1000))
  expect(lanes.show(state, { limit: 1000 }).segments).toHaveLength(1000)
  for (const [limit, level] of [
    [100, 1],
    [10, 2],
    [2, 3],
  ] as const) {
    const shown = lanes.show(state, { limit })
    const sum = (key: 'segments' | 'failed' | 'busySeconds') =>
      shown.cells.reduce((total, cell) => total + cell[key], 0)
    expect(shown.level).toBe(level)
    expect([sum('segments'), sum('failed'), sum('busySeconds')]).toEqual([1000, 100, 500])
    expect(shown.cells.every(({ start, end, lane }) => end > start && lane < 2)).toBe(true)
  }
  expect(lanes.show(state, { limit: 1 })).toMatchObject({ segments: [], cells: [] })
})

it('lanes: blocks sum the attempts that have ended, without those that still run', () => {
  const state = lanesOver([started('long', 0), ...manyTasks(1000)])
  const single = lanes.show(state, { limit: 1001 })
  expect(single.segments.find(({ task }) => task === 0)).toMatchObject({ outcome: 'running' })
  const all = lanes.show(state, { limit: 100 })
  expect(all.level).toBe(1)
  expect(all.cells.reduce((total, { segments }) => total + segments, 0)).toBe(1000)
})

it('lanes: a segment takes at most 40 bytes, however many there are', () => {
  const count = 40_960
  const state = lanesOver(manyTasks(count))
  const bytes = (value: unknown): number => {
    if (ArrayBuffer.isView(value)) return value.byteLength
    if (typeof value !== 'object' || value === null) return 0
    return Object.values(value).reduce((sum: number, part) => sum + bytes(part), 0)
  }
  expect(bytes(state)).toBeLessThanOrEqual(40 * count)
})
