/** Formats of tool calls in which each argument is between a pair of tags instead of in JSON. */

import { readText, toJson } from './loose-values.ts'
import type { CallSink, ToolCallFormat } from './output-parser.ts'
import type { ParserInput, ParseStep } from './parser-input.ts'

type Schema = Readonly<Record<string, unknown>>

interface ValueOptions {
  readonly key: string
  readonly closing: string
  /** Whether the value is a string. By default, the tool's parameters decide. */
  readonly isText?: boolean | undefined
  readonly hasLines?: boolean | undefined
  readonly hasCdata?: boolean | undefined
}

class ArgumentWriter {
  readonly #sink: CallSink
  readonly #properties: Schema
  #count = 0

  constructor(sink: CallSink, tool: string) {
    this.#sink = sink
    this.#properties = propertiesOf(sink.tools.find(({ name }) => name === tool)?.parameters)
    sink.argument('{')
  }

  *value(input: ParserInput, options: ValueOptions): ParseStep<void> {
    const { key, closing, hasLines = false, hasCdata = false } = options
    const type = (this.#properties[key] as Schema | null | undefined)?.['type']
    this.#sink.argument(`${this.#count++ === 0 ? '' : ', '}${JSON.stringify(key)}: `)
    if (hasCdata && (yield* input.accept('<![CDATA[')) !== null) {
      yield* readText(input, this.#sink, `]]>${closing}`)
    } else if (options.isText ?? type === 'string') {
      // If a value is on separate lines, the line breaks around it do not belong to it.
      const isLine = hasLines && (yield* input.accept('\n')) !== null
      yield* readText(input, this.#sink, ...(isLine ? [`\n${closing}`] : []), closing)
    } else {
      const { text, mark } = yield* input.textUntil(closing)
      if (mark !== null) this.#sink.argument(toJson(text.trim()))
    }
  }

  /** If the closing tag is missing, closes the object unless the output was cut off. */
  *end(input: ParserInput, closing: string): ParseStep<void> {
    const isClosed = (yield* input.accept(closing)) !== null
    if (isClosed || !input.isCut) this.#sink.argument('}')
  }
}

function propertiesOf(schema: unknown): Schema {
  const { properties } = (schema ?? {}) as Schema
  return (properties ?? {}) as Schema
}

export interface TaggedCallsOptions {
  readonly name: string
  readonly wrappers?: readonly (readonly [string, string])[]
  /** The beginning of the tag with the tool's name, and the text that closes the call. */
  readonly call: readonly [string, string]
  /** The beginning of the tag with a parameter's name, and the text that closes its value. */
  readonly parameter: readonly [string, string]
  readonly tagEnd?: string
  readonly marks?: readonly string[]
  readonly hasLines?: boolean
  readonly hasCdata?: boolean
}

/** A format with a tag for the tool, and a tag per parameter, such as `<parameter=key>value`. */
export function taggedCalls(options: TaggedCallsOptions): ToolCallFormat {
  const { name, wrappers = [], call, parameter, tagEnd = '>', marks = [] } = options
  const { hasLines, hasCdata } = options
  const openings = [...wrappers.map(([open]) => open), call[0]]
  return {
    name,
    openings,
    marks,
    *parse(input, sink, opening) {
      if (!(yield* input.beginsCall(call[0], opening))) return false
      // Also stops at openings. Otherwise, each of many openings would search for the same tag end.
      const { text, mark } = yield* input.textUntil(tagEnd, ...openings)
      const { name: tool } = parseTag(text)
      if (mark !== tagEnd || !sink.call(tool)) return false
      const writer = new ArgumentWriter(sink, tool)
      for (;;) {
        yield* input.space()
        if ((yield* input.accept(parameter[0])) === null) break
        const head = yield* input.textUntil(tagEnd)
        if (head.mark === null) return true
        const { name: key, isText } = parseTag(head.text)
        yield* writer.value(input, { key, closing: parameter[1], isText, hasLines, hasCdata })
      }
      yield* writer.end(input, call[1])
      yield* input.skip(...wrappers.map(([, close]) => close))
      return true
    },
  }
}

/** The name ends at a quote. The tag may also declare whether the value is a string. */
function parseTag(text: string): { readonly name: string; readonly isText: boolean | undefined } {
  const [name = '', ...rest] = text.split('"')
  const declared = /\b(?:string|type)="?(\w+)/.exec(rest.join('"'))?.[1]
  const isText = declared === undefined ? undefined : /^(?:true|string)$/.test(declared)
  return { name: name.trim(), isText }
}

/** `<tool_call>name`, then alternating `<arg_key>` and `<arg_value>`: GLM-4.5 and later, Hy3. */
export function pairedCalls(name: string, suffix = ''): ToolCallFormat {
  const list = `<tool_calls${suffix}>`
  const call = `<tool_call${suffix}>`
  const separator = `<tool_sep${suffix}>`
  const key = `<arg_key${suffix}>`
  const value = `<arg_value${suffix}>`
  const ending = (tag: string): string => tag.replace('<', '</')
  return {
    name,
    openings: [call, list],
    marks: [list, call, separator, key, value].flatMap((tag) => [tag, ending(tag)]),
    *parse(input, sink, opening) {
      yield* input.space()
      if (opening === list && (yield* input.accept(call)) === null) return false
      yield* input.space()
      const tool = yield* input.word(/[\w.-]/)
      yield* input.skip(separator)
      const isCall = yield* input.nextIs('<')
      if (!isCall || !sink.call(tool)) return false
      const writer = new ArgumentWriter(sink, tool)
      for (;;) {
        yield* input.space()
        if ((yield* input.accept(key)) === null) break
        const named = yield* input.textUntil(ending(key))
        yield* input.space()
        if (named.mark === null || (yield* input.accept(value)) === null) return true
        yield* writer.value(input, { key: named.text.trim(), closing: ending(value) })
      }
      yield* writer.end(input, ending(call))
      yield* input.skip(ending(list))
      return true
    },
  }
}

/** MiniMax M3: parameters are tags, and objects and lists are nested tags. */
export function nestedCalls(name: string, prefix: string): ToolCallFormat {
  const list = `${prefix}<tool_call>`
  const call = `${prefix}<invoke name="`
  return {
    name,
    openings: [list, call],
    marks: [prefix],
    *parse(input, sink, opening) {
      if (!(yield* input.beginsCall(call, opening))) return false
      const { text: tool, mark } = yield* input.textUntil('">', list, call)
      if (mark !== '">' || !sink.call(tool)) return false
      const parameters = sink.tools.find((one) => one.name === tool)?.parameters
      const reader = new NestedReader(input, sink, prefix)
      const isWhole = yield* reader.members(schemaAlternatives(parameters), `${prefix}</invoke>`)
      if (isWhole) yield* input.skip(`${prefix}</tool_call>`)
      return true
    },
  }
}

/** Methods that read a value return `false` if it is cut off. A value may have several schemas. */
class NestedReader {
  readonly #input: ParserInput
  readonly #sink: CallSink
  readonly #prefix: string
  #isClosed = false

  constructor(input: ParserInput, sink: CallSink, prefix: string) {
    this.#input = input
    this.#sink = sink
    this.#prefix = prefix
  }

  /** Reads an object up to the closing tag. `first` is a tag that was already read. */
  *members(schemas: readonly Schema[], closing: string, first?: string): ParseStep<boolean> {
    this.#sink.argument('{')
    let tag = first ?? (yield* this.#tag(closing))
    for (let count = 0; tag !== null; count++) {
      this.#sink.argument(`${count === 0 ? '' : ', '}${JSON.stringify(tag)}: `)
      const key = tag
      const alternatives = schemas.flatMap((one) => schemaAlternatives(propertiesOf(one)[key]))
      if (!(yield* this.#value(alternatives, key))) return false
      tag = yield* this.#tag(closing)
    }
    return this.#end('}')
  }

  *#items(schemas: readonly Schema[], closing: string): ParseStep<boolean> {
    this.#sink.argument('[')
    const alternatives = schemas.flatMap(({ items }) => schemaAlternatives(items))
    for (let tag: string | null = 'item', count = 0; tag !== null; count++) {
      if (count > 0) this.#sink.argument(', ')
      if (!(yield* this.#value(alternatives, tag))) return false
      tag = yield* this.#tag(closing)
    }
    return this.#end(']')
  }

  /** Returns the name of the next tag; `null` after the closing tag, or if no tag follows. */
  *#tag(closing: string): ParseStep<string | null> {
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

  *#value(schemas: readonly Schema[], tag: string): ParseStep<boolean> {
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

function schemaAlternatives(schema: unknown): readonly Schema[] {
  if (typeof schema !== 'object' || schema === null) return []
  const { anyOf = [], oneOf = [] } = schema as { anyOf?: unknown[]; oneOf?: unknown[] }
  return [schema as Schema, ...[...anyOf, ...oneOf].flatMap(schemaAlternatives)]
}
