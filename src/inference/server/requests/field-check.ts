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
import { wrongValue } from './invalid-request.ts'

export interface FieldCheckOptions {
  /** The fields that the schema of the body describes. */
  readonly described: Iterable<string>
  /** The fields at the top of the body. Default: those of requests for text. */
  readonly known?: Fields
  /** What the engine supports besides the basic fields. */
  readonly supported: SupportedFields
  /** Refuses fields that nobody reads instead of ignoring them. */
  readonly isStrict: boolean
  /** What helps where a field is not supported. Default: the engines that pass it on. */
  readonly advice?: string
}

/** Who does not support a field, and what helps. */
interface Limit {
  readonly by: string
  readonly advice: string
}

type Fields = Readonly<Record<string, RequestField>>

/**
 * No field is ignored silently. Throws `HttpError` for one that would change the answer and is not
 * supported; names those that nobody reads. Where all fields are passed on, only those of
 * `stream_options` are left: this server writes the stream.
 */
export class FieldCheck {
  readonly #known: Fields
  readonly #read: ReadonlySet<string>
  readonly #supported: ReadonlySet<string>
  readonly #isStrict: boolean
  readonly #limit: Limit
  readonly #passesAll: boolean

  constructor({ described, known, supported, isStrict, advice }: FieldCheckOptions) {
    this.#known = known ?? requestFields
    this.#limit = { by: 'the engine of this model', advice: advice ?? otherEngines }
    this.#passesAll = supported === 'all'
    this.#supported = new Set(supported === 'all' ? [] : supported)
    this.#isStrict = isStrict
    this.#read = new Set([...described].filter((name) => this.#isRead(name)))
  }

  /** The paths of the fields that nobody reads. The body fits its schema. */
  ignoredIn(body: object): readonly string[] {
    const ignored: string[] = []
    const fields = body as Readonly<Record<string, unknown>>
    const { messages, tools, tool_choice: choice, response_format: format } = fields
    this.#checkWithin('stream_options', streamOptionFields, fields, ignored, ownStream)
    if (this.#passesAll) return ignored
    if (this.#read.has('structured_outputs')) {
      this.#checkWithin('structured_outputs', structuredOutputFields, fields, ignored)
    }
    for (const name in fields) {
      if (!this.#read.has(name)) this.#check(this.#known, '', name, fields[name], ignored)
    }
    if (Array.isArray(messages)) this.#checkMessages(messages as readonly object[], ignored)
    if (Array.isArray(tools)) this.#checkTools(tools as readonly ToolBody[], ignored)
    if (isObject(choice)) this.#checkCall(choice, choiceNames, 'tool_choice.', ignored)
    if (isObject(format)) this.#checkFormat(format as FormatBody, ignored)
    return ignored
  }

  /** Throws for a top-level field that is not supported, also of a body that is wrong otherwise. */
  expectSupported(body: unknown): void {
    if (this.#passesAll || !isObject(body)) return
    for (const [name, value] of Object.entries(body)) {
      const isOfEngine = Object.hasOwn(this.#known, name) && !this.#read.has(name)
      if (isOfEngine) this.#check(this.#known, '', name, value, [])
    }
  }

  #isRead(name: string): boolean {
    const { reader } = this.#known[name] ?? { reader: 'server' }
    if (reader === 'engine') return basicFields.has(name) || this.#supported.has(name)
    return reader === 'server'
  }

  #checkMessages(messages: readonly object[], ignored: string[]): void {
    for (const [at, message] of messages.entries()) {
      const { role, content, tool_calls: calls } = message as MessageBody
      const read = messageNames[role] ?? plainMessage
      const isSaid = role === 'assistant'
      const fields = message as Readonly<Record<string, unknown>>
      for (const name in fields) {
        if (read.has(name) || (isSaid && this.#supported.has(`messages.${name}`))) continue
        this.#check(messageFields, `messages[${at}].`, name, fields[name], ignored)
      }
      if (isSaid && Array.isArray(calls)) {
        for (const [call, value] of (calls as readonly ToolBody[]).entries()) {
          this.#checkCall(value, callNames, `messages[${at}].tool_calls[${call}].`, ignored)
        }
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

  /** A call, or the choice of one: an object with a function. */
  #checkCall(
    call: object,
    { outer, inner }: { outer: ReadonlySet<string>; inner: ReadonlySet<string> },
    prefix: string,
    ignored: string[],
  ): void {
    this.#checkNames(call, outer, prefix, ignored)
    this.#checkNames((call as ToolBody).function, inner, `${prefix}function.`, ignored)
  }

  /** A schema where its type does not read one would be lost. */
  #checkFormat(format: FormatBody, ignored: string[]): void {
    const { type, json_schema: wrapper } = format
    const read = formatNames[type] ?? new Set()
    for (const name of ['schema', 'json_schema'] as const) {
      if (read.has(name) || format[name] === undefined || format[name] === null) continue
      const path = `response_format.${name}`
      throw wrongValue(path, `Invalid value for '${path}': the type '${type}' has none.`)
    }
    this.#checkNames(format, read, 'response_format.', ignored)
    if (type !== 'json_schema' || !isObject(wrapper)) return
    this.#checkNames(wrapper, schemaNames, 'response_format.json_schema.', ignored)
  }

  /** The fields of an object that is a field itself. */
  #checkWithin(
    parent: string,
    known: Fields,
    fields: Readonly<Record<string, unknown>>,
    ignored: string[],
    limit = this.#limit,
  ): void {
    const options = fields[parent]
    if (!isObject(options)) return
    for (const [name, value] of Object.entries(options)) {
      if (known[name]?.reader === 'server') continue
      this.#check(known, `${parent}.`, name, value, ignored, limit)
    }
  }

  #checkNames(value: object, read: ReadonlySet<string>, prefix: string, ignored: string[]): void {
    for (const name in value) {
      if (read.has(name)) continue
      this.#check({}, prefix, name, (value as Record<string, unknown>)[name], ignored)
    }
  }

  #check(
    known: Fields,
    prefix: string,
    name: string,
    value: unknown,
    ignored: string[],
    limit = this.#limit,
  ): void {
    if (value === null) return
    const field = Object.hasOwn(known, name) ? known[name] : undefined
    const path = `${prefix}${name}`
    if (field?.reader === 'engine') {
      if (!isNeutral(field, value)) throw unsupportedField(path, limit)
    } else if (this.#isStrict) throw unreadField(path)
    else ignored.push(path)
  }
}

interface ToolBody {
  readonly function: object
}

interface MessageBody {
  readonly role: string
  readonly content?: unknown
  readonly tool_calls?: unknown
}

interface FormatBody {
  readonly type: string
  readonly schema?: unknown
  readonly json_schema?: unknown
}

const isObject = (value: unknown): value is object => typeof value === 'object' && value !== null

const plainMessage: ReadonlySet<string> = new Set(['role', 'content', 'name'])
const messageNames: Readonly<Record<string, ReadonlySet<string>>> = {
  assistant: new Set([...plainMessage, 'tool_calls']),
  tool: new Set([...plainMessage, 'tool_call_id']),
}
const textPart: ReadonlySet<string> = new Set(['type', 'text'])
const toolNames: ReadonlySet<string> = new Set(['type', 'function'])
const functionNames: ReadonlySet<string> = new Set(['name', 'description', 'parameters'])
const callNames = {
  outer: new Set(['id', 'type', 'function']),
  inner: new Set(['name', 'arguments']),
}
const choiceNames = { outer: toolNames, inner: new Set(['name']) }
const formatNames: Readonly<Record<string, ReadonlySet<string>>> = {
  text: new Set(['type']),
  json_object: new Set(['type', 'schema']),
  json_schema: new Set(['type', 'json_schema']),
}
/** Answers always fit their schema, so that `strict` is done either way. */
const schemaNames: ReadonlySet<string> = new Set(['name', 'schema', 'strict'])

const shorten = (path: string): string => (path.length > 64 ? `${path.slice(0, 61)}...` : path)

const otherEngines =
  "The engines 'process' and 'openai' pass it on to a server that may support it."

/** The stream is written here, whatever the engine. */
const ownStream: Limit = {
  by: 'this server',
  advice: "With 'include_usage', a stream has its usage in the last chunk.",
}

function unsupportedField(path: string, { by, advice }: Limit): HttpError {
  const what = `'${shorten(path)}' is not supported by ${by}`
  return new HttpError(400, `Unsupported parameter: ${what}. ${advice}`, {
    code: 'unsupported_parameter',
    param: shorten(path),
  })
}

/** The error of a strict server for a field that nobody reads. */
export function unreadField(path: string): HttpError {
  return new HttpError(400, `Unrecognized request argument supplied: '${shorten(path)}'.`, {
    code: 'unknown_parameter',
    param: shorten(path),
  })
}
