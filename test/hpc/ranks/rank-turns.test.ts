import { expect, it } from 'vitest'
import { RankTurns, RankWorkers } from '../../../src/hpc/ranks/rank-turns.ts'

it('MPI tasks of two sessions do not wait for slots at the same time', () => {
  const turns = new RankTurns()
  const [a, b] = [{}, {}]
  const started: string[] = []
  const enter = (owner: object, name: string): void =>
    turns.enter(owner, () => void started.push(name))
  enter(a, 'a1')
  enter(a, 'a2')
  enter(b, 'b1')
  enter(a, 'a3')
  enter(b, 'b2')
  expect(started).toEqual(['a1', 'a2'])
  turns.leave()
  expect(started).toEqual(['a1', 'a2'])
  turns.leave()
  expect(started).toEqual(['a1', 'a2', 'b1'])
  turns.leave()
  expect(started).toEqual(['a1', 'a2', 'b1', 'a3'])
  turns.leave()
  turns.leave()
  enter(a, 'a4')
  expect(started.slice(4)).toEqual(['b2', 'a4'])
})

it('MPI programs that run at the same time have workers of their own', () => {
  const workers = new RankWorkers()
  expect(['n1', 'n1', 'n2', 'n1'].map((node) => workers.assign(node))).toEqual([
    'n1/ranks/1',
    'n1/ranks/2',
    'n2/ranks/1',
    'n1/ranks/3',
  ])
  workers.release('n1/ranks/2')
  expect([workers.assign('n1'), workers.assign('n1')]).toEqual(['n1/ranks/2', 'n1/ranks/4'])
})
