import { describe, expect, it } from 'vitest'
import {
  type GrammarState,
  TokenGroups,
} from '../../../../../src/inference/engines/llama/evaluation/grammar-filter.ts'
import type { OutputFormat } from '../../../../../src/inference/generation/inference-engine.ts'
import { byRun } from '../../../../long-run.ts'
import { RecordingGeneration, toRequest } from '../../generation.ts'
import { storyModel, useEngine } from '../open-engine.ts'
import { startGrammar } from '../start-grammar.ts'

const singles = Array.from({ length: 256 }, (_, byte) => [byte])
const words = ['not', 'na', 'name', ' n', ' na', ' x', ' xy', '  ', ' éa', ' è', '"a', 'é', '<end>']
const spelled = [...singles, ...words.map((word) => [...Buffer.from(word)])]
const end = spelled.length - 1
const idOf = (word: string): number => 256 + words.indexOf(word)
const groups = new TokenGroups({
  size: spelled.length,
  bytesOf: (token) => spelled[token] ?? null,
  nameOf: () => '',
  isEnd: (token) => token === end,
  isTextless: () => false,
})

function begin(grammar: string): GrammarState {
  return groups.begin(startGrammar(grammar))
}

const candidatesOf = (answer: GrammarState): Set<number> =>
  new Set(groups.findCandidates(answer)?.flat())

describe('TokenGroups', () => {
  it.each<[string, string, readonly string[], readonly string[]]>([
    [
      'tokens with the same first byte',
      'root ::= "name"',
      ['not', 'na', 'name'],
      [' na', '"a', 'é'],
    ],
    [
      'after a space, tokens with the same next byte',
      'root ::= " name"',
      [' n', ' na'],
      [' x', ' xy', '  ', ' éa', 'na'],
    ],
    ['after a space, tokens of several bytes', 'root ::= " éa"', [' éa', ' è'], [' n', ' na']],
    ['tokens of several bytes', 'root ::= "é" | "\\"a"', ['é', '"a'], ['na']],
  ])('candidates are %s', (_, grammar, among, others) => {
    const candidates = candidatesOf(begin(grammar))
    expect(among.filter((word) => !candidates.has(idOf(word)))).toEqual([])
    expect(others.filter((word) => candidates.has(idOf(word)))).toEqual([])
    expect(candidates.has(end)).toBe(false)
  })

  it('the end is a candidate where the grammar allows it', () => {
    const answer = begin('root ::= "na"?')
    expect(candidatesOf(answer)).toContain(end)
    expect(answer.accept('n'.charCodeAt(0))).toBe(true)
    expect(candidatesOf(answer)).not.toContain(end)
    expect(answer.accept('a'.charCodeAt(0))).toBe(true)
    expect([...candidatesOf(answer)]).toEqual([end])
  })

  it('after a part of a character, candidates are the bytes that complete an allowed one', () => {
    const answer = begin('root ::= [é-ë]')
    expect([...candidatesOf(answer)]).toEqual([0xc3, idOf('é')])
    expect(answer.accept(0xc3)).toBe(true)
    expect([...candidatesOf(answer)]).toEqual([0xa9, 0xaa, 0xab])
    expect(answer.accept(0xaa)).toBe(true)
    expect([...candidatesOf(answer)]).toEqual([end])
  })

  it('bytes that are no UTF-8 together are refused', () => {
    const answer = begin('root ::= .*')
    expect(answer.isAllowed(0x80)).toBe(false)
    expect(answer.isAllowed(0xed)).toBe(true)
    expect(answer.accept(0xed)).toBe(true)
    // A surrogate.
    expect(answer.isAllowed(0xa0)).toBe(false)
    expect(answer.isAllowed(0x22)).toBe(false)
    expect(answer.isAllowed(0x9f)).toBe(true)
    expect(answer.accept(0x9f)).toBe(true)
    expect(answer.accept(0xbf)).toBe(true)
    expect(answer.isAllowed(0x22)).toBe(true)
  })

  it('tokens that are no UTF-8 after what is there are not among those allowed', () => {
    const answer = begin('root ::= .*')
    const later = Array.from({ length: 64 }, (_, at) => 0x80 + at)
    const never = [0xc0, 0xc1, ...Array.from({ length: 11 }, (_, at) => 0xf5 + at)]
    expect([...groups.findAllowed(answer).banned]).toEqual([0, ...later, ...never])
    expect(answer.accept(0xc3)).toBe(true)
    expect([...groups.findAllowed(answer).tokens]).toEqual(later)
  })

  it('a token that the grammar names is allowed whatever its characters are', () => {
    const answer = begin(`root ::= "x" <[${idOf('not')}]> !<[${idOf('na')}]> "n" | "xna"`)
    expect(answer.accept('x'.charCodeAt(0))).toBe(true)
    expect(groups.findCandidates(answer)).toBeNull()
    expect([...groups.findAllowed(answer).tokens]).toEqual([
      'n'.charCodeAt(0),
      idOf('not'),
      idOf('na'),
    ])
    expect(answer.accept(idOf('not'))).toBe(true)
    expect(answer.isAllowed(idOf('na'))).toBe(false)
    expect(answer.accept(idOf(' xy'))).toBe(true)
    expect([...groups.findAllowed(answer).tokens]).toEqual(['n'.charCodeAt(0)])
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
    // Two that are never UTF-8, and two that begin as the grammar allows, but continue differently.
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
