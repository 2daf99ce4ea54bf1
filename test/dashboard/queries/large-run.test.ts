import { expect, it } from 'vitest'
import { answersRevision } from '../../../src/dashboard/queries/queries.ts'
import { eventually } from '../../eventually.ts'
import { eventsOf } from '../../views/synthetic-run.ts'
import { ask, sourceOf } from './query-run.ts'

it('the sentences about a large run follow its first panels', async () => {
  const tasks = Array.from({ length: 20_001 }, (_, at) => ({
    uid: `t${at}`,
    start: at,
    end: at + 1,
  }))
  const source = sourceOf(eventsOf({ nodes: [{ nodeId: 'n1', cores: 1 }], tasks, end: 20_001 }))
  const first = await ask(source, 'head', {})
  expect(first.verdict).toContain('All 20,001 tasks succeeded')
  expect(first.sentences).toEqual([])
  const past = await ask(source, 'head', { filter: { at: 20_000.5 } })
  expect(past.counts).toMatchObject({ done: 20_000, running: 1 })
  await eventually(() => expect(answersRevision(source.pass)).toBe(1))
  expect((await ask(source, 'head', {})).sentences).not.toEqual([])
  expect((await ask(source, 'head', { filter: { at: 20_000.5 } })).sentences).toEqual([])
})

it('while a record is read, no sentences about the run are computed', async () => {
  const tasks = [{ uid: 't1', start: 0, end: 9 }]
  const events = eventsOf({ nodes: [{ nodeId: 'n1', cores: 2 }], tasks, end: 9 })
  const reading = { bytes: 1, total: 3 }
  const part = await ask(sourceOf(events, { reading }), 'head', {})
  expect(part.verdict).toBe('The record is being read. The numbers are those of its first 33 %.')
  expect(part.sentences).toEqual([])
  expect((await ask(sourceOf(events), 'head', {})).sentences).not.toEqual([])
})

it('the sentences about a large run that goes on are those of one moment', async () => {
  const tasks = Array.from({ length: 20_001 }, (_, at) => ({ uid: `t${at}`, start: at }))
  const nodes = [{ nodeId: 'n1', cores: 1 }]
  const events = eventsOf({ nodes, tasks, end: 20_001 }).slice(0, -1)
  const source = sourceOf(events, { state: 'running' })
  expect((await ask(source, 'head', {})).sentences).toEqual([])
  await eventually(() => expect(answersRevision(source.pass)).toBe(1))
  expect((await ask(source, 'head', {})).sentences).not.toEqual([])
  expect((await ask(source, 'head', {})).counts.running).toBe(20_001)
})
