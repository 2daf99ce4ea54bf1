import { availableParallelism } from 'node:os'
import { describe, expect, it } from 'vitest'
import {
  type Attention,
  candidateThreads,
  chooseTuning,
  describeTuning,
  excessWarning,
  type FixedSettings,
  type Measurements,
  nothingMeasured,
  type TuningFacts,
  type TuningLimits,
} from '../../../../../src/inference/engines/llama/tuning/tuning.ts'
import { openEngine, useTinyModel } from '../open-engine.ts'

const tiny = useTinyModel()
const limits: TuningLimits = { maxThreads: 8, cacheBytes: null }
const noFacts: TuningFacts = { cacheBytes: null, busyCores: 0 }
const free: FixedSettings = { threads: null, flashAttention: 'auto', batchSize: null }

/** Rows of threads, milliseconds per token of one answer, and of many. */
const withThreads = (...rows: readonly (readonly [number, number, number?])[]): Measurements => ({
  ...nothingMeasured,
  threads: rows.map(([threads, one, many = null]) => ({ threads, one, many })),
})

describe('the number of threads', () => {
  it.each([
    [1, [1]],
    [2, [2, 1]],
    [16, [16, 15, 8, 1]],
  ])('thread counts up to %d are tried as %j', (max, expected) => {
    expect(candidateThreads(max)).toEqual(expected)
  })

  it.each<[string, Measurements, { few: number; many: number }]>([
    ['nothing', nothingMeasured, { few: 8, many: 8 }],
    ['one number', withThreads([1, 5]), { few: 1, many: 1 }],
    ['threads that stall', withThreads([2, 9, 8], [1, 2, 1]), { few: 1, many: 1 }],
    ['threads that help', withThreads([2, 1.2, 0.6], [1, 2, 1]), { few: 2, many: 2 }],
    ['help for many answers alone', withThreads([2, 9, 0.6], [1, 2, 1]), { few: 1, many: 2 }],
    ['many not measured', withThreads([2, 9], [1, 2]), { few: 1, many: 1 }],
    [
      'nearly equal times',
      withThreads([8, 1.98, 1], [7, 2.01, 1.02], [4, 2, 1.4], [1, 6, 4]),
      { few: 4, many: 7 },
    ],
  ])('with %s', (_, measured, expected) => {
    expect(chooseTuning(measured, free, limits).threads).toEqual(expected)
  })

  it('more threads than cores are told before anything is measured', async () => {
    expect([excessWarning(1, 2), excessWarning(2, 2)]).toEqual([null, null])
    const cores = availableParallelism()
    const threads = 4 * cores
    const warnings: string[] = []
    await openEngine(tiny.path, {
      threads,
      flashAttention: 'auto',
      log: { warn: (code, message) => warnings.push(`${code}: ${message}`) },
    })
    expect(warnings).toEqual([`ThreadsStall: ${excessWarning(threads, cores)}`])
    expect(excessWarning(64, 2)).toMatch(
      /^engine.threads is 64, .* 2 cores: .* set .* to 2 at most/,
    )
  })
})

/** The times of one kind of context are 1; those of the other are how much slower it is. */
const attentionOf = (plainMany: number, flashMessages: number): Measurements => ({
  ...nothingMeasured,
  attention: { plain: { many: plainMany, chat: 1 }, flash: { many: 1, chat: flashMessages } },
})

const small = 2 ** 20
const large = 2 ** 30

it.each<[string, Measurements, number | null, Attention]>([
  ['nothing', nothingMeasured, small, 'plain'],
  ['equal times', attentionOf(1, 1), small, 'plain'],
  ['a gain without loss', attentionOf(2, 1), small, 'flash'],
  ['more gain than loss', attentionOf(2, 1.3), small, 'flash'],
  ['more loss than gain', attentionOf(1.3, 2), small, 'plain'],
  ['a large gain of each kind', attentionOf(2, 3), small, 'both'],
  ['a large gain of each kind and no memory for both', attentionOf(2, 3), large, 'plain'],
  ['a large gain of each kind and an unknown size', attentionOf(3, 2), null, 'flash'],
])('attention with %s', (_, measured, cacheBytes, expected) => {
  expect(chooseTuning(measured, free, { maxThreads: 1, cacheBytes }).attention).toBe(expected)
})

it.each([
  ['nothing measured', [], 512],
  ['equal times', [1, 1, 1], 128],
  ['a gain of long steps', [1.2, 1.1, 1], 512],
  ['no time for the longest', [1.2, 1], 256],
])('the size of steps with %s', (_, ms, expected) => {
  const prompts = ms.map((time, at) => ({ tokens: 128 * 2 ** at, ms: time }))
  expect(chooseTuning({ ...nothingMeasured, prompts }, free, limits).batchSize).toBe(expected)
})

it('a fixed setting is used, whatever was measured', () => {
  const measured: Measurements = {
    threads: [{ threads: 1, one: 1, many: 1 }],
    attention: { plain: { many: 2, chat: 2 }, flash: { many: 1, chat: 1 } },
    prompts: [{ tokens: 128, ms: 1 }],
  }
  const fixed: FixedSettings = { threads: 3, flashAttention: false, batchSize: 7 }
  const expected = { threads: { few: 3, many: 3 }, attention: 'plain', batchSize: 7 }
  expect(chooseTuning(measured, fixed, limits)).toEqual(expected)
})

it('one line has the settings and their reasons', () => {
  const measured: Measurements = {
    threads: [
      { threads: 2, one: 10, many: 2 },
      { threads: 1, one: 5, many: null },
    ],
    attention: { plain: { many: 2, chat: 1 }, flash: { many: 1, chat: 1 } },
    prompts: [],
  }
  expect(describeTuning(chooseTuning(measured, free, limits), measured, noFacts)).toBe(
    '1 thread, 2 for many answers ' +
      '(tokens/s: 100 with 2 threads and 500 for many, 200 with 1 thread); ' +
      'flash attention on (many answers 1000 tokens/s with it, 500 without; ' +
      'messages of a chat 1000 with it, 1000 without); up to 512 prompt tokens per step',
  )
  const threads = { maxThreads: 2, cacheBytes: null }
  expect(
    describeTuning(chooseTuning(nothingMeasured, free, threads), nothingMeasured, noFacts),
  ).toBe('2 threads; flash attention off; up to 512 prompt tokens per step')
})

it('the line tells the memory of a second context, or what it would take', () => {
  const measured = attentionOf(2, 4)
  const describeWith = (cacheBytes: number): string => {
    const tuning = chooseTuning(measured, free, { maxThreads: 1, cacheBytes })
    return describeTuning(tuning, measured, { cacheBytes, busyCores: 0 })
  }
  expect(describeWith(small)).toContain(
    'flash attention for prompts below 128 tokens, in a second context of 1 MB (many answers 1000',
  )
  expect(describeWith(large)).toMatch(
    /flash attention off \(.*1000 without; a context for each would take 1024 MB more\); /,
  )
})

it('the line says which cores other programs use', () => {
  const tuning = chooseTuning(nothingMeasured, free, { maxThreads: 1, cacheBytes: null })
  expect(describeTuning(tuning, nothingMeasured, { cacheBytes: null, busyCores: 3 })).toMatch(
    /^1 thread, because other programs use 3 cores; flash/,
  )
})
