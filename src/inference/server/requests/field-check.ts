/** Decides for each field of a body whether it is read, may be ignored, or must be refused. */

import type { SupportedFields } from '../../generation/inference-engine.ts'
import {
  basicFields,
  isNeutral,
  messageFields,
  type RequestField,
  requestFields,
  streamOptionFields,
  structuredOutputFields,
} from '../../generation/fields/request-fields.ts'
import { HttpError } from '../http-error.ts'

export interface FieldCheckOptions {
  /** The fields that the schema of the body describes. */
  readonly described: Iterable<string>
  /** What the engine supports besides the basic fields. */
  readonly supported: SupportedFields
  /** Refuses fields that nobody reads instead of ignoring them. */
  readonly isStrict: boolean
}

/**
 * No field is ignored silently. Throws `HttpError` for one that would change the answer and is not
 * supported; names those that nobody reads. Where all fields are passed on, only those of
 * `stream_options` are left: this server writes the stream.
 */
export class FieldCheck {
  readonly #read: ReadonlySet<string>
  readonly #supported: ReadonlySet<string>
  readonly #isStrict: boolean
  readonly #passesAll: boolean

  constructor({ described, supported, isStrict }: FieldCheckOptions) {
    this.#passesAll = supported === 'all'
    this.#supported = new Set(supported === 'all' ? [] : supported)
    this.#isStrict = isStrict
    this.#read = new Set([...described].filter((name) => this.#isRead(name)))
  }

  /** The paths of the fields that nobody reads. The body fits its schema. */
  ignoredIn(body: object): readonly string[] {
    const ignored: string[] = []
    const fields = body as Readonly<Record<string, unknown>>
    const { messages, tools } = fields
    this.#checkWithin('stream_options', streamOptionFields, fields, ignored)
    if (this.#passesAll) return ignored
    if (this.#read.has('structured_outputs')) {
      this.#checkWithin('structured_outputs', structuredOutputFields, fields, ignored)
    }
    for (const name in fields) {
      if (!this.#read.has(name)) this.#check(requestFields, '', name, fields[name], ignored)
    }
    if (Array.isArray(messages)) this.#checkMessages(messages as readonly object[], ignored)
    if (Array.isArray(tools)) this.#checkTools(tools as readonly ToolBody[], ignored)
    return ignored
  }

  /** Throws for a top-level field that is not supported, also of a body that is wrong otherwise. */
  expectSupported(body: unknown): void {
    if (this.#passesAll || typeof body !== 'object' || body === null) return
    for (const [name, value] of Object.entries(body)) {
      const isOfEngine = Object.hasOwn(requestFields, name) && !this.#read.has(name)
      if (isOfEngine) this.#check(requestFields, '', name, value, [])
    }
  }

  #isRead(name: string): boolean {
    const { reader } = requestFields[name] ?? { reader: 'server' }
    if (reader === 'engine') return basicFields.has(name) || this.#supported.has(name)
    return reader === 'server'
  }

  #checkMessages(messages: readonly object[], ignored: string[]): void {
    for (const [at, message] of messages.entries()) {
      const { role, content } = message as { role: string; content?: unknown }
      const read = messageNames[role] ?? plainMessage
      const fields = message as Readonly<Record<string, unknown>>
      for (const name in fields) {
        if (read.has(name) || this.#supported.has(`messages.${name}`)) continue
        this.#check(messageFields, `messages[${at}].`, name, fields[name], ignored)
      }
      if (!Array.isArray(content)) continue
      for (const [part, value] of (content as readonly object[]).entries()) {
        this.#checkNames(value, textPart, `messages[${at}].content[${part}].`, ignored)
      }
    }
  }

  #checkTools(tools: readonly ToolBody[], ignored: string[]): void {
    for (const [at, tool] of tools.entries()) {
      this.#checkNames(tool, toolNames, `tools[${at}].`, ignored)
      this.#checkNames(tool.function, functionNames, `tools[${at}].function.`, ignored)
    }
  }

  /** The fields of an object that is a field itself. */
  #checkWithin(
    parent: string,
    known: Readonly<Record<string, RequestField>>,
    fields: Readonly<Record<string, unknown>>,
    ignored: string[],
  ): void {
    const options = fields[parent]
    if (typeof options !== 'object' || options === null) return
    for (const [name, value] of Object.entries(options)) {
      if (known[name]?.reader === 'server') continue
      this.#check(known, `${parent}.`, name, value, ignored)
    }
  }

  #checkNames(value: object, read: ReadonlySet<string>, prefix: string, ignored: string[]): void {
    for (const name in value) {
      if (read.has(name)) continue
      this.#check({}, prefix, name, (value as Record<string, unknown>)[name], ignored)
    }
  }

  #check(
    known: Readonly<Record<string, RequestField>>,
    prefix: string,
    name: string,
    value: unknown,
    ignored: string[],
  ): void {
    if (value === null) return
    const field = Object.hasOwn(known, name) ? known[name] : undefined
    const path = `${prefix}${name}`
    if (field?.reader === 'engine') {
      if (!isNeutral(field, value)) throw unsupportedField(path)
    } else if (this.#isStrict) throw unreadField(path)
    else ignored.push(path)
  }
}

interface ToolBody {
  readonly function: object
}

const plainMessage: ReadonlySet<string> = new Set(['role', 'content', 'name'])
const messageNames: Readonly<Record<string, ReadonlySet<string>>> = {
  assistant: new Set([...plainMessage, 'tool_calls']),
  tool: new Set([...plainMessage, 'tool_call_id']),
}
const textPart: ReadonlySet<string> = new Set(['type', 'text'])
const toolNames: ReadonlySet<string> = new Set(['type', 'function'])
const functionNames: ReadonlySet<string> = new Set(['name', 'description', 'parameters'])

const shorten = (path: string): string => (path.length > 64 ? `${path.slice(0, 61)}...` : path)

function unsupportedField(path: string): HttpError {
  return new HttpError(
    400,
    `Unsupported parameter: '${shorten(path)}' is not supported by the engine of this model. ` +
      "The engines 'process' and 'openai' pass it on to a server that may support it.",
    { code: 'unsupported_parameter', param: shorten(path) },
  )
}

function unreadField(path: string): HttpError {
  return new HttpError(400, `Unrecognized request argument supplied: '${shorten(path)}'.`, {
    code: 'unknown_parameter',
    param: shorten(path),
  })
}
