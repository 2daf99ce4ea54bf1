/** Calls in the syntax of Python: `[weather(city="Rome", days=2), now()]`. */

import { toJson } from './loose-values.ts'
import type { CallSink, ToolCallFormat } from './output-parser.ts'
import type { ParserInput, Step } from './parser-input.ts'

/** The format of LFM2. */
export const pythonCalls: ToolCallFormat = {
  name: 'LFM2',
  openings: ['<|tool_call_start|>'],
  marks: ['<|tool_call_start|>', '<|tool_call_end|>'],
  *parse(input, sink) {
    if (!(yield* pythonList(input, sink))) return false
    yield* input.space()
    yield* input.accept('<|tool_call_end|>')
    return true
  },
}

/** Reads a list of calls, or one call without brackets. */
export function* pythonList(input: ParserInput, sink: CallSink): Step<boolean> {
  yield* input.space()
  yield* input.accept('[')
  let count = 0
  for (;;) {
    yield* input.space()
    if (!(yield* input.attempt(() => pythonCall(input, sink)))) break
    count++
    yield* input.space()
    if ((yield* input.accept(',')) === null) break
  }
  if (count > 0) yield* input.accept(']')
  return count > 0
}

function* pythonCall(input: ParserInput, sink: CallSink): Step<boolean> {
  const name = yield* input.word(/[\w.-]/)
  if (name === '' || (yield* input.accept('(')) === null || !sink.call(name)) return false
  sink.argument('{')
  for (let count = 0; ; count++) {
    yield* input.space()
    if ((yield* input.accept(')')) !== null) break
    if (count > 0 && (yield* input.accept(',')) === null) return true
    yield* input.space()
    const key = yield* input.word(/\w/)
    yield* input.space()
    if (key === '' || (yield* input.accept('=')) === null) return true
    sink.argument(`${count === 0 ? '' : ', '}${JSON.stringify(key)}: `)
    const value = yield* pythonValue(input)
    if (value === null) return true
    sink.argument(value)
  }
  sink.argument('}')
  return true
}

/** Reads a Python literal as JSON; `null` if it is cut off. */
function* pythonValue(input: ParserInput): Step<string | null> {
  yield* input.space()
  const quote = yield* input.accept('"', "'")
  if (quote !== null) return yield* pythonText(input, quote)
  const opening = yield* input.accept('[', '(', '{')
  if (opening !== null) return yield* pythonItems(input, opening)
  const word = yield* input.word(/[\w.+-]/)
  if (input.isAtEnd) return null
  return toJson(word)
}

function* pythonText(input: ParserInput, quote: string): Step<string | null> {
  let text = ''
  for (;;) {
    const { text: piece, mark } = yield* input.textUntil('\\', quote)
    text += piece
    if (mark === quote) return JSON.stringify(text)
    if (mark === null) return null
    const escaped = yield* input.accept('n', 't', 'r', '\\', '"', "'", '\n')
    text += escaped === null ? '\\' : (escapes[escaped] ?? escaped)
  }
}

const escapes: Readonly<Record<string, string>> = { n: '\n', t: '\t', r: '\r', '\n': '' }

function* pythonItems(input: ParserInput, opening: string): Step<string | null> {
  const closing = { '[': ']', '(': ')', '{': '}' }[opening] ?? ''
  const items: string[] = []
  for (;;) {
    yield* input.space()
    if ((yield* input.accept(closing)) !== null) break
    if (items.length > 0) {
      if ((yield* input.accept(',')) === null) return null
      yield* input.space()
      if ((yield* input.accept(closing)) !== null) break
    }
    const item = yield* pythonValue(input)
    if (item === null) return null
    if (opening !== '{') items.push(item)
    else {
      yield* input.space()
      if ((yield* input.accept(':')) === null) return null
      const value = yield* pythonValue(input)
      if (value === null) return null
      items.push(`${item}: ${value}`)
    }
  }
  return opening === '{' ? `{${items.join(', ')}}` : `[${items.join(', ')}]`
}
