import { readFileSync } from 'node:fs'
import { isDeepStrictEqual } from 'node:util'
import { describe, expect, it } from 'vitest'
import { systemClock } from '../../../../../src/foundation/clock.ts'
import {
  OutputParser,
  type OutputParserOptions,
} from '../../../../../src/inference/engines/llama/formats/output-parser.ts'
import { findReasoningMarks } from '../../../../../src/inference/engines/llama/formats/reasoning.ts'
import {
  forcedFormat,
  findToolFormat,
} from '../../../../../src/inference/engines/llama/formats/tool-formats.ts'
import { renderPrompt } from '../../../../../src/inference/engines/llama/prepared-prompt.ts'
import type { RequestEnd } from '../../../../../src/inference/engines/llama/protocol.ts'
import { StepLoop } from '../../../../../src/inference/engines/llama/step-loop.ts'
import type { GenerationDelta } from '../../../../../src/inference/generation/inference-engine.ts'
import { toRequest } from '../../generation.ts'
import { FakeRuntime } from '../fake-runtime.ts'
import { templateOf } from '../templates/template-of.ts'
import {
  collect,
  messages,
  parsed,
  type Read,
  read,
  readingBy,
  sources,
  tools,
} from './read-output.ts'

const rome = '{"city": "Rome", "days": 2, "deep": {"x": [1, "}"]}}'
const romeValue = { city: 'Rome', days: 2, deep: { x: [1, '}'] } }

interface Family {
  /** The name of the format that is chosen. */
  readonly format: string
  /** Templates of its models, among those that llama.cpp has. */
  readonly templates?: readonly string[]
  /** If llama.cpp has no template: one that reads tools as the real one does. */
  readonly template?: string
  readonly one: string
  readonly two: string
  /** Text may stand before calls, and after them. Default both. */
  readonly around?: 'none' | 'before'
}

/** Written by hand after what the makers of the models document. */
const families = JSON.parse(
  readFileSync(new URL('families.json', import.meta.url), 'utf8'),
) as Readonly<Record<string, Family>>

const cases = Object.entries(families).flatMap(([title, family]) =>
  (family.templates ?? [null]).map((name) => {
    const source = name === null ? family.template : sources.get(name)
    if (source === undefined) throw new Error(`there is no template ${name}`)
    return { title: name === null ? title : `${title}, ${name}`, family, source }
  }),
)

/** The reports of the engine's loop about an output, token by token. */
async function generated(source: string, output: string): Promise<Read> {
  const deltas: GenerationDelta[] = []
  const ended = Promise.withResolvers<RequestEnd>()
  const runtime = new FakeRuntime({
    slots: 1,
    batchSize: 100_000,
    contextLength: 100_000,
    template: templateOf(source),
    say: () => output,
  })
  const loop = new StepLoop({
    runtime,
    clock: systemClock,
    onStep: () => undefined,
    onUpdate({ delta, end }) {
      if (delta !== undefined) deltas.push(delta)
      if (end !== undefined) ended.resolve(end)
    },
  })
  loop.add([toRequest({ kind: 'chat', messages, tools }, { maxTokens: 10_000 })])
  expect(await ended.promise).toMatchObject({ kind: 'done', finishReason: 'tool_calls' })
  return collect(
    deltas.map(({ text, toolCallPieces = [], reasoning = '' }) => ({
      text,
      reasoning,
      calls: toolCallPieces,
    })),
  )
}

/** All at which a text can be cut. */
const positions = (text: string): number[] => Array.from({ length: text.length + 1 }, (_, at) => at)

describe.each(cases)('tool calls of $title', ({ family, source }) => {
  const { one, two, around } = family
  const options = readingBy(source)
  // Some templates begin an answer with reasoning.
  const thinks = options.isReasoning === true
  const start = thinks ? `Hm.${options.reasoning?.close}\n\n` : ''
  const { keepsOpenMark: keepsOpen = false, open = '' } = options.reasoning ?? {}
  const reasoning = thinks ? `${keepsOpen ? open : ''}Hm.` : ''
  const weatherCall = ['weather', romeValue]
  const nowCall = ['now', {}]

  it('the format is chosen by the template', () => {
    expect(options.format?.name).toBe(family.format)
  })

  it('the loop of the engine tells what the parser does', async () => {
    const found = await generated(source, start + two)
    expect(parsed(found)).toEqual({ text: '', reasoning, calls: [weatherCall, nowCall] })
  })

  it('one call, whole and letter by letter', () => {
    const whole = read([start + one], options)
    expect(parsed(whole)).toEqual({ text: '', reasoning, calls: [weatherCall] })
    expect(read(Array.from(start + one), options)).toEqual(whole)
  })

  it('two calls, cut at every letter', () => {
    const output = start + two
    const whole = read([output], options)
    expect(parsed(whole)).toEqual({ text: '', reasoning, calls: [weatherCall, nowCall] })
    const differing = positions(output).filter((at) => {
      const pieces = [output.slice(0, at), output.slice(at)]
      return !isDeepStrictEqual(read(pieces, options), whole)
    })
    expect(differing).toEqual([])
  })

  it('parallel_tool_calls: false reports the first of two calls', () => {
    const single = readingBy(source, { parallelToolCalls: false })
    expect(parsed(read([start + two], single)).calls).toEqual([weatherCall])
  })

  it('truncated at every letter: what came of the arguments, and no more', () => {
    const full = read([start + one], options).calls[0]?.arguments ?? ''
    const differing = positions(one).filter((at) => {
      const { calls, text } = read(Array.from(start + one.slice(0, at)), options, true)
      if (calls.length > 0 && text !== '') return true
      return calls.length > 1 || !full.startsWith(calls[0]?.arguments ?? '')
    })
    expect(differing).toEqual([])
    const { calls, text } = read([start + two.slice(0, -1)], options, true)
    expect([calls.length, text]).toEqual([2, ''])
  })

  if (around !== 'none')
    it('text before a call is content', () => {
      const before = `${start}I look it up.\n\n${one}`
      const found = parsed(read(Array.from(before), options))
      expect(found).toEqual({ text: 'I look it up.', reasoning, calls: [weatherCall] })
    })

  if (around === undefined)
    it('text after a call is content', () => {
      const after = parsed(read(Array.from(`${start}${one}\nDone.`), options))
      const text = expect.stringContaining('Done.')
      expect(after).toEqual({ text, reasoning, calls: [weatherCall] })
    })

  it('text without a call stays as it is', () => {
    for (const text of [
      'Just a text.',
      ' {"a": 1} and <b> [x] > 1 \n',
      '{"name": "other"}',
      '<t',
    ]) {
      const wanted = { text: thinks ? text.trimStart() : text, reasoning, calls: [] }
      expect(read(Array.from(start + text), options)).toEqual(wanted)
    }
  })

  if (around === undefined)
    it('a call of a tool that does not exist is text', () => {
      const other = one.replaceAll('weather', 'forecast')
      const found = read(Array.from(start + other), options)
      expect(found).toEqual({ text: other, reasoning, calls: [] })
    })
})

it('a call in reasoning that is not closed is the end of the answer: tool_calls', async () => {
  const { one } = families['Qwen3-Coder'] ?? { one: '' }
  const found = await generated(sources.get('Qwen3.5-4B') ?? '', `Hm.\n${one}`)
  const calls = [['weather', romeValue]]
  expect(parsed(found)).toEqual({ text: '', reasoning: 'Hm.', calls })
})

describe('ids of calls', () => {
  const nemo = sources.get('mistralai-Mistral-Nemo-Instruct-2407') ?? ''
  const devstral = sources.get('unsloth-mistral-Devstral-Small-2507') ?? ''
  const kimi = sources.get('Kimi-K2-Instruct') ?? ''
  const llama = sources.get('meta-llama-Llama-3.1-8B-Instruct') ?? ''
  const nine = /^[a-zA-Z0-9]{9}$/
  const idOf = (options: OutputParserOptions, output: string): string | undefined => {
    const parser = new OutputParser(options)
    return [parser.push(output), parser.end(false)].flatMap(({ calls }) => calls)[0]?.id
  }
  const json = '{"name": "now", "arguments": {}}'

  it.each([
    ['Mistral Nemo', nemo, `[TOOL_CALLS][${json}]`, nine],
    ['Devstral', devstral, '[TOOL_CALLS]now[ARGS]{}', nine],
    ['Llama 3.1', llama, '{"name": "now", "parameters": {}}', /^call_\w{24}$/],
  ])('%s', (_, source, output, form) => {
    const first = idOf(readingBy(source), output)
    expect(first).toMatch(form)
    expect(idOf(readingBy(source), output)).not.toBe(first)
  })

  it.each([
    ['Mistral Nemo', nemo, nine],
    ['Devstral', devstral, nine],
    ['Kimi K2', kimi, /^functions\.now:0$/],
    ['Llama 3.1', llama, /^call_\w{24}$/],
  ])('the grammar of a forced call: %s', (_, source, form) => {
    const forced = readingBy(source, { toolChoice: 'required' }, true)
    expect(idOf(forced, json)).toMatch(form)
  })
})

it.each([
  ['openai-gpt-oss-120b', '<|start|>assistant<|channel|>final<|message|>'],
  ['muse-glimmer', '<|start|>assistant to=user<|message|>'],
  ['CohereForAI-c4ai-command-r7b-12-2024-tool_use', '<|END_THINKING|><|START_RESPONSE|>'],
  ['CohereForAI-c4ai-command-r-plus-tool_use', '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>'],
  ['Cohere2MoE', '<|START_THINKING|>\n<|END_THINKING|>\n\n<|START_TEXT|>'],
  ['Kimi-K3', 'think<|sep|>\n<|close|>think<|sep|>\n\n<|open|>response<|sep|>'],
  ['Qwen3.5-4B', '<think>\n\n</think>\n\n'],
])('an output that follows a grammar begins as an answer: %s', (name, ending) => {
  const template = templateOf(sources.get(name) ?? '')
  const { pieces } = renderPrompt({ kind: 'chat', messages, tools }, template, true)
  expect(pieces.join('').slice(-ending.length)).toBe(ending)
})

describe('a model that is told in words how to call', () => {
  const r1 = sources.get('deepseek-ai-DeepSeek-R1-Distill-Llama-8B') ?? ''

  it('a model with instructions in words may follow them, or call as its family does', () => {
    const options = readingBy(r1)
    const calls = [{ name: 'now', arguments: '{}' }]
    for (const output of [
      '{"name": "now", "arguments": {}}',
      '```json\n{"name": "now", "arguments": {}}\n```',
      '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```' +
        '<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    ]) {
      const found = read(Array.from(`Hm.</think>\n\n${output}`), options)
      expect(found).toEqual({ text: '', reasoning: 'Hm.', calls })
    }
  })

  it('control tokens of a tool format are read as texts', () => {
    expect(readingBy(r1).format?.marks).toContain('<｜tool▁calls▁begin｜>')
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
    const reasoning = findReasoningMarks(template)
    const output = `${open}\nFirst <this>,\n\nthen that.\n${close}\n\nThe answer.\n`
    const wanted = { reasoning: 'First <this>,\n\nthen that.', text: 'The answer.\n', calls: [] }
    for (let at = 0; at <= output.length; at++) {
      expect(read([output.slice(0, at), output.slice(at)], { reasoning })).toEqual(wanted)
    }
    expect(read(Array.from(output), { reasoning })).toEqual(wanted)
  })

  it('reasoning is open from the beginning where the prompt has opened it', () => {
    const options = { reasoning: findReasoningMarks(''), isReasoning: true }
    const found = read(Array.from('Hm.\n</think>\n\nYes.'), options)
    expect(found).toEqual({ reasoning: 'Hm.', text: 'Yes.', calls: [] })
    expect(read(['Hm. It is cut'], options)).toMatchObject({ reasoning: 'Hm. It is cut', text: '' })
  })

  it('reasoning is not searched for in the middle of an answer', () => {
    const text = 'Write <think> to think, </think> to stop.'
    expect(read(Array.from(text), { reasoning: findReasoningMarks('') })).toMatchObject({ text })
  })

  it('reasoning stands before calls', () => {
    const options = { reasoning: findReasoningMarks(''), format: findToolFormat('<tool_call>') }
    const output = '<think>Hm.</think>\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    const wanted = { reasoning: 'Hm.', text: '', calls: [{ name: 'now', arguments: '{}' }] }
    expect(read(Array.from(output), options)).toEqual(wanted)
    const bare = { reasoning: findReasoningMarks(''), format: findToolFormat('ipython') }
    const json = '<think>Hm.</think>\n{"name": "now", "parameters": {}}'
    expect(read(Array.from(json), bare)).toEqual(wanted)
  })

  it('gpt-oss: channels for reasoning, what is said before calls, and the answer', () => {
    const options = { format: findToolFormat('<|channel|> <|start|>') }
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

  it('a forced call that is cut off is a partial call, and never text', () => {
    const output = `{"name":"weather","arguments":${rome}}`
    for (let at = 0; at <= output.length; at++) {
      const given = Array.from(output.slice(0, at))
      const alone = read(given, { tools: [weather], format: forcedFormat([weather]) }, true)
      expect(alone).toMatchObject({ text: '', calls: [{ name: 'weather' }] })
      expect(rome.startsWith(alone.calls[0]?.arguments ?? '?')).toBe(true)
      const oneOfTwo = read(given, { format: forcedFormat(tools) }, true)
      // Known from the first letter of its name on.
      const isKnown = at > '{"name":"'.length
      expect(oneOfTwo).toMatchObject({ text: '', calls: isKnown ? [{ name: 'weather' }] : [] })
    }
  })

  it('a forced call that is cut off has no name while several tools begin like that', () => {
    const several = ['get', 'get_time'].map((name) => ({ name }))
    const namesOf = (output: string) => {
      const options = { tools: several, format: forcedFormat(several) }
      return read(Array.from(output), options, true).calls.map(({ name }) => name)
    }
    expect(namesOf('{"name":"get')).toEqual([])
    expect(namesOf('{"name":"get"')).toEqual(['get'])
    expect(namesOf('{"name": "get_')).toEqual(['get_time'])
  })
})
