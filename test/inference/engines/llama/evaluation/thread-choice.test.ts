import { availableParallelism } from 'node:os'
import { describe, expect, it } from 'vitest'
import {
  candidateThreads,
  excessWarning,
  fastestThreads,
  stallWarning,
} from '../../../../../src/inference/engines/llama/evaluation/thread-choice.ts'
import { openEngine, useTinyModel } from '../open-engine.ts'

const tiny = useTinyModel()

describe('the number of threads', () => {
  it.each([
    [1, [1]],
    [2, [2, 1]],
    [16, [16, 15, 8, 1]],
  ])('thread counts up to %d are tried as %j', (max, expected) => {
    expect(candidateThreads(max)).toEqual(expected)
  })

  it.each<[readonly (readonly [number, number])[], number]>([
    [[[1, 5]], 1],
    [
      [
        [2, 9],
        [1, 2],
      ],
      1,
    ],
    [
      [
        [2, 1.2],
        [1, 2],
      ],
      2,
    ],
    [
      [
        [8, 1.98],
        [7, 2.01],
        [4, 2],
        [1, 6],
      ],
      4,
    ],
  ])('the fastest thread count by %j is %d', (times, expected) => {
    expect(fastestThreads(new Map(times))).toBe(expected)
  })

  it('a number that stalls is told with what was measured', () => {
    const times = new Map([
      [2, 10],
      [1, 2],
    ])
    expect(stallWarning(times, 1)).toBeNull()
    expect(stallWarning(times, 2)).toBe(
      'with 2 threads the model makes 100 tokens/s, with 1 it makes 500 tokens/s; ' +
        'set engine.threads to 1, or leave it out',
    )
    expect(
      stallWarning(
        new Map([
          [2, 2.5],
          [1, 2],
        ]),
        2,
      ),
    ).toBeNull()
  })

  it('more threads than cores are told before anything is measured', async () => {
    expect([excessWarning(1, 2), excessWarning(2, 2)]).toEqual([null, null])
    const cores = availableParallelism()
    const threads = 4 * cores
    const warnings: string[] = []
    await openEngine(tiny.path, {
      threads,
      log: { warn: (code, message) => warnings.push(`${code}: ${message}`) },
    })
    expect(warnings).toEqual([`ThreadsStall: ${excessWarning(threads, cores)}`])
    expect(excessWarning(64, 2)).toMatch(
      /^engine.threads is 64, .* 2 cores: .* set .* to 2 at most/,
    )
  })

  it('an engine without a number of threads measures, and works', async () => {
    const engine = await openEngine(tiny.path, { threads: null, sequences: 2 })
    expect(await engine.tokenize('a')).not.toEqual([])
  })
})
