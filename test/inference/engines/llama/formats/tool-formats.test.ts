import { describe, expect, it } from 'vitest'
import {
  OutputParser,
  type OutputParserOptions,
} from '../../../../../src/inference/engines/llama/formats/output-parser.ts'
import { reasoningMarksOf } from '../../../../../src/inference/engines/llama/formats/reasoning.ts'
import {
  forcedFormat,
  toolFormatOf,
} from '../../../../../src/inference/engines/llama/formats/tool-formats.ts'

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
const python = 'weather(city="Rome", days=2, deep={"x": [1, "}"]})'
const gemma = 'call:weather{city:<|"|>Rome<|"|>,days:2,deep:{x:[1,<|"|>}<|"|>]}}'
const escaped = 'call:weather{city:<escape>Rome<escape>,days:2,deep:{x:[1,<escape>}<escape>]}}'
const parameters = [
  '<parameter=city>\nRome\n</parameter>',
  '<parameter=days>\n2\n</parameter>',
  '<parameter=deep>\n{"x": [1, "}"]}\n</parameter>',
].join('\n')
const named = (prefix: string): string =>
  Object.entries({ city: 'Rome', days: '2', deep: '{"x": [1, "}"]}' })
    .map(([key, value]) => `<${prefix}parameter name="${key}">${value}</${prefix}parameter>`)
    .join('\n')
const glm = Object.entries({ city: 'Rome', days: '2', deep: '{"x": [1, "}"]}' })
  .map(([key, value]) => `<arg_key>${key}</arg_key>\n<arg_value>${value}</arg_value>`)
  .join('\n')

interface Family {
  /** Texts of its template, by which it is recognised. */
  readonly template: string
  readonly one: string
  readonly two: string
  /** Text may stand before calls, and after them. Default both. */
  readonly around?: 'none' | 'before'
}

const families: Readonly<Record<string, Family>> = {
  'Hermes and Qwen 2.5': {
    template: '<tool_call>',
    one: `<tool_call>\n{"name": "weather", "arguments": ${rome}}\n</tool_call>`,
    two: `<tool_call>\n{"name": "weather", "arguments": ${rome}}\n</tool_call>\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>`,
  },
  'Qwen3-Coder': {
    template: '<tool_call> <function= <parameter=',
    one: `<tool_call>\n<function=weather>\n${parameters}\n</function>\n</tool_call>`,
    two: `<tool_call>\n<function=weather>\n${parameters}\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>`,
  },
  'Seed-OSS': {
    template: '<seed:tool_call> <function= <parameter=',
    one: `<seed:tool_call>\n<function=weather>\n${parameters}\n</function>\n</seed:tool_call>`,
    two: `<seed:tool_call>\n<function=weather>\n${parameters}\n</function>\n</seed:tool_call>\n<seed:tool_call>\n<function=now>\n</function>\n</seed:tool_call>`,
  },
  'Llama 3 (JSON)': {
    template: 'ipython',
    one: `{"name": "weather", "parameters": ${rome}}`,
    two: `{"name": "weather", "parameters": ${rome}}; {"name": "now", "parameters": {}}`,
    around: 'none',
  },
  'Llama 3 (mark)': {
    template: '<|python_tag|>',
    one: `<|python_tag|>{"name": "weather", "parameters": ${rome}}`,
    two: `<|python_tag|>{"name": "weather", "parameters": ${rome}};{"name": "now", "parameters": {}}`,
    around: 'before',
  },
  'Llama 3.2 (Python)': {
    template: 'ipython',
    one: `[${python}]`,
    two: `[${python}, now()]`,
    around: 'none',
  },
  'Mistral Nemo': {
    template: '[TOOL_CALLS]',
    one: `[TOOL_CALLS][{"name": "weather", "arguments": ${rome}, "id": "abcdefgh1"}]`,
    two: `[TOOL_CALLS][{"name": "weather", "arguments": ${rome}}, {"name": "now", "arguments": {}}]`,
  },
  'Mistral Small 3.2': {
    template: '[TOOL_CALLS] [CALL_ID] [ARGS]',
    one: `[TOOL_CALLS]weather[CALL_ID]abcdefgh1[ARGS]${rome}`,
    two: `[TOOL_CALLS]weather[CALL_ID]abcdefgh1[ARGS]${rome}[TOOL_CALLS]now[ARGS]{}`,
  },
  'DeepSeek V3 and R1': {
    template: '<｜tool▁call▁begin｜>',
    one: `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n\`\`\`json\n${rome}\n\`\`\`<｜tool▁call▁end｜><｜tool▁calls▁end｜>`,
    two: `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n\`\`\`json\n${rome}\n\`\`\`<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n\`\`\`json\n{}\n\`\`\`<｜tool▁call▁end｜><｜tool▁calls▁end｜>`,
  },
  'DeepSeek V3.1': {
    template: '<｜tool▁call▁begin｜>',
    one: `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>${rome}<｜tool▁call▁end｜><｜tool▁calls▁end｜>`,
    two: `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>${rome}<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>`,
  },
  'DeepSeek V3.2': {
    template: '｜DSML｜',
    one: `<｜DSML｜function_calls>\n<｜DSML｜invoke name="weather">\n${named('｜DSML｜')}\n</｜DSML｜invoke>\n</｜DSML｜function_calls>`,
    two: `<｜DSML｜function_calls>\n<｜DSML｜invoke name="weather">\n${named('｜DSML｜')}\n</｜DSML｜invoke>\n<｜DSML｜invoke name="now">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>`,
  },
  'GLM-4.6': {
    template: '<arg_key>',
    one: `<tool_call>weather\n${glm}\n</tool_call>`,
    two: `<tool_call>weather\n${glm}\n</tool_call>\n<tool_call>now\n</tool_call>`,
  },
  'Kimi K2': {
    template: '<|tool_call_begin|>',
    one: `<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>${rome}<|tool_call_end|><|tool_calls_section_end|>`,
    two: `<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>${rome}<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>`,
  },
  'MiniMax M1': {
    template: '<tool_calls>',
    one: `<tool_calls>\n{"name": "weather", "arguments": ${rome}}\n</tool_calls>`,
    two: `<tool_calls>\n{"name": "weather", "arguments": ${rome}}\n{"name": "now", "arguments": {}}\n</tool_calls>`,
  },
  'MiniMax M2': {
    template: 'minimax:tool_call',
    one: `<minimax:tool_call>\n<invoke name="weather">\n${named('')}\n</invoke>\n</minimax:tool_call>`,
    two: `<minimax:tool_call>\n<invoke name="weather">\n${named('')}\n</invoke>\n<invoke name="now">\n</invoke>\n</minimax:tool_call>`,
  },
  'gpt-oss': {
    template: '<|channel|> <|start|>',
    one: `<|channel|>commentary to=functions.weather <|constrain|>json<|message|>${rome}<|call|>`,
    two: `<|channel|>commentary to=functions.weather <|constrain|>json<|message|>${rome}<|call|><|start|>assistant<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}<|call|>`,
    around: 'none',
  },
  'Granite 3': {
    template: '<|tool_call|>',
    one: `<|tool_call|>[{"name": "weather", "arguments": ${rome}}]`,
    two: `<|tool_call|>[{"name": "weather", "arguments": ${rome}}, {"name": "now", "arguments": {}}]`,
  },
  'Command R7B': {
    template: '<|START_ACTION|>',
    one: `<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "weather", "parameters": ${rome}}\n]<|END_ACTION|>`,
    two: `<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "weather", "parameters": ${rome}},\n    {"tool_call_id": "1", "tool_name": "now", "parameters": {}}\n]<|END_ACTION|>`,
  },
  LFM2: {
    template: '<|tool_list_start|>',
    one: `<|tool_call_start|>[${python}]<|tool_call_end|>`,
    two: `<|tool_call_start|>[${python}, now()]<|tool_call_end|>`,
  },
  'Phi-4 mini': {
    template: '<|/tool_call|>',
    one: `<|tool_call|>[{"name": "weather", "arguments": ${rome}}]<|/tool_call|>`,
    two: `<|tool_call|>[{"name": "weather", "arguments": ${rome}}, {"name": "now", "arguments": {}}]<|/tool_call|>`,
  },
  firefunction: {
    template: 'functools',
    one: `functools[{"name": "weather", "arguments": ${rome}}]`,
    two: `functools[{"name": "weather", "arguments": ${rome}}, {"name": "now", "arguments": {}}]`,
  },
  'functionary 3.1': {
    template: '<function=',
    one: `<function=weather>${rome}</function>`,
    two: `<function=weather>${rome}</function><function=now>{}</function>`,
  },
  'functionary 3.2': {
    template: '>>>',
    one: `weather\n${rome}`,
    two: `weather\n${rome}>>>now\n{}`,
    around: 'none',
  },
  'Gemma 4': {
    template: '<|tool_call>',
    one: `<|tool_call>${gemma}<tool_call|>`,
    two: `<|tool_call>${gemma}<tool_call|><|tool_call>call:now{}<tool_call|>`,
  },
  FunctionGemma: {
    template: '<start_function_call>',
    one: `<start_function_call>${escaped}<end_function_call>`,
    two: `<start_function_call>${escaped}<end_function_call><start_function_call>call:now{}<end_function_call>`,
  },
  'Gemma 3 (told in words)': {
    template: '<start_of_turn>',
    one: `\`\`\`json\n{"name": "weather", "arguments": ${rome}}\n\`\`\``,
    two: `\`\`\`tool_code\n[${python}, now()]\n\`\`\``,
  },
}

const formatOf = ({ template }: Family) => ({ format: toolFormatOf(template) })

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
