import { expect, it } from 'vitest'
import { collectColumns } from '../../src/views/moments/run-columns.ts'
import { eventsOf, passOver } from './synthetic-run.ts'

const runOf = (count: number) => {
  const tasks = Array.from({ length: count }, (_, at) => ({
    uid: `t${at}`,
    start: at,
    ...(at % 3 === 0 ? {} : { end: at + 1 }),
  }))
  return passOver(eventsOf({ nodes: [{ nodeId: 'n1', cores: 1 }], tasks, end: count }))
}

it('columns: those in the memory of earlier ones are equal to new ones', () => {
  const reused = [9, 5, 12].reduce(
    (earlier, count) => collectColumns(runOf(count), earlier),
    collectColumns(runOf(7)),
  )
  expect(reused).toEqual(collectColumns(runOf(12)))
  const buffer = reused.attempts.start.buffer
  const smaller = collectColumns(runOf(4), reused)
  expect(smaller).toEqual(collectColumns(runOf(4)))
  expect(smaller.attempts.start.buffer).toBe(buffer)
})
