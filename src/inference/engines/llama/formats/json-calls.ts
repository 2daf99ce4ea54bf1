/** Calls as JSON objects with a name and arguments, alone, in a list, or between marks. */

import type { CallSink, ToolCallFormat } from './output-parser.ts'
import type { ParserInput, Step } from './parser-input.ts'

export interface JsonCallsOptions {
  readonly name: string
  readonly openings: readonly string[]
  /** An optional text after the calls of one opening. */
  readonly closing?: string
  readonly marks?: readonly string[]
  /** Texts that may separate calls, besides commas and white space. */
  readonly separators?: readonly string[]
  readonly toId?: () => string
  /** Whether a call is an object whose key is the name of the tool. Default no. */
  readonly isKeyed?: boolean
}

const nameKeys: ReadonlySet<string> = new Set(['name', 'tool_name', 'function'])
const argumentKeys: ReadonlySet<string> = new Set(['arguments', 'parameters'])

export function jsonCalls(options: JsonCallsOptions): ToolCallFormat {
  const { name, openings, closing, marks = [], separators = [], toId } = options
  const readCall = options.isKeyed === true ? keyedObject : callObject
  return {
    name,
    openings,
    marks,
    ...(toId === undefined ? {} : { toId }),
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

/** Reads one call; nothing is passed on before its name is known. */
export function* callObject(input: ParserInput, sink: CallSink): Step<boolean> {
  yield* input.accept('{')
  let hasName = false
  let early: string | null = null
  for (;;) {
    yield* input.space()
    if ((yield* input.accept('}')) !== null) break
    if ((yield* input.accept(',')) !== null) continue
    if (!(yield* input.nextIs('"'))) break
    const key = yield* jsonText(input)
    if (key === null) break
    yield* input.space()
    if ((yield* input.accept(':')) === null) break
    yield* input.space()
    if (key === 'function' && (yield* input.nextIs('{'))) {
      // The format of tool lists: the name and the arguments are in a nested object.
      if (hasName || !(yield* callObject(input, sink))) return hasName
      hasName = true
    } else if (nameKeys.has(key) && !hasName) {
      const name = yield* jsonText(input)
      if (name === null || !sink.call(name)) return false
      hasName = true
      if (early !== null) sink.argument(early)
    } else if (argumentKeys.has(key)) {
      const text = yield* argumentsValue(input, hasName ? sink : null)
      if (!hasName) early = text
    } else yield* input.json(() => {})
  }
  return hasName
}

/** Reads one call of the form `{"name": {…}}`. */
function* keyedObject(input: ParserInput, sink: CallSink): Step<boolean> {
  yield* input.accept('{')
  yield* input.space()
  const name = (yield* input.nextIs('"')) ? yield* jsonText(input) : null
  yield* input.space()
  if (name === null || (yield* input.accept(':')) === null || !sink.call(name)) return false
  yield* input.space()
  yield* argumentsValue(input, sink)
  yield* input.space()
  yield* input.accept('}')
  return true
}

/** Passes arguments on while they arrive, if the name is known; returns them in any case. */
function* argumentsValue(input: ParserInput, sink: CallSink | null): Step<string> {
  // Some models write the arguments as a string that contains JSON.
  if (yield* input.nextIs('"')) {
    const text = (yield* jsonText(input)) ?? ''
    sink?.argument(text)
    return text
  }
  let all = ''
  yield* input.json((piece) => {
    all += piece
    sink?.argument(piece)
  })
  return all
}

/** Reads a JSON string; `null` if there is none or it does not end. */
function* jsonText(input: ParserInput): Step<string | null> {
  let text = ''
  const isWhole = yield* input.json((piece) => {
    text += piece
  })
  if (!isWhole) return null
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'string' ? value : null
  } catch {
    return null
  }
}
