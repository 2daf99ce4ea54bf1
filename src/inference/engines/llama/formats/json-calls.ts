/** Formats of tool calls as JSON objects: alone, in a list, or between marks. */

import { tryRead } from '../../../../foundation/errors.ts'
import { isJsonText } from '../../../../foundation/json-value.ts'
import type { CallSink, ToolCallFormat } from './output-parser.ts'
import type { ParserInput, ParseStep } from './parser-input.ts'

export interface JsonCallsOptions {
  readonly name: string
  readonly openings: readonly string[]
  readonly closing?: string
  /** The texts of control tokens that the parser needs. Default: the openings and the closing. */
  readonly marks?: readonly string[]
  /** Texts that may separate calls, in addition to commas and white space. */
  readonly separators?: readonly string[]
  /** Whether the only key is the name of the tool, as in `{"weather": {…}}`. Default `false`. */
  readonly hasToolNameKey?: boolean
}

const nameKeys: ReadonlySet<string> = new Set(['name', 'tool_name', 'function'])
const argumentKeys: ReadonlySet<string> = new Set(['arguments', 'parameters'])

export function jsonCalls(options: JsonCallsOptions): ToolCallFormat {
  const { name, openings, closing, separators = [] } = options
  const { marks = [...openings, ...(closing === undefined ? [] : [closing])] } = options
  const readCall = options.hasToolNameKey === true ? keyedObject : callObject
  return {
    name,
    openings,
    marks,
    *parse(input, sink) {
      let count = 0
      yield* input.space()
      const isList = (yield* input.accept('[')) !== null
      for (;;) {
        yield* input.space()
        if (count > 0)
          while ((yield* input.accept(',', ...separators)) !== null) yield* input.space()
        if (!(yield* input.nextIs('{'))) break
        const isCall = yield* input.attempt(() => readCall(input, sink))
        if (!isCall) break
        count++
      }
      if (count === 0) return false
      if (isList) yield* input.accept(']')
      yield* input.space()
      if (closing !== undefined) yield* input.accept(closing)
      return true
    },
  }
}

/**
 * Reads a call that is a JSON object. Emits nothing before the arguments begin, because the text
 * may turn out not to be a call.
 */
export function* callObject(input: ParserInput, sink: CallSink): ParseStep<boolean> {
  yield* input.accept('{')
  let name: string | null = null
  let earlyArguments: string | null = null
  let hasBegun = false
  let isClosed = false
  for (;;) {
    yield* input.space()
    isClosed = (yield* input.accept('}')) !== null
    if (isClosed) break
    if ((yield* input.accept(',')) !== null) continue
    const key = yield* objectKey(input)
    if (key === null) break
    if (key === 'function' && (yield* input.nextIs('{'))) {
      // As in tool lists, some models put name and arguments into an object under this key.
      if (hasBegun || name !== null || !(yield* callObject(input, sink))) return hasBegun
      hasBegun = true
    } else if (nameKeys.has(key) && name === null && !hasBegun) {
      const text: string | null = yield* jsonText(input)
      if (!sink.tools.some((tool) => tool.name === text)) return false
      name = text
    } else if (argumentKeys.has(key) && !hasBegun && earlyArguments === null) {
      if (name !== null) hasBegun = yield* argumentsValue(input, sink, name)
      else earlyArguments = yield* argumentsText(input)
      if (!hasBegun && earlyArguments === null) return false
    } else yield* input.json(() => {})
  }
  if (hasBegun || name === null) return hasBegun
  if (earlyArguments === null && !isClosed && !isCutOffHere(input)) return false
  sink.call(name)
  sink.argument(earlyArguments ?? (isClosed ? '{}' : ''))
  return true
}

const isCutOffHere = (input: ParserInput): boolean => input.isCut && input.isAtEnd

function* objectKey(input: ParserInput): ParseStep<string | null> {
  const key = (yield* input.nextIs('"')) ? yield* jsonText(input) : null
  yield* input.space()
  if (key === null || (yield* input.accept(':')) === null) return null
  yield* input.space()
  return key
}

function* keyedObject(input: ParserInput, sink: CallSink): ParseStep<boolean> {
  yield* input.accept('{')
  yield* input.space()
  const name = yield* objectKey(input)
  if (!sink.tools.some((tool) => tool.name === name)) return false
  if (name === null || !(yield* argumentsValue(input, sink, name))) return false
  yield* input.space()
  yield* input.accept('}')
  return true
}

/** Begins the call and emits its arguments. Returns `false` if they are not JSON. */
function* argumentsValue(input: ParserInput, sink: CallSink, name: string): ParseStep<boolean> {
  if (yield* input.nextIs('{')) {
    sink.call(name)
    yield* input.json((piece) => sink.argument(piece))
    return true
  }
  const text = yield* argumentsText(input)
  if (text === null && !isCutOffHere(input)) return false
  sink.call(name)
  sink.argument(text ?? '')
  return true
}

function* argumentsText(input: ParserInput): ParseStep<string | null> {
  // Some models write the arguments as a string that contains JSON.
  const isQuoted = yield* input.nextIs('"')
  let text: string | null = ''
  if (isQuoted) text = yield* jsonText(input)
  else {
    yield* input.json((piece) => {
      text += piece
    })
  }
  if (isQuoted && text?.trim() === '') return '{}'
  return text !== null && isJsonText(text) ? text : null
}

function* jsonText(input: ParserInput): ParseStep<string | null> {
  let text = ''
  const isWhole = yield* input.json((piece) => {
    text += piece
  })
  const value = isWhole ? tryRead(() => JSON.parse(text) as unknown) : null
  return typeof value === 'string' ? value : null
}
