/** Measures, cuts and pads text by terminal columns. Pure functions. */

/** Matches text in which every character takes one column. */
const plainText = /^[\u0020-\u007E\u00A1-\u00AC\u00AE-\u02FF…█░]*$/

/** Matches combining marks, invisible characters, and later parts of Hangul syllables. */
const zeroWidth = /[\p{Mn}\p{Me}\p{Default_Ignorable_Code_Point}\u1160-\u11FF\uD7B0-\uD7FB]/u

/** Matches emoji and wide characters, except regional indicators, two of which form one flag. */
const doubleWidth = new RegExp(
  String.raw`(?!\p{RI})[\p{Emoji_Presentation}\u1100-\u115F\u2329\u232A\u2630-\u2637\u268A-\u268F` +
    String.raw`\u2E80-\u303E\u3041-\u3247\u3250-\uA4CF\uA960-\uA97C\uAC00-\uD7A3\uF900-\uFAFF` +
    String.raw`\uFE10-\uFE19\uFE30-\uFE6B\uFF01-\uFF60\uFFE0-\uFFE6\u{16FE0}-\u{18DFF}` +
    String.raw`\u{1AFF0}-\u{1B2FF}\u{1D300}-\u{1D376}\u{1F200}-\u{1F265}\u{20000}-\u{3FFFD}]`,
  'u',
)

function characterWidth(character: string): number {
  if (character <= '~') return 1
  if (zeroWidth.test(character)) return 0
  return doubleWidth.test(character) ? 2 : 1
}

/** The columns of a text. All parts of a composed emoji count: many terminals show each of them. */
export function displayWidth(text: string): number {
  if (plainText.test(text)) return text.length
  let columns = 0
  for (const character of text) columns += characterWidth(character)
  return columns
}

/** The longest prefix of the text with at most `max` columns. */
export function firstColumns(text: string, max: number): string {
  let [columns, end] = [0, 0]
  for (const character of text) {
    columns += characterWidth(character)
    if (columns > max) break
    end += character.length
  }
  return text.slice(0, end)
}

/** The longest suffix of the text with at most `max` columns. */
export function lastColumns(text: string, max: number): string {
  let spare = displayWidth(text) - max
  let start = 0
  for (const character of text) {
    // Does not start with a combining mark, because it would attach to another character.
    if (spare <= 0 && !zeroWidth.test(character)) break
    spare -= characterWidth(character)
    start += character.length
  }
  return text.slice(start)
}

/** Pads the text with spaces on the given side. */
export function padColumns(text: string, width: number, side: 'end' | 'start' = 'end'): string {
  const spaces = ' '.repeat(Math.max(0, width - displayWidth(text)))
  return side === 'end' ? text + spaces : spaces + text
}
