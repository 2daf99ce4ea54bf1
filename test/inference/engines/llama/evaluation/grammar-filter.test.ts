import { describe, expect, it } from 'vitest'
import { CharacterClasses } from '../../../../../src/inference/engines/llama/evaluation/alphabet.ts'
import {
  type GrammarState,
  TokenGroups,
} from '../../../../../src/inference/engines/llama/evaluation/grammar-filter.ts'
import type { OutputFormat } from '../../../../../src/inference/generation/inference-engine.ts'
import { byRun } from '../../../../long-run.ts'
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

/** Tells all characters of the texts apart. */
const classesOf = (texts: readonly string[]): CharacterClasses =>
  new CharacterClasses(texts.map((text) => JSON.stringify(text)).join(' '))

/** Allows the beginnings of some texts. */
function stateOf(texts: readonly string[]): GrammarState {
  const bytes = texts.map((text) => [...Buffer.from(text)])
  const startsWith = (text: readonly number[], token: number): boolean =>
    (spelled[token] ?? []).every((byte, at) => text[at] === byte)
  return {
    isInCharacter: false,
    isText: () => true,
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
    const candidates = new Set(groups.candidates(stateOf(texts), classesOf(texts)))
    expect(among.filter((word) => !candidates.has(idOf(word)))).toEqual([])
    expect(others.filter((word) => candidates.has(idOf(word)))).toEqual([])
    expect(candidates.has(end)).toBe(false)
  })

  it('the end is a candidate where the grammar allows it', () => {
    expect(groups.candidates(stateOf(['']), classesOf(['']))).toEqual([end])
  })

  it('everything that is allowed is among the candidates', () => {
    for (const text of ['name', ' name', '   ', '"abc', 'é', 'not']) {
      const state = stateOf([text])
      const candidates = new Set(groups.candidates(state, classesOf([text])))
      const allowed = [...spelled.keys()].filter((token) => state.isNext(token))
      expect(allowed.filter((token) => !candidates.has(token))).toEqual([])
    }
  })

  it('bytes that are no UTF-8 together are refused', () => {
    const anything: GrammarState = {
      isInCharacter: false,
      isText: () => true,
      isNext: () => true,
      accept: () => {},
      follow: () => {},
    }
    const state = groups.strict(anything)
    expect(state.isNext(0x80)).toBe(false)
    expect(state.isNext(0xed)).toBe(true)
    state.accept(0xed)
    const candidates = groups.candidates(state, classesOf([]))
    expect(candidates).toEqual(Array.from({ length: 32 }, (_, at) => 0x80 + at))
    // A surrogate.
    expect(state.isNext(0xa0)).toBe(false)
    expect(state.isNext(0x22)).toBe(false)
    expect(state.isNext(0x9f)).toBe(true)
    // As if a native sampler had applied the grammar.
    state.follow(0x9f)
    state.accept(0xbf)
    expect(state.isNext(0x22)).toBe(true)
  })

  it('tokens that are no UTF-8 after what is there are known', () => {
    const state = groups.strict({ ...stateOf([]), isNext: () => true, accept: () => {} })
    const later = Array.from({ length: 64 }, (_, at) => 0x80 + at)
    const never = [0xc0, 0xc1, ...Array.from({ length: 11 }, (_, at) => 0xf5 + at)]
    expect(groups.broken(state)).toEqual([...later, ...never])
    state.accept(0xc3)
    const inside = new Set(groups.broken(state))
    expect([...spelled.keys()].filter((token) => !inside.has(token))).toEqual(later)
  })

  it('a large vocabulary is tried by few tokens', () => {
    // Of 60,000 words, half begin with a space; characters of many alphabets follow.
    const characters = Array.from({ length: 3000 }, (_, at) => String.fromCodePoint(0xc0 + at))
    const ascii = Array.from({ length: 94 }, (_, at) => String.fromCodePoint(0x21 + at))
    const long = Array.from({ length: 10 }, (_, length) => 'x'.repeat(length))
    const begun = [...characters, ...ascii].flatMap((one) => [one, ` ${one}`])
    const all = begun.flatMap((beginning) => long.map((rest) => [...Buffer.from(beginning + rest)]))
    const bytes = [...singles, ...all]
    const large = new TokenGroups({
      size: bytes.length,
      bytesOf: (token) => bytes[token] ?? null,
      isEnd: () => false,
    })
    const textOf = (token: number): string => Buffer.from(bytes[token] ?? []).toString()
    let tried = 0
    const text: GrammarState = {
      isInCharacter: false,
      isText: () => true,
      isNext(token) {
        tried++
        return /^(?: ?"| ?\[| [^"a]*$)/u.test(textOf(token)) || (token >= 0xc2 && token <= 0xff)
      },
      accept: () => {},
      follow: () => {},
    }
    const candidates = new Set(large.candidates(text, new CharacterClasses('root ::= "\\"[a"')))
    expect(tried).toBeLessThan(30)
    expect(candidates.size).toBeGreaterThan(30_000)
    const missed = [...bytes.keys()].filter(
      (token) => /^(?: "| \[| [^"a])/u.test(textOf(token)) && !candidates.has(token),
    )
    expect(missed).toEqual([])
    expect([...candidates].filter((token) => textOf(token).startsWith(' a'))).toEqual([])
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

  it('bytes that are no UTF-8 are not chosen where it is applied to all tokens', async () => {
    const lastOf = async (text: string): Promise<number> =>
      (await engine().tokenize(`x${text}`)).at(-1) ?? 0
    // Llama's vocabulary has a token for each byte after three others.
    const tokenOfByte = (byte: number): number => 3 + byte
    // Two that are never UTF-8, and two that begin as the grammar allows, but do not go on so.
    const wanted = [tokenOfByte(0xff), tokenOfByte(0xfe), await lastOf('."'), await lastOf('?"')]
    const logitBias = Object.fromEntries(wanted.map((token, at) => [token, 100 - 5 * at]))
    const listener = new RecordingGeneration()
    const grammar = String.raw`root ::= [^"\x00-\x1F]{60,}`
    const text = { kind: 'text', text: 'Once upon a time' } as const
    const sampling = { temperature: 0, maxTokens: 12, logitBias }
    const free = { ...sampling, format: { kind: 'grammar', grammar } as const }
    await engine().generate([toRequest(text, free)], listener)
    expect(listener.textOf()).not.toContain('\uFFFD')
    expect(listener.textOf().length).toBeGreaterThan(12)
  })

  it.each([
    ['greedy', { temperature: 0 }],
    ['hot', { temperature: 1.5, topK: 0, topP: 1 }],
    ['with a penalty', { temperature: 0.8, repetitionPenalty: 1.3 }],
    ['with a bias', { temperature: 0.8, frequencyPenalty: 1, logitBias: { 29892: -5 } }],
    ['with log probabilities', { temperature: 0.8, logprobs: 3 }],
  ])('holds: %s', async (_, sampling) => {
    const listener = new RecordingGeneration()
    const requests = Array.from({ length: byRun(2, 6) }, (_none, seed) =>
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
