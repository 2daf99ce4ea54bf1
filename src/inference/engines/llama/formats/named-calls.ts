/** Formats of tool calls with the tool's name before JSON arguments. */

import type { CallSink, ToolCallFormat } from './output-parser.ts'
import type { ParserInput, ParseStep } from './parser-input.ts'

function* jsonArguments(input: ParserInput, sink: CallSink): ParseStep<void> {
  yield* input.space()
  if (yield* input.nextIs('{')) yield* input.json((text) => sink.argument(text))
  else if (!input.isCut) sink.argument('{}')
}

interface NamedCallsOptions extends Omit<ToolCallFormat, 'parse'> {
  /** The text that begins each call, if the openings begin lists of calls. */
  readonly call?: string
  readonly separator: string
  readonly closings: readonly string[]
  /**
   * Finds the name and the id in the text before the separator. By default, the text is the name.
   */
  readonly toCall?: (text: string) => { readonly name: string; readonly id: string }
}

function namedCalls(options: NamedCallsOptions): ToolCallFormat {
  const { openings, call, separator, closings, toCall, ...format } = options
  return {
    ...format,
    openings,
    *parse(input, sink, opening) {
      if (call !== undefined && !(yield* input.beginsCall(call, opening))) return false
      const { text, mark } = yield* input.textUntil(separator, ...openings)
      const { name, id } = toCall?.(text.trim()) ?? { name: text.trim() }
      if (mark !== separator || !sink.call(name, id)) return false
      yield* jsonArguments(input, sink)
      yield* input.skip(...closings)
      return true
    },
  }
}

/** `<function=name>{…}</function>`: functionary 3.1, and Llama 3.1 with custom tools. */
export const functionTagCalls = namedCalls({
  name: 'functionary 3.1',
  openings: ['<function='],
  marks: [],
  separator: '>',
  closings: ['</function>'],
})

/** `>>>name` and a line break, then JSON; `>>>all` for text. The prompt ends with `>>>`. */
export const arrowCalls: ToolCallFormat = {
  name: 'functionary 3.2',
  openings: ['>>>'],
  marks: [],
  answerStart: 'all\n',
  parse: arrowSection,
  *parseAll(input, sink) {
    // The prompt ends with the first mark, so the output begins after it.
    if (!(yield* input.attempt(() => arrowSection(input, sink)))) {
      yield* input.until(['>>>'], (text) => sink.text(text))
    }
    while (!input.isAtEnd) {
      if (yield* input.attempt(() => arrowSection(input, sink))) continue
      sink.text('>>>')
      if ((yield* input.until(['>>>'], (text) => sink.text(text))) === null) return
    }
  },
}

function* arrowSection(input: ParserInput, sink: CallSink): ParseStep<boolean> {
  yield* input.accept('>>>')
  const name = yield* input.word(/[\w.-]/)
  if ((yield* input.accept('\n')) === null && !input.hasEnded) return false
  if (name === 'all') {
    yield* input.until(['>>>'], (text) => sink.text(text))
    return true
  }
  if (name === '' || !sink.call(name)) return false
  yield* jsonArguments(input, sink)
  yield* input.space()
  yield* input.accept('>>>')
  return true
}

/** Kimi K2: ids such as `functions.name:0` contain the name. */
export const kimiCalls = namedCalls({
  name: 'Kimi K2',
  openings: ['<|tool_calls_section_begin|>', '<|tool_call_begin|>'],
  marks: [
    '<|tool_calls_section_begin|>',
    '<|tool_calls_section_end|>',
    '<|tool_call_begin|>',
    '<|tool_call_argument_begin|>',
    '<|tool_call_end|>',
  ],
  createId: (name, index) => `functions.${name}:${index}`,
  call: '<|tool_call_begin|>',
  separator: '<|tool_call_argument_begin|>',
  closings: ['<|tool_call_end|>', '<|tool_calls_section_end|>'],
  toCall: (id) => ({ id, name: id.replace(/^functions\./, '').replace(/:\d+$/, '') }),
})

const deepseekCall = '<｜tool▁call▁begin｜>'
const deepseekOpenings = ['<｜tool▁calls▁begin｜>', deepseekCall]
const deepseekSeparator = '<｜tool▁sep｜>'

/** DeepSeek V3.1: name and JSON. V3 and R1: `function`, then the name, and JSON in a code block. */
export const deepseekCalls: ToolCallFormat = {
  name: 'DeepSeek V3, R1 and V3.1',
  openings: deepseekOpenings,
  marks: [
    '<｜tool▁calls▁begin｜>',
    '<｜tool▁calls▁end｜>',
    deepseekCall,
    '<｜tool▁call▁end｜>',
    deepseekSeparator,
  ],
  *parse(input, sink, opening) {
    if (!(yield* input.beginsCall(deepseekCall, opening))) return false
    const { text, mark } = yield* input.textUntil(deepseekSeparator, ...deepseekOpenings)
    if (mark !== deepseekSeparator) return false
    const first = text.trim()
    const line = input.textUntil('\n', ...deepseekOpenings)
    const name = first === 'function' ? (yield* line).text.trim() : first
    if (!sink.call(name)) return false
    yield* input.space()
    yield* input.accept('```json', '```')
    yield* jsonArguments(input, sink)
    yield* input.skip('```', '<｜tool▁call▁end｜>', '<｜tool▁calls▁end｜>')
    return true
  },
}

/** Mistral Small 3.2 and later: `[TOOL_CALLS]name[CALL_ID]id[ARGS]{…}`; the id is optional. */
export function* mistralCall(input: ParserInput, sink: CallSink): ParseStep<boolean> {
  const first = yield* input.textUntil('[ARGS]', '[CALL_ID]', '{', '[TOOL_CALLS]')
  if (first.mark !== '[ARGS]' && first.mark !== '[CALL_ID]') return false
  const hasId = first.mark === '[CALL_ID]'
  const id = hasId ? (yield* input.textUntil('[ARGS]', '[TOOL_CALLS]')).text.trim() : undefined
  if (!sink.call(first.text.trim(), id)) return false
  yield* jsonArguments(input, sink)
  yield* input.space()
  return true
}

/** Solar Open: a call's id precedes the name. */
export const solarCalls = namedCalls({
  name: 'Solar Open',
  openings: ['<|tool_call:begin|>'],
  marks: ['<|tool_call:begin|>', '<|tool_call:name|>', '<|tool_call:args|>', '<|tool_call:end|>'],
  separator: '<|tool_call:args|>',
  closings: ['<|tool_call:end|>'],
  toCall(text) {
    const [id = '', name = ''] = text.split('<|tool_call:name|>').map((part) => part.trim())
    return { id, name }
  },
})
