/** Values that models write almost as JSON: Python words, and strings without quotes. */

import { isJsonText } from '../../../../foundation/json-value.ts'
import type { CallSink } from './output-parser.ts'
import type { ParserInput, ParseStep } from './parser-input.ts'

const pythonConstants = new Map(Object.entries({ True: 'true', False: 'false', None: 'null' }))

/** Python constants are converted. Text that is not JSON becomes a string. */
export function toJson(word: string): string {
  const text = pythonConstants.get(word) ?? word
  return isJsonText(text) ? text : JSON.stringify(text)
}

/** Emits a text as a JSON string while it arrives. Returns `false` if the text is cut off. */
export function* readText(
  input: ParserInput,
  sink: CallSink,
  ...closings: readonly string[]
): ParseStep<boolean> {
  sink.argument('"')
  const mark = yield* input.partUntil(closings, (piece) =>
    sink.argument(JSON.stringify(piece).slice(1, -1)),
  )
  if (mark !== null) sink.argument('"')
  return mark !== null
}
