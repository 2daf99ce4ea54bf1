/** The echo engine's tokens: short pieces of text. No model has such a vocabulary. */

/** A token is up to eight signs of a word, with the white space before them. */
const piece = /\s{0,8}\S{1,8}|\s{1,8}/gu

/** The tokens of a text; joined, they are the text. */
export function toPieces(text: string): string[] {
  return text.match(piece) ?? []
}

/** The same number for the same token, always. */
export function toTokenId(token: string): number {
  let hash = 0x811c9dc5
  for (let at = 0; at < token.length; at++) {
    hash = Math.imul(hash ^ token.charCodeAt(at), 0x01000193)
  }
  return hash >>> 16
}
