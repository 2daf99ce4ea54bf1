/** Decides for each field of a body whether it is read, may be ignored, or must be refused. */

import { isFields } from '../../generation/pass-through.ts'
import {
  basicFields,
  isNeutral,
  messageFields,
  otherNames,
  fieldHints,
  type RequestField,
  requestFields,
  streamOptionFields,
  structuredOutputFields,
} from '../../generation/fields/request-fields.ts'
import type { HttpError } from '../../../runtime/http/http-error.ts'
import {
  type Limit,
  unknownField,
  unreadField,
  unsupportedField,
  wrongValue,
} from './invalid-request.ts'

export interface FieldCheckOptions {
  /** The fields that the schema of the body describes. */
  readonly described: Iterable<string>
  /** The known fields at the top level of the body. Default: `requestFields`. */
  readonly known?: Fields
  /** The fields that the engine supports besides the basic ones. */
  readonly supported: readonly string[]
  /** Whether all fields are passed on to the server behind the engine. */
  readonly isPassedOn: boolean
  /** Whether unread fields are refused instead of ignored. */
  readonly isStrict: boolean
  /** Advice for the client about an unsupported field. Default: use an engine that passes it on. */
  readonly advice?: string
  /** The paths whose bodies may contain a field. Default: none. */
  readonly pathsWith?: (name: string) => readonly string[]
}

type Fields = Readonly<Record<string, RequestField>>

/**
 * Ensures that no field is ignored silently. Throws `HttpError` for an unsupported field that would
 * change the answer; returns the names of unread fields. If all fields are passed on, only those of
 * `stream_options` are checked, because this server writes the stream.
 */
export class FieldCheck {
  readonly #known: Fields
  readonly #read: ReadonlySet<string>
  readonly #supported: ReadonlySet<string>
  readonly #isStrict: boolean
  readonly #limit: Limit
  readonly #pathsWith: (name: string) => readonly string[]
  readonly #passesAll: boolean

  constructor(options: FieldCheckOptions) {
    const { described, known, supported, isPassedOn, isStrict, advice, pathsWith } = options
    this.#known = known ?? requestFields
    this.#limit = { by: 'the engine of this model', advice: advice ?? otherEngines }
    this.#pathsWith = pathsWith ?? (() => [])
    this.#passesAll = isPassedOn
    this.#supported = new Set(supported)
    this.#isStrict = isStrict
    this.#read = new Set([...described].filter((name) => this.#isRead(name)))
  }

  /** Returns the paths of unread fields. The body must match its schema. */
  ignoredIn(body: object): readonly string[] {
    const ignored: string[] = []
    const fields = body as Readonly<Record<string, unknown>>
    const { messages, tools, tool_choice: choice, response_format: format } = fields
    this.#checkWithin('stream_options', streamOptionFields, fields, ignored, ownStream)
    if (this.#passesAll) return ignored
    if (this.#read.has('structured_outputs')) {
      expectGuide(fields['structured_outputs'])
      this.#checkWithin('structured_outputs', structuredOutputFields, fields, ignored)
    }
    for (const name in fields) {
      if (!this.#read.has(name)) this.#check(this.#top, name, fields[name], ignored)
    }
    if (Array.isArray(messages)) this.#checkMessages(messages as readonly object[], ignored)
    if (Array.isArray(tools)) this.#checkTools(tools as readonly ToolBody[], ignored)
    if (isFields(choice)) this.#checkCall(choice, choiceNames, 'tool_choice.', ignored)
    if (isFields(format)) this.#checkFormat(format as unknown as FormatBody, ignored)
    return ignored
  }

  /** Throws for an unsupported top-level field. The body need not match its schema. */
  expectSupported(body: unknown): void {
    if (this.#passesAll || !isFields(body)) return
    for (const [name, value] of Object.entries(body)) {
      const isOfEngine = Object.hasOwn(this.#known, name) && !this.#read.has(name)
      if (isOfEngine) this.#check(this.#top, name, value, [])
    }
  }

  /** Whether a body may contain the field, even if nothing reads the field. */
  takes(name: string): boolean {
    return this.#read.has(name) || (!this.#isStrict && this.#known[name]?.reader === 'nobody')
  }

  get #top(): FieldGroup {
    return { known: this.#known, prefix: '', read: this.#read }
  }

  #isRead(name: string): boolean {
    const { reader } = this.#known[name] ?? { reader: 'server' }
    return reader === 'engine' ? this.#isOfEngine(name) : reader === 'server'
  }

  #isOfEngine(name: string): boolean {
    return basicFields.has(name) || this.#supported.has(name)
  }

  #checkMessages(messages: readonly object[], ignored: string[]): void {
    for (const [at, message] of messages.entries()) {
      const { role, content, tool_calls: calls } = message as MessageBody
      const read = messageNames[role] ?? plainMessage
      const isSaid = role === 'assistant'
      const fields = message as Readonly<Record<string, unknown>>
      for (const name in fields) {
        if (read.has(name) || this.#isOfMessage(name, isSaid)) continue
        const place = { known: messageFields, prefix: `messages[${at}].`, read }
        this.#check(place, name, fields[name], ignored)
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

  /** Whether the engine supports the field: `name` in any message, others only of an assistant. */
  #isOfMessage(name: string, isSaid: boolean): boolean {
    return (isSaid || name === 'name') && this.#supported.has(`messages.${name}`)
  }

  #checkTools(tools: readonly ToolBody[], ignored: string[]): void {
    for (const [at, tool] of tools.entries()) {
      this.#checkNames(tool, toolNames, `tools[${at}].`, ignored)
      this.#checkNames(tool.function, functionNames, `tools[${at}].function.`, ignored)
    }
  }

  /** Checks a tool call or a tool choice; both are objects with a `function`. */
  #checkCall(
    call: object,
    { outer, inner }: { outer: ReadonlySet<string>; inner: ReadonlySet<string> },
    prefix: string,
    ignored: string[],
  ): void {
    this.#checkNames(call, outer, prefix, ignored)
    this.#checkNames((call as ToolBody).function, inner, `${prefix}function.`, ignored)
  }

  /** Refuses a schema that has no effect with the given `type`. */
  #checkFormat(format: FormatBody, ignored: string[]): void {
    const { type, json_schema: wrapper } = format
    const read = formatNames[type] ?? new Set()
    for (const name of ['schema', 'json_schema'] as const) {
      if (read.has(name) || format[name] === undefined || format[name] === null) continue
      const path = `response_format.${name}`
      throw wrongValue(path, `Invalid value for '${path}': it is not read with the type '${type}'.`)
    }
    this.#checkNames(format, read, 'response_format.', ignored)
    if (type !== 'json_schema' || !isFields(wrapper)) return
    this.#checkNames(wrapper, schemaNames, 'response_format.json_schema.', ignored)
  }

  /** Checks the fields of an object that is itself a field of the body. */
  #checkWithin(
    parent: string,
    known: Fields,
    fields: Readonly<Record<string, unknown>>,
    ignored: string[],
    limit = this.#limit,
  ): void {
    const options = fields[parent]
    if (!isFields(options)) return
    const read = namesReadIn(known)
    for (const [name, value] of Object.entries(options)) {
      if (read.has(name)) continue
      this.#check({ known, prefix: `${parent}.`, read, limit }, name, value, ignored)
    }
  }

  #checkNames(value: object, read: ReadonlySet<string>, prefix: string, ignored: string[]): void {
    for (const name in value) {
      if (read.has(name)) continue
      const given = (value as Record<string, unknown>)[name]
      this.#check({ known: {}, prefix, read }, name, given, ignored)
    }
  }

  #check(
    { known, prefix, read, limit }: FieldGroup,
    name: string,
    value: unknown,
    ignored: string[],
  ): void {
    if (value === null) return
    const field = Object.hasOwn(known, name) ? known[name] : undefined
    const path = `${prefix}${name}`
    if (field?.reader === 'engine') {
      if (!isNeutral(field, value)) throw this.#unsupported(path, limit)
    } else if (this.#isStrict) throw unreadField(path, read)
    else ignored.push(path)
  }

  /** The error suggests another path or another field name if the engine supports that. */
  #unsupported(path: string, limit: Limit = this.#limit): HttpError {
    const paths = this.#isOfEngine(path) ? this.#pathsWith(path) : []
    if (paths.length > 0) {
      return unsupportedField(path, {
        by: 'this path',
        advice: `Send it to ${paths.join(' or ')}.`,
      })
    }
    const advice = this.#known === requestFields ? this.#replacementOf(path) : undefined
    return unsupportedField(path, advice === undefined ? limit : { ...limit, advice })
  }

  #replacementOf(name: string): string | undefined {
    const other = otherNames[name]?.find((one) => this.#read.has(one))
    return other === undefined ? fieldHints[name] : `Use '${other}' instead.`
  }
}

/** A group of fields: the known fields, the prefix of their paths, and which of them are read. */
interface FieldGroup {
  readonly known: Fields
  readonly prefix: string
  readonly read: ReadonlySet<string>
  /** The cause and advice in errors about unsupported fields. Default: those of the engine. */
  readonly limit?: Limit
}

const namesReadIn = (known: Fields): ReadonlySet<string> =>
  new Set(Object.keys(known).filter((name) => known[name]?.reader === 'server'))

const guides = namesReadIn(structuredOutputFields)

/** Refuses an unknown kind of structured output, because the client would get unstructured text. */
function expectGuide(structured: unknown): void {
  if (!isFields(structured)) return
  const given = Object.keys(structured).filter((name) => structured[name] !== null)
  const unknown = given.find((name) => !Object.hasOwn(structuredOutputFields, name))
  if (unknown === undefined || given.some((name) => guides.has(name))) return
  const reason = `'structured_outputs' takes one of ${[...guides].join(', ')}.`
  throw unknownField(`structured_outputs.${unknown}`, guides, reason)
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

const plainMessage: ReadonlySet<string> = new Set(['role', 'content'])
const messageNames: Readonly<Record<string, ReadonlySet<string>>> = {
  assistant: new Set([...plainMessage, 'tool_calls']),
  tool: new Set([...plainMessage, 'name', 'tool_call_id']),
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
/** `strict` needs no handling, because answers always match their schema. */
const schemaNames: ReadonlySet<string> = new Set(['name', 'schema', 'strict'])

const otherEngines =
  "The engines 'process' and 'openai' pass it on to a server that may support it."

/** For `stream_options`, which no engine reads, because this server writes the stream. */
const ownStream: Limit = {
  by: 'this server',
  advice: "With 'include_usage', a stream has its usage in the last chunk.",
}
