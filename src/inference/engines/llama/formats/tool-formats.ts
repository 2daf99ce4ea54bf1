/** The tool-call formats of model families, and which of them a template uses. */

import type { ToolDefinition } from '../../../generation/inference-engine.ts'
import { gemmaCalls } from './gemma-calls.ts'
import { harmonyFormat } from './harmony.ts'
import { callObject, jsonCalls } from './json-calls.ts'
import {
  arrowCalls,
  deepseekCalls,
  functionTagCalls,
  kimiCalls,
  mistralCall,
} from './named-calls.ts'
import { newNineLetterId, parseNothing, type ToolCallFormat } from './output-parser.ts'
import { pythonCalls, pythonList } from './python-calls.ts'
import { glmCalls, invokeCalls, parameterTagCalls } from './tagged-calls.ts'

const hermes = jsonCalls({
  name: 'Hermes and Qwen 2.5',
  openings: ['<tool_call>'],
  closing: '</tool_call>',
  marks: ['<tool_call>', '</tool_call>'],
})

const listed = jsonCalls({
  name: 'MiniMax M1',
  openings: ['<tool_calls>'],
  closing: '</tool_calls>',
})

const mistralList = jsonCalls({ name: 'Mistral Nemo', openings: ['[TOOL_CALLS]'] })

/** Mistral Nemo writes a JSON list after the mark; later models write the name first. */
const mistral: ToolCallFormat = {
  name: 'Mistral',
  openings: ['[TOOL_CALLS]'],
  marks: ['[TOOL_CALLS]', '[CALL_ID]', '[ARGS]'],
  toId: newNineLetterId,
  *parse(input, sink, opening) {
    yield* input.space()
    if (yield* input.nextIs('[{')) return yield* mistralList.parse(input, sink, opening)
    return yield* mistralCall(input, sink)
  },
}

const commandR = jsonCalls({
  name: 'Command R7B',
  openings: ['<|START_ACTION|>'],
  closing: '<|END_ACTION|>',
  marks: ['<|START_ACTION|>', '<|END_ACTION|>'],
})

const granite = jsonCalls({
  name: 'Granite 3',
  openings: ['<|tool_call|>', '<tool_call>'],
  closing: '</tool_call>',
  marks: ['<|tool_call|>'],
})

const phi = jsonCalls({
  name: 'Phi-4',
  openings: ['<|tool_call|>', 'functools'],
  closing: '<|/tool_call|>',
  marks: ['<|tool_call|>', '<|/tool_call|>'],
})

const llamaJson = jsonCalls({ name: '', openings: [], separators: [';'], closing: '<|eom_id|>' })

/** Llama 3.x: the whole answer is JSON, perhaps after a mark, or a list of Python calls. */
const llama: ToolCallFormat = {
  name: 'Llama 3',
  openings: ['<|python_tag|>'],
  marks: ['<|python_tag|>'],
  isBare: true,
  *parse(input, sink, opening) {
    if (yield* input.attempt(() => llamaJson.parse(input, sink, opening))) return true
    return yield* pythonList(input, sink)
  },
}

const bareJson = jsonCalls({ name: '', openings: [], closing: '```' })

/** For models that are told in words how to call tools: JSON, between marks or in a code block. */
export const plainFormat: ToolCallFormat = {
  name: 'JSON',
  openings: ['<tool_call>', '```json\n', '```tool_code\n'],
  marks: ['<tool_call>', '</tool_call>'],
  isBare: true,
  *parse(input, sink, opening) {
    if (opening === '<tool_call>') return yield* hermes.parse(input, sink, opening)
    if (yield* input.attempt(() => bareJson.parse(input, sink, opening))) return true
    if (opening === '' || !(yield* pythonList(input, sink))) return false
    yield* input.space()
    yield* input.accept('```')
    return true
  },
}

/**
 * For models that are told in words how to call tools, because the template does not render tools:
 * they may still use the format of their family.
 */
export function instructedFormat(template: string): ToolCallFormat {
  const own = toolFormatOf(template)
  return {
    name: own.name,
    openings: union(own.openings, plainFormat.openings),
    marks: union(own.marks, plainFormat.marks),
    isBare: true,
    *parse(input, sink, opening) {
      const isOwn = opening === '' ? own.isBare === true : own.openings.includes(opening)
      if (isOwn && (yield* input.attempt(() => own.parse(input, sink, opening)))) return true
      const isPlain = opening === '' || plainFormat.openings.includes(opening)
      return isPlain && (yield* plainFormat.parse(input, sink, opening))
    },
  }
}

const union = (one: readonly string[], other: readonly string[]): readonly string[] => [
  ...new Set([...one, ...other]),
]

const dsml = '｜DSML｜'

/** The first family whose texts all occur in a template is used. */
const families: readonly (readonly [readonly string[], ToolCallFormat])[] = [
  [['<|channel|>', '<|start|>'], harmonyFormat],
  [['<|tool_call_begin|>'], kimiCalls],
  [['<｜tool▁call▁begin｜>'], deepseekCalls],
  [
    [dsml],
    invokeCalls({
      name: 'DeepSeek V3.2',
      wrappers: [`${dsml}function_calls`, `${dsml}tool_calls`],
      prefix: dsml,
    }),
  ],
  [['<seed:tool_call>'], parameterTagCalls('Seed-OSS', 'seed:tool_call')],
  [['<function=', '<parameter='], parameterTagCalls('Qwen3-Coder', 'tool_call')],
  [['<function='], functionTagCalls],
  [['>>>'], arrowCalls],
  [['<arg_key>'], glmCalls],
  [['minimax:tool_call'], invokeCalls({ name: 'MiniMax M2', wrappers: ['minimax:tool_call'] })],
  [['[TOOL_CALLS]'], mistral],
  [['<|START_ACTION|>'], commandR],
  [['<|tool_call_start|>'], pythonCalls],
  [['<|tool_list_start|>'], pythonCalls],
  // LFM2.5.
  [['List of tools: ['], pythonCalls],
  [
    ['<|tool_call>'],
    gemmaCalls({
      name: 'Gemma 4',
      opening: '<|tool_call>',
      closing: '<tool_call|>',
      quote: '<|"|>',
    }),
  ],
  [
    ['<start_function_call>'],
    gemmaCalls({
      name: 'FunctionGemma',
      opening: '<start_function_call>',
      closing: '<end_function_call>',
      quote: '<escape>',
    }),
  ],
  [['<|/tool|>'], phi],
  [['<|/tool_call|>'], phi],
  [['functools'], phi],
  [['<|tool_call|>'], granite],
  [['<tool_calls>'], listed],
  [['<tool_call>'], hermes],
  [['<|python_tag|>'], llama],
  [['ipython'], llama],
]

/** The format of the template's family; JSON if no family matches. */
export const toolFormatOf = (template: string): ToolCallFormat =>
  families.find(([texts]) => texts.every((text) => template.includes(text)))?.[1] ?? plainFormat

/**
 * The format of a call that a grammar forces: the output is a call and nothing else, even if it is
 * cut off. If the name is cut off, the tool is known if only one name begins like that.
 */
export function forcedFormat(tools: readonly ToolDefinition[]): ToolCallFormat {
  return {
    name: 'forced',
    openings: [],
    marks: [],
    parse: parseNothing,
    *parseAll(input, sink) {
      yield* input.space()
      if (yield* input.attempt(() => callObject(input, sink))) return
      const begun = /^\{\s*"name"\s*:\s*(".*)$/s.exec(input.rest)?.[1] ?? '"'
      const [only, ...others] = tools.filter(({ name }) => JSON.stringify(name).startsWith(begun))
      if (only !== undefined && others.length === 0) sink.call(only.name)
    },
  }
}
