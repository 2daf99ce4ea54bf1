import { describe, expect, it } from 'vitest'
import { encode } from '../../../src/cluster/wire/codec.ts'
import {
  packCompletions,
  unpackCompletions,
  type WireCompletion,
} from '../../../src/cluster/wire/completions.ts'

const completion = (index: number, workerId: string, value: unknown): WireCompletion => ({
  index,
  uid: `task-${index}`,
  attempt: index,
  beganMs: index + 0.25,
  atMs: index + 0.5,
  workerId,
  value,
})

describe('completions as columns', () => {
  it('completions as columns are unchanged after a round trip', () => {
    const all = [
      completion(1, 'a/1', { x: 1 }),
      completion(2, 'a/2', undefined),
      completion(3, 'a/1', null),
    ]
    expect(unpackCompletions(packCompletions(all))).toEqual(all)
    expect(unpackCompletions(packCompletions([]))).toEqual([])
    const [first, second, third] = all
    const late = [second, second, first, second, third].filter((one) => one !== undefined)
    expect(unpackCompletions(packCompletions(late))).toEqual(late)
  })

  it('completions as columns take no more than their numbers and uids, also optimized', () => {
    const all = Array.from({ length: 500 }, () => completion(1, 'a/1', undefined))
    const bytesOf = (): number => encode(packCompletions(all)).length / all.length
    const first = bytesOf()
    expect(first).toBeLessThan(4 + 2 * 8 + 'task-1\n'.length + 1)
    for (let round = 0; round < 300; round++) expect(bytesOf()).toBe(first)
  })

  it('completions as columns name each worker once, and no values where there are none', () => {
    const ids = ['a/1', 'a/2', 'a/1', 'a/1']
    const columns = packCompletions(ids.map((id, index) => completion(index, id, undefined)))
    expect(columns.workerIds).toEqual(['a/1', 'a/2'])
    expect(columns.workers).toEqual([0, 1, 0, 0])
    expect(columns.values).toBeNull()
  })
})
