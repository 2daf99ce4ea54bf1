/** Decides for each field of a body whether it is read, may be ignored, or must be refused. */

import { isPlainObject } from '../../../foundation/json-value.ts'
import {
  basicFields,
  hasNoEffect,
  messageFields,
  equivalentFields,
  fieldHints,
  type RequestField,
  requestFields,
  streamOptionFields,
  structuredOutputFields,
} from '../../generation/fields/request-fields.ts'
import type { HttpError } from '../../../runtime/http/http-error.ts'
import {
  type UnsupportedReason,
  unknownFieldError,
  unreadFieldError,
  unsupportedFieldError,
  wrongValueError,
} from './invalid-request.ts'

export interface FieldCheckOptions {
  readonly schemaFields: readonly string[]
  /** The known fields at the top level of the body. Default: `requestFields`. */
  readonly known?: Fields
  readonly supported: readonly string[]
  /** Whether all fields are passed on to the server behind the engine. */
  readonly isPassedOn: boolean
  readonly isStrict: boolean
  /** The last sentence of errors about unsupported fields. Default: `otherEnginesAdvice`. */
  readonly advice?: string
  /** Returns the paths whose bodies may contain a field. Default: none. */
  readonly findPaths?: (name: string) => readonly string[]
}

type Fields = Readonly<Record<string, RequestField>>

/** Reports ignored fields. Throws for an unsupported field that would change the answer. */
export class FieldCheck {
  readonly #options: FieldCheckOptions
  readonly #knownFields: Fields
  readonly #read: ReadonlySet<string>
  readonly #supported: ReadonlySet<string>
  readonly #unsupportedReason: UnsupportedReason

  constructor(options: FieldCheckOptions) {
    const { schemaFields, known = requestFields, advice = otherEnginesAdvice } = options
    this.#options = options
    this.#knownFields = known
    this.#unsupportedReason = { source: 'the engine of this model', advice }
    this.#supported = new Set(options.supported)
    this.#read = new Set(schemaFields.filter((name) => this.#isRead(name)))
  }

  /** Returns the paths of ignored fields. The body must match its schema. */
  findIgnored(body: object): readonly string[] {
    const ignored: string[] = []
    const fields = body as Readonly<Record<string, unknown>>
    const { messages, tools, tool_choice: choice, response_format: format } = fields
    this.#checkNested('stream_options', streamOptionFields, fields, ignored, streamReason)
    if (this.#options.isPassedOn) return ignored
    if (this.#read.has('structured_outputs')) {
      expectKnownOutput(fields['structured_outputs'])
      this.#checkNested('structured_outputs', structuredOutputFields, fields, ignored)
    }
    for (const name in fields) {
      if (!this.#read.has(name)) this.#check(this.#topLevel, name, fields[name], ignored)
    }
    if (Array.isArray(messages)) this.#checkMessages(messages as readonly object[], ignored)
    if (Array.isArray(tools)) this.#checkTools(tools as readonly ToolBody[], ignored)
    if (isPlainObject(choice)) this.#checkCall(choice, choiceNames, 'tool_choice.', ignored)
    if (isPlainObject(format)) this.#checkFormat(format as unknown as FormatBody, ignored)
    return ignored
  }

  /** Throws if a top-level field is not supported. The body need not match its schema. */
  expectSupported(body: unknown): void {
    if (this.#options.isPassedOn || !isPlainObject(body)) return
    for (const [name, value] of Object.entries(body)) {
      const isUnreadField = Object.hasOwn(this.#knownFields, name) && !this.#read.has(name)
      if (isUnreadField) this.#check(this.#topLevel, name, value, [])
    }
  }

  /** Whether a body may contain the field, even if nothing reads the field. */
  accepts(name: string): boolean {
    const isIgnored = this.#knownFields[name]?.reader === 'nobody' && !this.#options.isStrict
    return isIgnored || this.#read.has(name)
  }

  get #topLevel(): FieldGroup {
    return { known: this.#knownFields, prefix: '', read: this.#read }
  }

  #isRead(name: string): boolean {
    const { reader } = this.#knownFields[name] ?? { reader: 'server' }
    return reader === 'server' || this.#isEngineField(name)
  }

  #isEngineField(name: string): boolean {
    return basicFields.has(name) || this.#supported.has(name)
  }

  #checkMessages(messages: readonly object[], ignored: string[]): void {
    for (const [at, message] of messages.entries()) {
      const fields = message as Readonly<Record<string, unknown>>
      const { role, content, tool_calls: calls } = fields
      const read = namesByRole[String(role)] ?? messageNames
      const isAssistant = role === 'assistant'
      for (const name in fields) {
        if (read.has(name) || this.#isEngineMessageField(name, isAssistant)) continue
        const group = { known: messageFields, prefix: `messages[${at}].`, read }
        this.#check(group, name, fields[name], ignored)
      }
      if (isAssistant && Array.isArray(calls)) {
        for (const [call, value] of (calls as readonly ToolBody[]).entries()) {
          this.#checkCall(value, callNames, `messages[${at}].tool_calls[${call}].`, ignored)
        }
      }
      if (!Array.isArray(content)) continue
      for (const [part, value] of (content as readonly object[]).entries()) {
        this.#checkNames(value, textPartNames, `messages[${at}].content[${part}].`, ignored)
      }
    }
  }

  /** The field `name` may be supported in any message, other fields only in assistant messages. */
  #isEngineMessageField(name: string, isAssistant: boolean): boolean {
    return (isAssistant || name === 'name') && this.#supported.has(`messages.${name}`)
  }

  #checkTools(tools: readonly ToolBody[], ignored: string[]): void {
    for (const [at, tool] of tools.entries()) {
      this.#checkNames(tool, toolNames, `tools[${at}].`, ignored)
      this.#checkNames(tool.function, functionNames, `tools[${at}].function.`, ignored)
    }
  }

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
      throw wrongValueError(
        path,
        `Invalid value for '${path}': it is not read with the type '${type}'.`,
      )
    }
    this.#checkNames(format, read, 'response_format.', ignored)
    if (type !== 'json_schema' || !isPlainObject(wrapper)) return
    this.#checkNames(wrapper, schemaNames, 'response_format.json_schema.', ignored)
  }

  #checkNested(
    parent: string,
    known: Fields,
    fields: Readonly<Record<string, unknown>>,
    ignored: string[],
    reason = this.#unsupportedReason,
  ): void {
    const options = fields[parent]
    if (!isPlainObject(options)) return
    const read = listServerFields(known)
    for (const [name, value] of Object.entries(options)) {
      if (read.has(name)) continue
      this.#check({ known, prefix: `${parent}.`, read, reason }, name, value, ignored)
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
    { known, prefix, read, reason }: FieldGroup,
    name: string,
    value: unknown,
    ignored: string[],
  ): void {
    if (value === null) return
    const field = Object.hasOwn(known, name) ? known[name] : undefined
    const path = `${prefix}${name}`
    if (field?.reader === 'engine') {
      if (!hasNoEffect(field, value)) throw this.#createUnsupportedError(path, reason)
    } else if (this.#options.isStrict) throw unreadFieldError(path, read)
    else ignored.push(path)
  }

  #createUnsupportedError(
    path: string,
    reason: UnsupportedReason = this.#unsupportedReason,
  ): HttpError {
    const paths = (this.#isEngineField(path) && this.#options.findPaths?.(path)) || []
    if (paths.length > 0) {
      const advice = `Send it to ${paths.join(' or ')}.`
      return unsupportedFieldError(path, { source: 'this path', advice })
    }
    const advice = this.#knownFields === requestFields ? this.#suggestReplacement(path) : undefined
    return unsupportedFieldError(path, advice === undefined ? reason : { ...reason, advice })
  }

  #suggestReplacement(name: string): string | undefined {
    const other = equivalentFields[name]?.find((one) => this.#read.has(one))
    return other === undefined ? fieldHints[name] : `Use '${other}' instead.`
  }
}

interface FieldGroup {
  readonly known: Fields
  readonly prefix: string
  readonly read: ReadonlySet<string>
  /** The cause and advice in errors about unsupported fields. Default: those of the engine. */
  readonly reason?: UnsupportedReason
}

const listServerFields = (known: Fields): ReadonlySet<string> =>
  new Set(Object.keys(known).filter((name) => known[name]?.reader === 'server'))

const outputNames = listServerFields(structuredOutputFields)

/** Throws if all given fields are unknown, because the answer would then be plain text. */
function expectKnownOutput(structured: unknown): void {
  if (!isPlainObject(structured)) return
  const given = Object.keys(structured).filter((name) => structured[name] !== null)
  const unknown = given.find((name) => !Object.hasOwn(structuredOutputFields, name))
  if (unknown === undefined || given.some((name) => outputNames.has(name))) return
  const reason = `'structured_outputs' takes one of ${[...outputNames].join(', ')}.`
  throw unknownFieldError(`structured_outputs.${unknown}`, outputNames, reason)
}

interface ToolBody {
  readonly function: object
}

interface FormatBody {
  readonly type: string
  readonly schema?: unknown
  readonly json_schema?: unknown
}

const messageNames: ReadonlySet<string> = new Set(['role', 'content'])
const namesByRole: Readonly<Record<string, ReadonlySet<string>>> = {
  assistant: new Set([...messageNames, 'tool_calls']),
  tool: new Set([...messageNames, 'name', 'tool_call_id']),
}
const textPartNames: ReadonlySet<string> = new Set(['type', 'text'])
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

const otherEnginesAdvice =
  "The engines 'process' and 'openai' pass it on to a server that may support it."

/** No engine reads `stream_options`, because this server writes the stream. */
const streamReason: UnsupportedReason = {
  source: 'this server',
  advice: "With 'include_usage', a stream has its usage in the last chunk.",
}
