/** The tool-call formats of model families. The template determines the family. */

import type { ToolDefinition } from '../../../generation/inference-engine.ts'
import { callObject, jsonCalls } from './json-calls.ts'
import { gemmaCalls, pythonCalls, pythonList } from './literal-calls.ts'
import { harmonyFormat, museFormat } from './message-formats.ts'
import {
  arrowCalls,
  deepseekCalls,
  functionTagCalls,
  kimiCalls,
  mistralCall,
  solarCalls,
} from './named-calls.ts'
import { newMistralCallId, parseNothing, type ToolCallFormat } from './output-parser.ts'
import { nestedCalls, pairedCalls, taggedCalls } from './tagged-calls.ts'

/** JSON calls between two marks. */
const markedCalls = (name: string, opening: string, closing: string): ToolCallFormat =>
  jsonCalls({ name, openings: [opening], closing })

const hermes = markedCalls('Hermes and Qwen 2.5', '<tool_call>', '</tool_call>')

const mistralList = jsonCalls({ name: 'Mistral Nemo', openings: ['[TOOL_CALLS]'] })

/** Mistral Nemo writes a JSON list after the mark. Later models write the name first. */
const mistral: ToolCallFormat = {
  name: 'Mistral',
  openings: ['[TOOL_CALLS]'],
  marks: ['[TOOL_CALLS]', '[CALL_ID]', '[ARGS]'],
  createId: newMistralCallId,
  *parse(input, sink, opening) {
    yield* input.space()
    if (yield* input.nextIs('[{')) return yield* mistralList.parse(input, sink, opening)
    return yield* mistralCall(input, sink)
  },
}

const commandRPlus = jsonCalls({
  name: 'Command R+',
  openings: ['Action:\n```json\n', 'Action: ```json\n', '```json\n'],
  closing: '```',
})

const apertus = jsonCalls({
  name: 'Apertus',
  openings: ['<|tools_prefix|>'],
  closing: '<|tools_suffix|>',
  hasToolNameKey: true,
})

/** GigaChat 3.1 marks calls. GigaChat 3 writes calls as messages with a separate role. */
const gigaChat = jsonCalls({
  name: 'GigaChat 3',
  openings: ['<|function_call|>', '<|message_sep|>\n\nfunction call<|role_sep|>\n'],
  marks: ['<|function_call|>', '<|message_sep|>', '<|role_sep|>'],
})

const granite = jsonCalls({
  name: 'Granite 3',
  openings: ['<|tool_call|>', '<tool_call>'],
  closing: '</tool_call>',
})

const phi = jsonCalls({
  name: 'Phi-4',
  openings: ['<|tool_call|>', 'functools'],
  closing: '<|/tool_call|>',
})

const llamaJson = jsonCalls({ name: '', openings: [], separators: [';'], closing: '<|eom_id|>' })

/** The whole answer is JSON, possibly after a mark, or a list of Python calls. */
const llama: ToolCallFormat = {
  name: 'Llama 3',
  openings: ['<|python_tag|>'],
  marks: ['<|python_tag|>'],
  allowsBareCalls: true,
  *parse(input, sink, opening) {
    if (yield* input.attempt(() => llamaJson.parse(input, sink, opening))) return true
    return yield* pythonList(input, sink)
  },
}

const bareJson = jsonCalls({ name: '', openings: [], closing: '```' })

/** For models whose prompt describes the tools in prose. */
export const plainFormat: ToolCallFormat = {
  name: 'JSON',
  openings: ['<tool_call>', '```json\n', '```tool_code\n'],
  marks: ['<tool_call>', '</tool_call>'],
  allowsBareCalls: true,
  *parse(input, sink, opening) {
    if (opening === '<tool_call>') return yield* hermes.parse(input, sink, opening)
    if (yield* input.attempt(() => bareJson.parse(input, sink, opening))) return true
    if (opening === '' || !(yield* pythonList(input, sink))) return false
    yield* input.space()
    yield* input.accept('```')
    return true
  },
}

/** If the prompt describes the tools in prose, the model may use its own or the plain format. */
export function ownOrPlainFormat(template: string): ToolCallFormat {
  const ownFormat = findToolFormat(template)
  return {
    name: ownFormat.name,
    openings: union(ownFormat.openings, plainFormat.openings),
    marks: union(ownFormat.marks, plainFormat.marks),
    allowsBareCalls: true,
    *parse(input, sink, opening) {
      const isOwn =
        opening === '' ? ownFormat.allowsBareCalls === true : ownFormat.openings.includes(opening)
      if (isOwn && (yield* input.attempt(() => ownFormat.parse(input, sink, opening)))) return true
      const isPlain = opening === '' || plainFormat.openings.includes(opening)
      return isPlain && (yield* plainFormat.parse(input, sink, opening))
    },
  }
}

const union = (one: readonly string[], other: readonly string[]): readonly string[] => [
  ...new Set([...one, ...other]),
]

const functionGemma = gemmaCalls(
  'FunctionGemma',
  '<start_function_call>',
  '<end_function_call>',
  '<escape>',
)

const dsml = '｜DSML｜'

const deepseekTags = taggedCalls({
  name: 'DeepSeek V3.2',
  wrappers: ['function_calls', 'tool_calls'].map((tag) => [`<${dsml}${tag}>`, `</${dsml}${tag}>`]),
  call: [`<${dsml}invoke name="`, `</${dsml}invoke>`],
  parameter: [`<${dsml}parameter name="`, `</${dsml}parameter>`],
})

const miniMaxM2 = taggedCalls({
  name: 'MiniMax M2',
  wrappers: [['<minimax:tool_call>', '</minimax:tool_call>']],
  call: ['<invoke name="', '</invoke>'],
  parameter: ['<parameter name="', '</parameter>'],
})

const miniCpm = taggedCalls({
  name: 'MiniCPM5',
  call: ['<function name="', '</function>'],
  parameter: ['<param name="', '</param>'],
  hasCdata: true,
})

const kimiK3 = taggedCalls({
  name: 'Kimi K3',
  wrappers: [['<|open|>tools<|sep|>', '<|close|>tools<|sep|>']],
  call: ['<|open|>call tool="', '<|close|>call<|sep|>'],
  parameter: ['<|open|>argument key="', '<|close|>argument<|sep|>'],
  tagEnd: '<|sep|>',
  marks: ['<|open|>', '<|close|>', '<|sep|>'],
})

/** `<function=name><parameter=key>value</parameter>`: Qwen3-Coder, Seed-OSS, Nemotron 3. */
const parameterTags = (name: string, wrapper: string): ToolCallFormat =>
  taggedCalls({
    name,
    wrappers: [[`<${wrapper}>`, `</${wrapper}>`]],
    call: ['<function=', '</function>'],
    parameter: ['<parameter=', '</parameter>'],
    hasLines: true,
  })

/** The first family whose texts all occur in the template is used. */
const families: readonly (readonly [readonly string[], ToolCallFormat])[] = [
  [['<|channel|>', '<|start|>'], harmonyFormat],
  [['<atem:invoke', '<|start|>'], museFormat],
  [['<|tool_call_begin|>'], kimiCalls],
  [['<|open|>', '<|sep|>'], kimiK3],
  [['<｜tool▁call▁begin｜>'], deepseekCalls],
  [[dsml], deepseekTags],
  [['<seed:tool_call>'], parameterTags('Seed-OSS', 'seed:tool_call')],
  [['<function=', '<parameter='], parameterTags('Qwen3-Coder', 'tool_call')],
  [['<function name=', '<param name='], miniCpm],
  [['<function='], functionTagCalls],
  [['>>>'], arrowCalls],
  [['<arg_key>'], pairedCalls('GLM-4.6')],
  [['<arg_key{}>', ':opensource'], pairedCalls('Hy3', ':opensource')],
  [['minimax:tool_call'], miniMaxM2],
  [[']<]minimax[>['], nestedCalls('MiniMax M3', ']<]minimax[>[')],
  [['[TOOL_CALLS]'], mistral],
  [['<|START_ACTION|>'], markedCalls('Command R7B', '<|START_ACTION|>', '<|END_ACTION|>')],
  [['<|CHATBOT_TOKEN|>', 'Action:'], commandRPlus],
  [['<TOOLCALL>'], markedCalls('Nemotron Nano v2', '<TOOLCALL>', '</TOOLCALL>')],
  [['<|tools_prefix|>'], apertus],
  [['<|role_sep|>', '<|message_sep|>'], gigaChat],
  [['<|tool_call:begin|>'], solarCalls],
  [['<|tool_call_start|>'], pythonCalls],
  [['<|tool_list_start|>'], pythonCalls],
  // LFM2.5.
  [['List of tools: ['], pythonCalls],
  [['<|tool_call>'], gemmaCalls('Gemma 4', '<|tool_call>', '<tool_call|>', '<|"|>')],
  [['<start_function_call>'], functionGemma],
  [['<|/tool|>'], phi],
  [['<|/tool_call|>'], phi],
  [['functools'], phi],
  [['<|tool_call|>'], granite],
  [['<tool_calls>'], markedCalls('MiniMax M1', '<tool_calls>', '</tool_calls>')],
  [['<tool_call>'], hermes],
  [['<|python_tag|>'], llama],
  [['ipython'], llama],
]

export const findToolFormat = (template: string): ToolCallFormat =>
  families.find(([texts]) => texts.every((text) => template.includes(text)))?.[1] ?? plainFormat

/** The format of a required call. A cut-off name counts if only one tool's name begins with it. */
export function forcedFormat(tools: readonly ToolDefinition[]): ToolCallFormat {
  return {
    name: 'forced',
    openings: [],
    marks: [],
    parse: parseNothing,
    *parseAll(input, sink) {
      yield* input.space()
      if (yield* input.attempt(() => callObject(input, sink))) return
      const begunName = /^\{\s*"name"\s*:\s*(".*)$/s.exec(input.rest)?.[1] ?? '"'
      const [only, ...others] = tools.filter(({ name }) =>
        JSON.stringify(name).startsWith(begunName),
      )
      if (only !== undefined && others.length === 0) sink.call(only.name)
    },
  }
}
