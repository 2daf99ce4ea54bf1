/** Values that models write in almost-JSON: Python words, and strings without quotes. */

import { isJsonText } from '../../../../foundation/json-value.ts'
import type { CallSink } from './output-parser.ts'
import type { ParserInput, Step } from './parser-input.ts'

const pythonWords: ReadonlyMap<string, string> = new Map([
  ['True', 'true'],
  ['False', 'false'],
  ['None', 'null'],
])

/** Valid JSON is returned unchanged; anything else becomes a string. */
export function toJson(word: string): string {
  const text = pythonWords.get(word) ?? word
  return isJsonText(text) ? text : JSON.stringify(text)
}

/** Emits a text as a JSON string while it arrives. Returns `false` if the text is cut off. */
export function* readText(
  input: ParserInput,
  sink: CallSink,
  ...closings: readonly string[]
): Step<boolean> {
  sink.argument('"')
  const mark = yield* input.partUntil(closings, (piece) =>
    sink.argument(JSON.stringify(piece).slice(1, -1)),
  )
  if (mark !== null) sink.argument('"')
  return mark !== null
}
