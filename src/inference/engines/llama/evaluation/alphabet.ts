/**
 * Characters that a grammar (GBNF) does not tell apart: in every state it allows all characters of
 * a class or none of them. They are those between two characters that its text mentions. Pure.
 */

/** The letters after a backslash that stand for another character. */
const escapes = new Map([
  ['n', 0x0a],
  ['r', 0x0d],
  ['t', 0x09],
])

export class CharacterClasses {
  /** Where classes begin, in ascending order. */
  readonly #starts: readonly number[]

  constructor(grammar: string) {
    const starts = new Set([0])
    for (const code of mentioned(grammar)) starts.add(code).add(code + 1)
    this.#starts = [...starts].toSorted((one, other) => one - other)
  }

  /** A class of a character. */
  of(code: number): number {
    let [low, high] = [0, this.#starts.length]
    while (high - low > 1) {
      const middle = (low + high) >> 1
      if ((this.#starts[middle] ?? 0) <= code) low = middle
      else high = middle
    }
    return low
  }

  /** A class of bytes that begin a character: they are allowed if a character with them is. */
  ofFirstByte(byte: number): string {
    if (byte < 0x80) return String(this.of(byte))
    const [lowest, highest] = rangeOf(byte)
    const kind = this.of(lowest)
    return kind === this.of(highest) ? `several bytes: ${kind}` : `byte: ${byte}`
  }
}

/** The characters that begin with a byte, as llama.cpp counts them. */
function rangeOf(byte: number): readonly [number, number] {
  const bits = byte < 0xe0 ? 6 : byte < 0xf0 ? 12 : 18
  const value = byte < 0xe0 ? byte & 0x1f : byte < 0xf0 ? byte & 0x0f : byte & 0x07
  const lowest = value << bits
  return [lowest, lowest + 2 ** bits - 1]
}

/**
 * The characters in literals (`"…"`) and classes (`[…]`). The ends of a range are among them; signs
 * such as `-` and `^` count as well, which divides more than needed. Comments and names of tokens
 * (`<…>`) have none.
 */
function* mentioned(grammar: string): Generator<number> {
  const parts = /#[^\n]*|<[^>]*>|"((?:[^"\\]|\\.)*)"|\[((?:[^\]\\]|\\.)*)\]/gsu
  for (const [, literal, inside] of grammar.matchAll(parts)) {
    yield* charactersOf(literal ?? inside ?? '')
  }
}

function* charactersOf(text: string): Generator<number> {
  const letters = /\\x(..)|\\u(.{4})|\\U(.{8})|\\(.)|(.)/gsu
  for (const [, two, four, eight, escaped, plain = ''] of text.matchAll(letters)) {
    const digits = two ?? four ?? eight
    if (digits !== undefined) yield Number.parseInt(digits, 16)
    else yield escapes.get(escaped ?? '') ?? (escaped ?? plain).codePointAt(0) ?? 0
  }
}
