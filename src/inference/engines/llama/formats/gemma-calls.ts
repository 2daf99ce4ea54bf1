/** Gemma 4 and FunctionGemma: `call:name{key:<|"|>text<|"|>,other:2}`. */

import { readText, toJson } from './loose-values.ts'
import type { CallSink, ToolCallFormat } from './output-parser.ts'
import type { ParserInput, Step } from './parser-input.ts'

interface GemmaOptions {
  readonly name: string
  readonly opening: string
  readonly closing: string
  /** The text before and after strings. */
  readonly quote: string
}

export const gemmaCalls = ({ name, opening, closing, quote }: GemmaOptions): ToolCallFormat => ({
  name,
  openings: [opening],
  marks: [opening, closing, quote],
  *parse(input, sink) {
    yield* input.space()
    if ((yield* input.accept('call:')) === null) return false
    const tool = yield* input.word(/[\w.-]/)
    if (!(yield* input.nextIs('{')) || !sink.call(tool)) return false
    yield* new GemmaReader(input, sink, quote).value()
    yield* input.space()
    yield* input.accept(closing)
    yield* input.space()
    return true
  },
})

/**
 * Passes values on as JSON while they arrive; each method returns `false` if its value is cut off.
 */
class GemmaReader {
  readonly #input: ParserInput
  readonly #sink: CallSink
  readonly #quote: string

  constructor(input: ParserInput, sink: CallSink, quote: string) {
    this.#input = input
    this.#sink = sink
    this.#quote = quote
  }

  *value(): Step<boolean> {
    const input = this.#input
    yield* input.space()
    const found = yield* input.accept(this.#quote, '{', '[')
    if (found === this.#quote) return yield* readText(input, this.#sink, this.#quote)
    if (found === '{' || found === '[') return yield* this.#items(found)
    const word = yield* input.word(/[^,}\]\s<]/)
    if (input.isCut) return false
    this.#sink.argument(word === '' ? '' : toJson(word))
    return word !== ''
  }

  *#items(bracket: '{' | '['): Step<boolean> {
    const input = this.#input
    const end = bracket === '{' ? '}' : ']'
    this.#sink.argument(bracket)
    for (let count = 0; ; count++) {
      yield* input.space()
      if ((yield* input.accept(end)) !== null) break
      if (count > 0) {
        if ((yield* input.accept(',')) === null) return false
        this.#sink.argument(', ')
      }
      if (bracket === '{' && !(yield* this.#key())) return false
      if (!(yield* this.value())) return false
    }
    this.#sink.argument(end)
    return true
  }

  *#key(): Step<boolean> {
    const input = this.#input
    yield* input.space()
    const isQuoted = (yield* input.accept(this.#quote)) !== null
    const quoted = isQuoted ? (yield* input.textUntil(this.#quote)).text : null
    const key = quoted ?? (yield* input.word(/[^:\s]/))
    yield* input.space()
    if ((yield* input.accept(':')) === null) return false
    this.#sink.argument(`${JSON.stringify(key)}: `)
    return true
  }
}
