/** Call formats with the name before the arguments, which are JSON. */

import type { CallSink, ToolCallFormat } from './output-parser.ts'
import type { ParserInput, Step } from './parser-input.ts'

/** Passes the arguments on; a call without arguments gets `{}`. */
function* jsonArguments(input: ParserInput, sink: CallSink): Step<void> {
  yield* input.space()
  if (yield* input.nextIs('{')) yield* input.json((text) => sink.argument(text))
  else if (!input.isCut) sink.argument('{}')
}

const isName = (name: string): boolean => /^[\w.-]+$/.test(name)

/** `<function=name>{…}</function>`: functionary 3.1, and Llama 3.1 with custom tools. */
export const functionTagCalls: ToolCallFormat = {
  name: 'functionary 3.1',
  openings: ['<function='],
  marks: [],
  *parse(input, sink) {
    const { text, mark } = yield* input.textUntil('>', '<function=')
    if (mark !== '>' || !sink.call(text.trim())) return false
    yield* jsonArguments(input, sink)
    yield* input.space()
    yield* input.accept('</function>')
    yield* input.space()
    return true
  },
}

/** `>>>name` and a line break, then JSON; `>>>all` for text. The prompt ends with `>>>`. */
export const arrowCalls: ToolCallFormat = {
  name: 'functionary 3.2',
  openings: ['>>>'],
  marks: [],
  answerStart: 'all\n',
  parse: arrowSection,
  *parseAll(input, sink) {
    // The first mark is part of the prompt.
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

function* arrowSection(input: ParserInput, sink: CallSink): Step<boolean> {
  yield* input.accept('>>>')
  const name = yield* input.word(/[\w.-]/)
  if ((yield* input.accept('\n')) === null && !input.hasEnded) return false
  if (name === 'all') {
    yield* input.until(['>>>'], (text) => sink.text(text))
    return true
  }
  if (!isName(name) || !sink.call(name)) return false
  yield* jsonArguments(input, sink)
  yield* input.space()
  yield* input.accept('>>>')
  return true
}

const kimiOpenings = ['<|tool_calls_section_begin|>', '<|tool_call_begin|>']
const kimiArguments = '<|tool_call_argument_begin|>'

/** Kimi K2: ids such as `functions.name:0` contain the name. */
export const kimiCalls: ToolCallFormat = {
  name: 'Kimi K2',
  openings: kimiOpenings,
  marks: [
    '<|tool_calls_section_begin|>',
    '<|tool_calls_section_end|>',
    '<|tool_call_begin|>',
    kimiArguments,
    '<|tool_call_end|>',
  ],
  toId: (name, index) => `functions.${name}:${index}`,
  *parse(input, sink, opening) {
    if (opening === '<|tool_calls_section_begin|>') {
      yield* input.space()
      if ((yield* input.accept('<|tool_call_begin|>')) === null) return false
    }
    const { text, mark } = yield* input.textUntil(kimiArguments, ...kimiOpenings)
    const id = text.trim()
    const name = id.replace(/^functions\./, '').replace(/:\d+$/, '')
    if (mark !== kimiArguments || !sink.call(name, id)) return false
    yield* jsonArguments(input, sink)
    yield* input.skip('<|tool_call_end|>', '<|tool_calls_section_end|>')
    return true
  },
}

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
    if (opening !== deepseekCall) {
      yield* input.space()
      if ((yield* input.accept(deepseekCall)) === null) return false
    }
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
export function* mistralCall(input: ParserInput, sink: CallSink): Step<boolean> {
  const first = yield* input.textUntil('[ARGS]', '[CALL_ID]', '{', '[TOOL_CALLS]')
  if (first.mark !== '[ARGS]' && first.mark !== '[CALL_ID]') return false
  const hasId = first.mark === '[CALL_ID]'
  const id = hasId ? (yield* input.textUntil('[ARGS]', '[TOOL_CALLS]')).text.trim() : undefined
  if (!sink.call(first.text.trim(), id)) return false
  yield* jsonArguments(input, sink)
  yield* input.space()
  return true
}

/** Solar Open: the id of a call stands before the name. */
export const solarCalls: ToolCallFormat = {
  name: 'Solar Open',
  openings: ['<|tool_call:begin|>'],
  marks: ['<|tool_call:begin|>', '<|tool_call:name|>', '<|tool_call:args|>', '<|tool_call:end|>'],
  *parse(input, sink) {
    const [opening, args] = ['<|tool_call:begin|>', '<|tool_call:args|>']
    const id = (yield* input.textUntil('<|tool_call:name|>', opening)).text.trim()
    const { text, mark } = yield* input.textUntil(args, opening)
    if (mark !== args || !sink.call(text.trim(), id)) return false
    yield* jsonArguments(input, sink)
    yield* input.skip('<|tool_call:end|>')
    return true
  },
}
