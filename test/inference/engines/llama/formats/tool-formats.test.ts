import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import {
  OutputParser,
  type OutputParserOptions,
} from '../../../../../src/inference/engines/llama/formats/output-parser.ts'
import { readingOf } from '../../../../../src/inference/engines/llama/formats/output-reading.ts'
import { reasoningMarksOf } from '../../../../../src/inference/engines/llama/formats/reasoning.ts'
import {
  forcedFormat,
  toolFormatOf,
} from '../../../../../src/inference/engines/llama/formats/tool-formats.ts'
import type { Vocabulary } from '../../../../../src/inference/engines/llama/runtime.ts'

const tools = [
  {
    name: 'weather',
    parameters: {
      type: 'object',
      properties: { city: { type: 'string' }, days: { type: 'integer' }, deep: { type: 'object' } },
    },
  },
  { name: 'now' },
]

interface Read {
  readonly text: string
  readonly reasoning: string
  readonly calls: readonly { readonly name: string; readonly arguments: string }[]
}

/** What a parser makes of the pieces, in their order. */
function read(
  pieces: readonly string[],
  options: Partial<OutputParserOptions>,
  isCut = false,
): Read {
  const parser = new OutputParser({ format: null, tools, reasoning: null, ...options })
  const calls: { name: string; arguments: string }[] = []
  let text = ''
  let reasoning = ''
  for (const piece of [...pieces.map((one) => parser.push(one)), parser.end(isCut)]) {
    text += piece.text
    reasoning += piece.reasoning
    for (const { index, id, name, arguments: more } of piece.calls) {
      if (name !== undefined) {
        expect(id).toBeTypeOf('string')
        expect(index).toBe(calls.length)
        calls.push({ name, arguments: '' })
      }
      const call = calls[index]
      if (call === undefined) throw new Error('arguments without a call')
      call.arguments += more
    }
  }
  return { text, reasoning, calls }
}

const parsed = ({ calls, ...rest }: Read) => ({
  ...rest,
  calls: calls.map(({ name, arguments: text }) => [name, JSON.parse(text) as unknown]),
})

const rome = '{"city": "Rome", "days": 2, "deep": {"x": [1, "}"]}}'
const romeValue = { city: 'Rome', days: 2, deep: { x: [1, '}'] } }

interface Family {
  /** Texts of its template, by which it is recognised. */
  readonly template: string
  readonly one: string
  readonly two: string
  /** Text may stand before calls, and after them. Default both. */
  readonly around?: 'none' | 'before'
}

/** Written by hand after what the makers of the models document. */
const families = JSON.parse(
  readFileSync(new URL('families.json', import.meta.url), 'utf8'),
) as Readonly<Record<string, Family>>

const formatOf = ({ template }: Family) => ({ format: toolFormatOf(template) })

describe('parallel_tool_calls: false', () => {
  const vocabulary = { tokenize: () => [] } as unknown as Vocabulary
  const parserOf = (parallelToolCalls: boolean) =>
    readingOf({
      input: { kind: 'chat', messages: [], tools, toolChoice: 'auto', parallelToolCalls },
      hasGrammar: false,
      template: null,
      prompt: '',
      vocabulary,
    }).parser

  it('one call is asked of the parser', () => {
    expect(parserOf(false)?.maxCalls).toBe(1)
    expect(parserOf(true)?.maxCalls).toBeUndefined()
  })

  it.each(Object.entries(families))('%s: of two calls the first is told', (_, family) => {
    const { calls } = parsed(read([family.two], { ...formatOf(family), maxCalls: 1 }))
    const all = parsed(read([family.two], formatOf(family)))
    expect(all.calls.length).toBeGreaterThan(1)
    expect(calls).toEqual(all.calls.slice(0, 1))
  })
})

describe.each(Object.entries(families))('tool calls of %s', (_, family) => {
  const { one, two, around } = family
  const options = formatOf(family)

  it('one call, whole and letter by letter', () => {
    const whole = read([one], options)
    const calls = [['weather', romeValue]]
    expect(parsed(whole)).toEqual({ text: '', reasoning: '', calls })
    expect(read(Array.from(one), options)).toEqual(whole)
  })

  it('two calls, cut at every letter', () => {
    const whole = read([two], options)
    const calls = [
      ['weather', romeValue],
      ['now', {}],
    ]
    expect(parsed(whole)).toEqual({ text: '', reasoning: '', calls })
    for (let at = 0; at <= two.length; at++) {
      expect(read([two.slice(0, at), two.slice(at)], options), two.slice(0, at)).toEqual(whole)
    }
  })

  it('truncated at every letter: what came of the arguments, and no more', () => {
    const full = read([one], options).calls[0]?.arguments ?? ''
    for (let at = 0; at <= one.length; at++) {
      const { calls } = read(Array.from(one.slice(0, at)), options, true)
      expect(calls.length).toBeLessThanOrEqual(1)
      const [call] = calls
      if (call !== undefined) expect(full.startsWith(call.arguments), call.arguments).toBe(true)
    }
  })

  if (around !== 'none')
    it('text before a call is content', () => {
      const before = `I look it up.\n\n${one}`
      const calls = [['weather', romeValue]]
      expect(parsed(read(Array.from(before), options))).toMatchObject({
        text: 'I look it up.',
        calls,
      })
    })

  if (around === undefined)
    it('text after a call is content', () => {
      const calls = [['weather', romeValue]]
      const after = read(Array.from(`${one}\nDone.`), options)
      expect(parsed(after)).toMatchObject({ text: expect.stringContaining('Done.'), calls })
    })

  it('text without a call stays as it is', () => {
    for (const text of [
      'Just a text.',
      ' {"a": 1} and <b> [x] > 1 \n',
      '{"name": "other"}',
      '<t',
    ]) {
      expect(read(Array.from(text), options)).toEqual({ text, reasoning: '', calls: [] })
    }
  })

  if (around === undefined)
    it('a call of a tool that does not exist is text', () => {
      const other = one.replaceAll('weather', 'forecast')
      const { text, calls } = read(Array.from(other), options)
      expect(calls).toEqual([])
      expect(text).toBe(other)
    })
})

describe('reasoning', () => {
  const marks = [
    ['<think>', '</think>', 'nothing in particular'],
    ['[THINK]', '[/THINK]', '[THINK]'],
    ['<|START_THINKING|>', '<|END_THINKING|>', '<|START_THINKING|>'],
    ['<seed:think>', '</seed:think>', '<seed:think>'],
    ['<|channel>thought', '<channel|>', '<|channel>thought'],
  ] as const

  it.each(marks)('%s: apart from the content, however it is cut', (open, close, template) => {
    const reasoning = reasoningMarksOf(template)
    const output = `${open}\nFirst <this>,\n\nthen that.\n${close}\n\nThe answer.\n`
    const wanted = { reasoning: 'First <this>,\n\nthen that.', text: 'The answer.\n', calls: [] }
    for (let at = 0; at <= output.length; at++) {
      expect(read([output.slice(0, at), output.slice(at)], { reasoning })).toEqual(wanted)
    }
    expect(read(Array.from(output), { reasoning })).toEqual(wanted)
  })

  it('is open from the beginning where the prompt has opened it', () => {
    const options = { reasoning: reasoningMarksOf(''), isReasoning: true }
    const found = read(Array.from('Hm.\n</think>\n\nYes.'), options)
    expect(found).toEqual({ reasoning: 'Hm.', text: 'Yes.', calls: [] })
    expect(read(['Hm. It is cut'], options)).toMatchObject({ reasoning: 'Hm. It is cut', text: '' })
  })

  it('is not searched for in the middle of an answer', () => {
    const text = 'Write <think> to think, </think> to stop.'
    expect(read(Array.from(text), { reasoning: reasoningMarksOf('') })).toMatchObject({ text })
  })

  it('stands before calls', () => {
    const options = { reasoning: reasoningMarksOf(''), format: toolFormatOf('<tool_call>') }
    const output = '<think>Hm.</think>\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    const wanted = { reasoning: 'Hm.', text: '', calls: [{ name: 'now', arguments: '{}' }] }
    expect(read(Array.from(output), options)).toEqual(wanted)
    const bare = { reasoning: reasoningMarksOf(''), format: toolFormatOf('ipython') }
    const json = '<think>Hm.</think>\n{"name": "now", "parameters": {}}'
    expect(read(Array.from(json), bare)).toEqual(wanted)
  })

  it('gpt-oss: channels for reasoning, what is said before calls, and the answer', () => {
    const options = { format: toolFormatOf('<|channel|> <|start|>') }
    const output =
      '<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>' +
      'I look.<|end|><|start|>assistant to=functions.now<|channel|>commentary json<|message|>{}' +
      '<|call|>'
    const wanted = { reasoning: 'Hm.', text: 'I look.', calls: [{ name: 'now', arguments: '{}' }] }
    expect(read(Array.from(output), options)).toEqual(wanted)
    const answer =
      '<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.'
    expect(read(Array.from(answer), options)).toMatchObject({ reasoning: 'Hm.', text: 'Yes.' })
  })
})

describe('a forced call', () => {
  const [weather, now] = tools
  if (weather === undefined || now === undefined) throw new Error('there are two tools')

  it('that is cut off is a partial call, and never text', () => {
    const output = `{"name":"weather","arguments":${rome}}`
    for (let at = 0; at <= output.length; at++) {
      const given = Array.from(output.slice(0, at))
      const alone = read(given, { tools: [weather], format: forcedFormat([weather]) }, true)
      expect(alone).toMatchObject({ text: '', calls: [{ name: 'weather' }] })
      expect(rome.startsWith(alone.calls[0]?.arguments ?? '?')).toBe(true)
      const oneOfTwo = read(given, { format: forcedFormat(tools) }, true)
      expect(oneOfTwo.text).toBe('')
    }
  })
})
