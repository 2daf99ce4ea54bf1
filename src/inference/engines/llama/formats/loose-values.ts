/**
 * Values that models write in a format close to JSON: words of Python, and strings without quotes.
 */

import { isJsonText } from '../../../../foundation/json-value.ts'

const pythonWords: ReadonlyMap<string, string> = new Map([
  ['True', 'true'],
  ['False', 'false'],
  ['None', 'null'],
])

/** The JSON of a Python word; any other word is returned unchanged. */
export const withoutPython = (word: string): string => pythonWords.get(word) ?? word

/** Valid JSON is returned unchanged; anything else becomes a string. */
export function toJson(word: string): string {
  const text = withoutPython(word)
  return isJsonText(text) ? text : JSON.stringify(text)
}
