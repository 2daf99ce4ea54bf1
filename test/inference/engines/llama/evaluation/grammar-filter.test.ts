import { describe, expect, it } from 'vitest'
import {
  type GrammarState,
  TokenGroups,
} from '../../../../../src/inference/engines/llama/evaluation/grammar-filter.ts'
import type { OutputFormat } from '../../../../../src/inference/generation/inference-engine.ts'
import { RecordingGeneration, toRequest } from '../../generation.ts'
import { storyModel, useEngine } from '../open-engine.ts'

const singles = Array.from({ length: 256 }, (_, byte) => [byte])
const words = ['not', 'na', 'name', ' n', ' na', ' x', ' xy', '  ', ' éa', ' è', '"a', 'é', '<end>']
const spelled = [...singles, ...words.map((word) => [...Buffer.from(word)])]
const end = spelled.length - 1
const idOf = (word: string): number => 256 + words.indexOf(word)
const groups = new TokenGroups({
  size: spelled.length,
  bytesOf: (token) => spelled[token] ?? null,
  isEnd: (token) => token === end,
})

/** Allows the beginnings of some texts. */
function stateOf(texts: readonly string[]): GrammarState {
  const bytes = texts.map((text) => [...Buffer.from(text)])
  const startsWith = (text: readonly number[], token: number): boolean =>
    (spelled[token] ?? []).every((byte, at) => text[at] === byte)
  return {
    isInCharacter: false,
    isNext: (token) =>
      token === end ? texts.includes('') : bytes.some((text) => startsWith(text, token)),
    accept(token) {
      const length = spelled[token]?.length ?? 0
      const rest = bytes.filter((text) => startsWith(text, token))
      bytes.splice(0, Infinity, ...rest.map((text) => text.slice(length)))
    },
    follow: () => {},
  }
}

describe('TokenGroups', () => {
  it.each<[string, readonly string[], readonly string[], readonly string[]]>([
    ['tokens with the same first byte', ['name'], ['not', 'na', 'name'], [' na', '"a', 'é']],
    [
      'after a space, tokens with the same next character',
      [' name'],
      [' n', ' na'],
      [' x', ' xy', '  ', ' éa', 'na'],
    ],
    ['after a space, tokens without a shorter one', [' éa'], [' éa'], [' è', ' n', ' na']],
    ['tokens of several bytes', ['é', '"a'], ['é', '"a'], ['na']],
  ])('candidates are %s', (_, texts, among, others) => {
    expect(groups.isComplete).toBe(true)
    const candidates = new Set(groups.candidates(stateOf(texts)))
    expect(among.filter((word) => !candidates.has(idOf(word)))).toEqual([])
    expect(others.filter((word) => candidates.has(idOf(word)))).toEqual([])
    expect(candidates.has(end)).toBe(false)
  })

  it('the end is a candidate where the grammar allows it', () => {
    expect(groups.candidates(stateOf(['']))).toEqual([end])
  })

  it('everything that is allowed is among the candidates', () => {
    for (const text of ['name', ' name', '   ', '"abc', 'é', 'not']) {
      const state = stateOf([text])
      const candidates = new Set(groups.candidates(state))
      const allowed = [...spelled.keys()].filter((token) => state.isNext(token))
      expect(allowed.filter((token) => !candidates.has(token))).toEqual([])
    }
  })

  it('bytes that are no UTF-8 together are refused', () => {
    const anything: GrammarState = {
      isInCharacter: false,
      isNext: () => true,
      accept: () => {},
      follow: () => {},
    }
    const state = groups.strict(anything)
    expect(state.isNext(0x80)).toBe(false)
    expect(state.isNext(0xed)).toBe(true)
    state.accept(0xed)
    expect(groups.candidates(state)).toEqual(Array.from({ length: 32 }, (_, at) => 0x80 + at))
    // A surrogate.
    expect(state.isNext(0xa0)).toBe(false)
    expect(state.isNext(0x22)).toBe(false)
    expect(state.isNext(0x9f)).toBe(true)
    // As if a native sampler had applied the grammar.
    state.follow(0x9f)
    state.accept(0xbf)
    expect(state.isNext(0x22)).toBe(true)
  })

  it('a vocabulary without single bytes cannot be tried', () => {
    const few = new TokenGroups({
      size: 1,
      bytesOf: () => [...Buffer.from('name')],
      isEnd: () => false,
    })
    expect(few.isComplete).toBe(false)
  })
})

describe('a grammar that the model would not follow by itself', () => {
  const engine = useEngine(storyModel, { contextLength: 256 })
  const schema = {
    type: 'object',
    properties: {
      kind: { enum: ['apple', 'apricot', 'Ünicorn'] },
      count: { type: 'integer' },
      tags: { type: 'array', items: { type: 'string', maxLength: 8 }, minItems: 2, maxItems: 3 },
    },
    required: ['kind', 'count', 'tags'],
    additionalProperties: false,
  }
  const format: OutputFormat = { kind: 'json_schema', schema }

  it.each([
    ['greedy', { temperature: 0 }],
    ['hot', { temperature: 1.5, topK: 0, topP: 1 }],
    ['with a penalty', { temperature: 0.8, repetitionPenalty: 1.3 }],
    ['with a bias', { temperature: 0.8, frequencyPenalty: 1, logitBias: { 29892: -5 } }],
    ['with log probabilities', { temperature: 0.8, logprobs: 3 }],
  ])('holds: %s', async (_, sampling) => {
    const listener = new RecordingGeneration()
    const requests = Array.from({ length: 6 }, (_none, seed) =>
      toRequest(
        { kind: 'text', text: 'Once upon a time' },
        { ...sampling, format, seed, maxTokens: 240 },
        { id: `${seed}` },
      ),
    )
    await engine().generate(requests, listener)
    const whole = listener.ends.filter((one) => one.kind === 'done' && one.finishReason === 'stop')
    expect(whole.length).toBeGreaterThan(0)
    for (const { id } of whole) {
      const value = JSON.parse(listener.textOf(id)) as Record<string, unknown>
      expect(Object.keys(value)).toEqual(['kind', 'count', 'tags'])
      expect(schema.properties.kind.enum).toContain(value['kind'])
      expect(Number.isInteger(value['count'])).toBe(true)
    }
  })
})
