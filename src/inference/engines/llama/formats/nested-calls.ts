/** MiniMax M3: tags named after the parameters, in which objects and lists are nested tags. */

import { readText, toJson } from './loose-values.ts'
import type { CallSink, ToolCallFormat } from './output-parser.ts'
import type { ParserInput, Step } from './parser-input.ts'
import { propertiesOf } from './tagged-calls.ts'

type Schema = Readonly<Record<string, unknown>>

interface NestedCallsOptions {
  readonly name: string
  /** The control token before every tag. */
  readonly prefix: string
}

export function nestedCalls({ name, prefix }: NestedCallsOptions): ToolCallFormat {
  const list = `${prefix}<tool_call>`
  const call = `${prefix}<invoke name="`
  return {
    name,
    openings: [list, call],
    marks: [prefix],
    *parse(input, sink, opening) {
      if (opening === list) {
        yield* input.space()
        if ((yield* input.accept(call)) === null) return false
      }
      const { text: tool, mark } = yield* input.textUntil('">', list, call)
      if (mark !== '">' || !sink.call(tool)) return false
      const parameters = sink.tools.find((one) => one.name === tool)?.parameters
      const reader = new NestedReader(input, sink, prefix)
      const isWhole = yield* reader.members(alternativesOf(parameters), `${prefix}</invoke>`)
      if (isWhole) yield* input.skip(`${prefix}</tool_call>`)
      return true
    },
  }
}

/**
 * Passes values on as JSON while they arrive; each method returns `false` if its value is cut off.
 * The schemas of a value are the alternatives that its parameter allows.
 */
class NestedReader {
  readonly #input: ParserInput
  readonly #sink: CallSink
  readonly #prefix: string
  /** Whether the latest object or list has its closing tag. */
  #isClosed = false

  constructor(input: ParserInput, sink: CallSink, prefix: string) {
    this.#input = input
    this.#sink = sink
    this.#prefix = prefix
  }

  /** The tags of an object up to the closing tag; the first may have been read already. */
  *members(schemas: readonly Schema[], closing: string, first?: string): Step<boolean> {
    this.#sink.argument('{')
    let tag = first ?? (yield* this.#tag(closing))
    for (let count = 0; tag !== null; count++) {
      this.#sink.argument(`${count === 0 ? '' : ', '}${JSON.stringify(tag)}: `)
      const key = tag
      const alternatives = schemas.flatMap((one) => alternativesOf(propertiesOf(one)[key]))
      if (!(yield* this.#value(alternatives, key))) return false
      tag = yield* this.#tag(closing)
    }
    return this.#end('}')
  }

  *#items(schemas: readonly Schema[], closing: string): Step<boolean> {
    this.#sink.argument('[')
    const alternatives = schemas.flatMap(({ items }) => alternativesOf(items))
    for (let tag: string | null = 'item', count = 0; tag !== null; count++) {
      if (count > 0) this.#sink.argument(', ')
      if (!(yield* this.#value(alternatives, tag))) return false
      tag = yield* this.#tag(closing)
    }
    return this.#end(']')
  }

  /** The name of the next tag; `null` after the closing tag, or if no tag follows. */
  *#tag(closing: string): Step<string | null> {
    yield* this.#input.space()
    const open = `${this.#prefix}<`
    const next = yield* this.#input.accept(closing, open)
    this.#isClosed = next === closing
    if (next !== open) return null
    const { text, mark } = yield* this.#input.textUntil('>')
    return mark === null || text.startsWith('/') ? null : text
  }

  #end(bracket: string): boolean {
    if (!this.#isClosed && this.#input.isCut) return false
    this.#sink.argument(bracket)
    return true
  }

  *#value(schemas: readonly Schema[], tag: string): Step<boolean> {
    const closing = `${this.#prefix}</${tag}>`
    const allows = (type: string): boolean =>
      schemas.some((one) => [one['type']].flat().includes(type))
    if (allows('string')) return yield* readText(this.#input, this.#sink, closing)
    const open = `${this.#prefix}<`
    const { text, mark } = yield* this.#input.textUntil(closing, open)
    if (mark === open) {
      const { text: first, mark: end } = yield* this.#input.textUntil('>')
      if (end === null) return false
      const isList = first === 'item' && (allows('array') || !allows('object'))
      return isList
        ? yield* this.#items(schemas, closing)
        : yield* this.members(schemas, closing, first)
    }
    if (mark === null) return false
    const isEmpty = text.trim() === ''
    const empty = allows('array') ? '[]' : allows('object') ? '{}' : '""'
    this.#sink.argument(isEmpty ? empty : toJson(text.trim()))
    return true
  }
}

/** The schema itself, and those that it offers as alternatives. */
function alternativesOf(schema: unknown): readonly Schema[] {
  if (typeof schema !== 'object' || schema === null) return []
  const { anyOf = [], oneOf = [] } = schema as { anyOf?: unknown[]; oneOf?: unknown[] }
  return [schema as Schema, ...[...anyOf, ...oneOf].flatMap(alternativesOf)]
}
