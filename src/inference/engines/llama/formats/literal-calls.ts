/** Formats of tool calls whose arguments resemble literals of Python or JavaScript. */

import { readText, toJson } from './loose-values.ts'
import type { CallSink, ToolCallFormat } from './output-parser.ts'
import type { ParserInput, ParseStep } from './parser-input.ts'

/** The format of LFM2: `[weather(city="Rome", days=2), now()]`. */
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

/** Reads a list of calls. The brackets around the list are optional. */
export function* pythonList(input: ParserInput, sink: CallSink): ParseStep<boolean> {
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

function* pythonCall(input: ParserInput, sink: CallSink): ParseStep<boolean> {
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

/** Reads a Python literal and returns it as JSON; `null` if it is cut off or malformed. */
function* pythonValue(input: ParserInput): ParseStep<string | null> {
  yield* input.space()
  const quote = yield* input.accept('"', "'")
  if (quote !== null) return yield* pythonText(input, quote)
  const opening = yield* input.accept('[', '(', '{')
  if (opening !== null) return yield* pythonItems(input, opening)
  const word = yield* input.word(/[\w.+-]/)
  if (input.isAtEnd) return null
  return toJson(word)
}

function* pythonText(input: ParserInput, quote: string): ParseStep<string | null> {
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

function* pythonItems(input: ParserInput, opening: string): ParseStep<string | null> {
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

/** Gemma 4 and FunctionGemma: `call:name{key:<|"|>text<|"|>,other:2}`. */
export const gemmaCalls = (
  name: string,
  opening: string,
  closing: string,
  quote: string,
): ToolCallFormat => ({
  name,
  openings: [opening],
  marks: [opening, closing, quote],
  *parse(input, sink) {
    yield* input.space()
    if ((yield* input.accept('call:')) === null) return false
    const tool = yield* input.word(/[\w.-]/)
    if (!(yield* input.nextIs('{')) || !sink.call(tool)) return false
    yield* gemmaReader(input, sink, quote)()
    yield* input.space()
    yield* input.accept(closing)
    yield* input.space()
    return true
  },
})

function gemmaReader(input: ParserInput, sink: CallSink, quote: string): () => ParseStep<boolean> {
  return value

  /**
   * Reads a value and emits it as JSON. Like `items` and `key` below, returns `false` if the text
   * is cut off or malformed.
   */
  function* value(): ParseStep<boolean> {
    yield* input.space()
    const found = yield* input.accept(quote, '{', '[')
    if (found === quote) return yield* readText(input, sink, quote)
    if (found === '{' || found === '[') return yield* items(found)
    const word = yield* input.word(/[^,}\]\s<]/)
    if (input.isCut) return false
    sink.argument(word === '' ? '' : toJson(word))
    return word !== ''
  }

  function* items(bracket: '{' | '['): ParseStep<boolean> {
    const end = bracket === '{' ? '}' : ']'
    sink.argument(bracket)
    for (let count = 0; ; count++) {
      yield* input.space()
      if ((yield* input.accept(end)) !== null) break
      if (count > 0) {
        if ((yield* input.accept(',')) === null) return false
        sink.argument(', ')
      }
      if (bracket === '{' && !(yield* key())) return false
      if (!(yield* value())) return false
    }
    sink.argument(end)
    return true
  }

  function* key(): ParseStep<boolean> {
    yield* input.space()
    const isQuoted = (yield* input.accept(quote)) !== null
    const quoted = isQuoted ? (yield* input.textUntil(quote)).text : null
    const name = quoted ?? (yield* input.word(/[^:\s]/))
    yield* input.space()
    if ((yield* input.accept(':')) === null) return false
    sink.argument(`${JSON.stringify(name)}: `)
    return true
  }
}
