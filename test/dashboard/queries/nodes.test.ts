import { writeFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import { eventsOf } from '../../views/synthetic-run.ts'
import { viewEvent } from '../../views/view-event.ts'
import { endedRecord, line } from '../test-dashboard.ts'
import { ask, sourceOf } from './query-run.ts'

/** The file of a session that was started in a job of a cluster, at second 0. */
function writeAllocation(attributes: object): string {
  const path = endedRecord(0)
  const started = JSON.parse(line('SessionStarted')) as { readonly attributes: object }
  const event = { ...started, event_time: 0, attributes: { ...started.attributes, ...attributes } }
  writeFileSync(path, `${JSON.stringify(event)}\n`)
  return path
}

it('the panel of workers shows the allocation of the run, with the time that is left', async () => {
  const file = writeAllocation({
    job_id: '77',
    partition: 'gpu',
    nodes: ['a', 'b'],
    time_limit_seconds: 3600,
    queue_wait_seconds: 60,
  })
  const events = [viewEvent('SessionStarted', null, { event_time: 0 })]
  const common = ['partition gpu', '2 nodes: a, b', 'waited 1 m 00 s in the queue']
  const running = sourceOf(events, { state: 'running', now: 600, files: [file] })
  const limit = 'time limit 1 h 00 m'
  expect((await ask(running, 'workers', {})).allocations).toEqual([
    { title: 'job 77', facts: [...common, limit, 'at most 50 m 00 s left'] },
  ])
  const ended = sourceOf(events, { state: 'ended', now: 600, files: [file] })
  expect((await ask(ended, 'workers', {})).allocations).toEqual([
    { title: 'job 77', facts: [...common, limit] },
  ])
})

it('a drained node is draining until its tasks end, and a lost node has a reason', async () => {
  const nodes = ['n1', 'n2', 'n3', 'n4'].map((nodeId) => ({ nodeId, cores: 2 }))
  const tasks = ['n1', 'n2'].map((node, at) => {
    const end = at === 1 ? { end: 5 } : {}
    return { uid: `t${at}`, start: 1, worker: `${node}/local/w1`, ...end }
  })
  const events = eventsOf({ nodes, tasks, end: 60 }).filter(
    ({ event_type: type }) => type !== 'SessionEnded',
  )
  const drained = ['n1', 'n2'].map((node_id) =>
    viewEvent('tutti.NodeDrained', null, { event_time: 10, node_id }),
  )
  const lost = { event_time: 20, node_id: 'n3', reason: 'silent for 30 s', tasks: [] }
  const all = [...events, ...drained, viewEvent('tutti.NodeLost', null, lost)]
  const view = await ask(sourceOf(all, { state: 'running', now: 30 }), 'workers', {})
  expect(view.nodes.map(({ nodeId, state, reason }) => [nodeId, state, reason])).toEqual([
    ['n4', 'here', ''],
    ['n1', 'draining', 'drained'],
    ['n2', 'left', 'drained'],
    ['n3', 'lost', 'silent for 30 s'],
  ])
})

it('a lost worker has the time and the reason, and after the run none is idle', async () => {
  const nodes = [{ nodeId: 'n1', cores: 3 }]
  const tasks = ['w1', 'w2', 'w3'].map((worker, at) => {
    const end = at === 2 ? {} : { end: 3 + at }
    return { uid: `t${at}`, start: 1 + at, worker: `n1/local/${worker}`, ...end }
  })
  const running = eventsOf({ nodes, tasks, end: 60 }).filter(
    ({ event_type: type }) => type !== 'SessionEnded',
  )
  const loss = { event_time: 20, worker_id: 'n1/local/w2', reason: 'ended by SIGKILL' }
  running.push(viewEvent('tutti.WorkerLost', null, loss))
  const now = await ask(sourceOf(running, { state: 'running', now: 30 }), 'workers', {})
  expect(now.nodes.map(({ state }) => state)).toEqual(['here'])
  expect(now.workers).toMatchObject([
    { id: 'n1/local/w3', state: 'busy', ageSeconds: 27, lost: null, reason: '' },
    { id: 'n1/local/w1', state: 'idle', ageSeconds: 29, idleSeconds: 27 },
    { id: 'n1/local/w2', state: 'lost', ageSeconds: 18, lost: 20, reason: 'ended by SIGKILL' },
  ])
  const over = await ask(sourceOf(running, { state: 'interrupted', now: 30 }), 'workers', {})
  expect(over.nodes.map(({ state }) => state)).toEqual(['stayed'])
  expect(over.workers.map(({ id, state }) => [id, state])).toEqual([
    ['n1/local/w1', 'gone'],
    ['n1/local/w2', 'lost'],
    ['n1/local/w3', 'gone'],
  ])
})
