/** Values that models write almost as JSON: words of Python, and texts without quotes. */

import { isJsonText } from '../../../../foundation/json-value.ts'

const pythonWords: ReadonlyMap<string, string> = new Map([
  ['True', 'true'],
  ['False', 'false'],
  ['None', 'null'],
])

/** The JSON that a word of Python means; any other word stays. */
export const withoutPython = (word: string): string => pythonWords.get(word) ?? word

/** What is JSON stays; anything else is a text. */
export function toJson(word: string): string {
  const text = withoutPython(word)
  return isJsonText(text) ? text : JSON.stringify(text)
}
