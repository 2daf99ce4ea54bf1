/** Gemma 4 and FunctionGemma: `call:name{key:<|"|>text<|"|>,other:2}`. */

import type { CallSink, ToolCallFormat } from './output-parser.ts'
import type { ParserInput, Step } from './parser-input.ts'

interface GemmaOptions {
  readonly name: string
  readonly opening: string
  readonly closing: string
  /** Stands around texts. */
  readonly quote: string
}

export function gemmaCalls({ name, opening, closing, quote }: GemmaOptions): ToolCallFormat {
  return {
    name,
    openings: [opening],
    marks: [opening, closing, quote],
    *parse(input, sink) {
      yield* input.space()
      if ((yield* input.accept('call:')) === null) return false
      const tool = yield* input.word(/[\w.-]/)
      if (!(yield* input.nextIs('{')) || !sink.call(tool)) return false
      yield* value(input, sink)
      yield* input.space()
      yield* input.accept(closing)
      yield* input.space()
      return true
    },
  }

  /** Passes a value on as JSON while it comes; `false` if it is cut off. */
  function* value(input: ParserInput, sink: CallSink): Step<boolean> {
    yield* input.space()
    const found = yield* input.accept(quote, '{', '[')
    if (found === quote) return yield* text(input, sink)
    if (found === '{' || found === '[') return yield* items(input, sink, found)
    const word = yield* input.word(/[^,}\]\s<]/)
    if (input.isCut) return false
    sink.argument(toJson(word))
    return word !== ''
  }

  function* text(input: ParserInput, sink: CallSink): Step<boolean> {
    sink.argument('"')
    const mark = yield* input.partUntil([quote], (piece) =>
      sink.argument(JSON.stringify(piece).slice(1, -1)),
    )
    if (mark !== null) sink.argument('"')
    return mark !== null
  }

  function* items(input: ParserInput, sink: CallSink, bracket: '{' | '['): Step<boolean> {
    const end = bracket === '{' ? '}' : ']'
    sink.argument(bracket)
    for (let count = 0; ; count++) {
      yield* input.space()
      if ((yield* input.accept(end)) !== null) break
      if (count > 0) {
        if ((yield* input.accept(',')) === null) return false
        sink.argument(', ')
      }
      if (bracket === '{') {
        yield* input.space()
        const isQuoted = (yield* input.accept(quote)) !== null
        const key = isQuoted ? (yield* input.textUntil(quote)).text : yield* input.word(/[^:\s]/)
        yield* input.space()
        if ((yield* input.accept(':')) === null) return false
        sink.argument(`${JSON.stringify(key)}: `)
      }
      if (!(yield* value(input, sink))) return false
    }
    sink.argument(end)
    return true
  }
}

function toJson(word: string): string {
  const known: Readonly<Record<string, string>> = { True: 'true', False: 'false', None: 'null' }
  const text = known[word] ?? word
  try {
    JSON.parse(text)
    return text
  } catch {
    return text === '' ? '' : JSON.stringify(text)
  }
}
