/** Call formats with one pair of tags for each argument, whose values are not JSON. */

import { withoutPython } from './loose-values.ts'
import type { CallSink, ToolCallFormat } from './output-parser.ts'
import type { ParserInput, Step } from './parser-input.ts'

type Schema = Readonly<Record<string, unknown>>

/** Writes arguments as a JSON object, piece by piece. */
class ArgumentWriter {
  readonly #sink: CallSink
  readonly #properties: Schema
  #count = 0

  constructor(sink: CallSink, tool: string) {
    this.#sink = sink
    const parameters = sink.tools.find(({ name }) => name === tool)?.parameters as
      | Schema
      | undefined
    this.#properties = (parameters?.['properties'] ?? {}) as Schema
    sink.argument('{')
  }

  /** Reads a value up to its closing tag; a string is passed on while it arrives. */
  *value(input: ParserInput, key: string, closing: string, isText = this.#isText(key)): Step<void> {
    this.#sink.argument(`${this.#count++ === 0 ? '' : ', '}${JSON.stringify(key)}: `)
    if (isText) {
      yield* this.#text(input, closing)
      return
    }
    const { text, mark } = yield* input.textUntil(closing)
    if (mark !== null) this.#sink.argument(toJsonOf(text.trim(), this.#typeOf(key)))
  }

  /** Ends the object at the closing tag, or at the end of an output that is not cut off. */
  *end(input: ParserInput, closing: string): Step<void> {
    const isClosed = (yield* input.accept(closing)) !== null
    if (isClosed || !input.isCut) this.#sink.argument('}')
  }

  *#text(input: ParserInput, closing: string): Step<void> {
    const sink = this.#sink
    sink.argument('"')
    yield* input.accept('\n')
    // One line break before the closing tag does not belong to the text.
    const mark = yield* input.partUntil([`\n${closing}`, closing], (piece) =>
      sink.argument(JSON.stringify(piece).slice(1, -1)),
    )
    if (mark !== null) sink.argument('"')
  }

  #typeOf(key: string): unknown {
    const property = this.#properties[key]
    return typeof property === 'object' && property !== null ? (property as Schema)['type'] : null
  }

  #isText(key: string): boolean {
    return this.#typeOf(key) === 'string'
  }
}

/** Valid JSON is kept; anything else becomes a string. */
function toJsonOf(text: string, type: unknown): string {
  const word = withoutPython(text)
  try {
    const value: unknown = JSON.parse(word)
    const isText = Array.isArray(type) && type.includes('string') && typeof value === 'string'
    return isText ? JSON.stringify(value) : word
  } catch {
    return JSON.stringify(text)
  }
}

function* skip(input: ParserInput, ...marks: readonly string[]): Step<void> {
  for (;;) {
    yield* input.space()
    if ((yield* input.accept(...marks)) === null) return
  }
}

/** `<function=name><parameter=key>value</parameter>`: Qwen3-Coder, Seed-OSS, Nemotron 3. */
export const parameterTagCalls = (name: string, wrapper: string): ToolCallFormat => ({
  name,
  openings: [`<${wrapper}>`, '<function='],
  marks: [],
  *parse(input, sink, opening) {
    if (opening !== '<function=') {
      yield* input.space()
      if ((yield* input.accept('<function=')) === null) return false
    }
    const { text: tool, mark } = yield* input.textUntil('>')
    if (mark === null || !sink.call(tool.trim())) return false
    const writer = new ArgumentWriter(sink, tool.trim())
    for (;;) {
      yield* input.space()
      if ((yield* input.accept('<parameter=')) === null) break
      const key = yield* input.textUntil('>')
      if (key.mark === null) return true
      yield* writer.value(input, key.text.trim(), '</parameter>')
    }
    yield* writer.end(input, '</function>')
    yield* skip(input, `</${wrapper}>`)
    return true
  },
})

/** GLM-4.5 and later: `<tool_call>name`, then alternating `<arg_key>` and `<arg_value>`. */
export const glmCalls: ToolCallFormat = {
  name: 'GLM-4.6',
  openings: ['<tool_call>'],
  marks: ['<tool_call>', '</tool_call>', '<arg_key>', '</arg_key>', '<arg_value>', '</arg_value>'],
  *parse(input, sink) {
    yield* input.space()
    const tool = yield* input.word(/[\w.-]/)
    yield* input.space()
    const isCall = yield* input.nextIs('<')
    if (!isCall || !sink.call(tool)) return false
    const writer = new ArgumentWriter(sink, tool)
    for (;;) {
      yield* input.space()
      if ((yield* input.accept('<arg_key>')) === null) break
      const key = yield* input.textUntil('</arg_key>')
      yield* input.space()
      if (key.mark === null || (yield* input.accept('<arg_value>')) === null) return true
      yield* writer.value(input, key.text.trim(), '</arg_value>')
    }
    yield* writer.end(input, '</tool_call>')
    yield* input.space()
    return true
  },
}

export interface InvokeOptions {
  readonly name: string
  /** The names of the tags around calls. */
  readonly wrappers: readonly string[]
  /** The text before the names of the tags. */
  readonly prefix?: string
  readonly marks?: readonly string[]
}

/** `<invoke name="…"><parameter name="…">value</parameter></invoke>`: MiniMax M2, DeepSeek V4. */
export function invokeCalls({
  name,
  wrappers,
  prefix = '',
  marks = [],
}: InvokeOptions): ToolCallFormat {
  const invoke = `<${prefix}invoke name="`
  const parameter = `<${prefix}parameter name="`
  const closing = `</${prefix}parameter>`
  return {
    name,
    openings: [...wrappers.map((wrapper) => `<${wrapper}>`), invoke],
    marks,
    *parse(input, sink, opening) {
      if (opening !== invoke) {
        yield* input.space()
        if ((yield* input.accept(invoke)) === null) return false
      }
      const { text: tool, mark } = yield* input.textUntil('">')
      if (mark === null || !sink.call(tool)) return false
      const writer = new ArgumentWriter(sink, tool)
      for (;;) {
        yield* input.space()
        if ((yield* input.accept(parameter)) === null) break
        const head = yield* input.textUntil('>')
        if (head.mark === null) return true
        const [key = '', ...rest] = head.text.split('"')
        const kind = /string="?(true|false)/.exec(rest.join('"'))?.[1]
        yield* writer.value(input, key, closing, kind === undefined ? undefined : kind === 'true')
      }
      yield* writer.end(input, `</${prefix}invoke>`)
      yield* skip(input, ...wrappers.map((wrapper) => `</${wrapper}>`))
      return true
    },
  }
}
