/** Makes foreign text harmless to a terminal. */

/** Controls, line breaks that JSON does not escape, and marks that turn the reading direction. */
const controls = /[\p{Cc}\p{Zl}\p{Zp}\u202A-\u202E\u2066-\u2069]/gu

/** The same text on one line, with `\u001b` for an escape character and so on. */
export function escapeControls(text: string): string {
  return text.replaceAll(
    controls,
    (character) => String.raw`\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}

/** The same, but its line breaks stay. */
export const escapeLines = (text: string): string =>
  text
    .split('\n')
    .map((line) => escapeControls(line))
    .join('\n')
