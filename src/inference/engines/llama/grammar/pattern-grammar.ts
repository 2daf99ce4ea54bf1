/** Converts regular expressions to GBNF expressions. Pure. */

import { invalidSchema, SchemaFault } from './schema-keywords.ts'

/**
 * Where the text occurs: in a JSON string, where some letters are escaped and an unanchored pattern
 * may have text around it (JSON Schema), or as a whole answer, which must match completely (vLLM).
 */
export type PatternPlace = 'json' | 'answer'

/** The minimum and maximum number of letters of a text. */
export interface Lengths {
  readonly min: number
  readonly max: number
}

const anyLength: Lengths = { min: 0, max: Infinity }

/**
 * An expression for matching texts of the given lengths. Throws for look-around, back-references
 * and other constructs that a grammar cannot express.
 */
export function patternGrammar(
  pattern: string,
  place: PatternPlace,
  lengths: Lengths = anyLength,
): string {
  return new PatternParser(pattern, place, lengths).parse()
}

/** A part of a pattern. `letter` is the repeated expression if that matches single letters. */
interface Piece extends Lengths {
  readonly text: string
  readonly letter?: string
}

const anything: Piece = { text: 'char*', letter: 'char', ...anyLength }

/**
 * Whether a piece such as `a*` may be dropped next to arbitrary text, which includes its matches.
 */
const isOpen = (piece: Piece | undefined): boolean =>
  piece?.letter !== undefined && piece.min === 0 && piece.max === Infinity

const together = (pieces: readonly Piece[]): Lengths => ({
  min: pieces.reduce((sum, { min }) => sum + min, 0),
  max: pieces.reduce((sum, { max }) => sum + max, 0),
})

/** Limits the total length of pieces by limiting one piece of variable length. */
function limited(pieces: readonly Piece[], { min, max }: Lengths): readonly Piece[] {
  const whole = together(pieces)
  if (whole.min >= min && whole.max <= max) return pieces
  const variable = pieces.filter((piece) => piece.min !== piece.max)
  const taker = variable.find(({ letter }) => letter !== undefined)
  if (taker?.letter === undefined || (whole.max > max && variable.length > 1)) {
    throw new SchemaFault('`pattern` with `minLength` or `maxLength` cannot be enforced')
  }
  const from = Math.max(taker.min, min - (whole.min - taker.min))
  const to = Math.min(taker.max, max - (whole.min - taker.min))
  if (from > to) throw new SchemaFault('no text of these lengths matches the `pattern`')
  const text = `${taker.letter}{${from},${to === Infinity ? '' : to}}`
  return pieces.map((piece) => (piece === taker ? { text, min: from, max: to } : piece))
}

/** The maximum number of characters of a pattern. */
const maxPattern = 1024
const maxRepeats = 256
/** The maximum number of characters of a pattern in a message. */
const maxShown = 60

type Range = readonly [number, number]

const classes: Readonly<Record<string, readonly Range[]>> = {
  d: [[0x30, 0x39]],
  w: [
    [0x30, 0x39],
    [0x41, 0x5a],
    [0x5f, 0x5f],
    [0x61, 0x7a],
  ],
  s: [
    [0x20, 0x20],
    [0x09, 0x0a],
    [0x0d, 0x0d],
  ],
}

const hyphen = 0x2d

/** The code point if the ranges contain a single letter; `null` for several letters. */
function codeIn(ranges: readonly Range[]): number | null {
  const [range] = ranges
  return ranges.length === 1 && range?.[0] === range?.[1] ? (range?.[0] ?? null) : null
}

const escapes: Readonly<Record<string, number>> = { n: 0x0a, r: 0x0d, t: 0x09, f: 0x0c, v: 0x0b }

class PatternParser {
  readonly #pattern: readonly string[]
  readonly #place: PatternPlace
  readonly #lengths: Lengths
  #at = 0

  constructor(pattern: string, place: PatternPlace, lengths: Lengths) {
    if (pattern.length > maxPattern) {
      throw new SchemaFault(
        `a regular expression may have ${maxPattern} characters, not ${pattern.length}`,
      )
    }
    this.#pattern = Array.from(pattern)
    this.#place = place
    this.#lengths = lengths
  }

  parse(): string {
    const choices = this.#choices(true)
    if (this.#at < this.#pattern.length) throw this.#invalid('`)` has no `(` before it', this.#at)
    return choices.text
  }

  #choices(isTop: boolean): Piece {
    const choices = [this.#sequence(isTop)]
    while (this.#skip('|')) choices.push(this.#sequence(isTop))
    const texts = choices.map(({ text }) => text)
    return {
      text: texts.length === 1 ? texts.join('') : `( ${texts.join(' | ')} )`,
      min: Math.min(...choices.map(({ min }) => min)),
      max: Math.max(...choices.map(({ max }) => max)),
    }
  }

  /** In a JSON string, any text may precede and follow an unanchored top-level sequence. */
  #sequence(isTop: boolean): Piece {
    const items: Piece[] = []
    const isStart = this.#skip('^')
    if (isStart && !isTop) throw this.#unsupported('^', this.#at - 1)
    let isEnd = false
    for (;;) {
      const next = this.#pattern[this.#at]
      if (next === undefined || next === '|' || next === ')') break
      if (next === '$' && isTop) {
        if (![undefined, '|', ')'].includes(this.#pattern[this.#at + 1])) {
          throw this.#unsupported('$', this.#at)
        }
        this.#at++
        isEnd = true
        break
      }
      items.push(this.#quantified())
    }
    const isSearched = isTop && this.#place === 'json'
    if (isSearched && !isStart) items.splice(0, isOpen(items[0]) ? 1 : 0, anything)
    if (isSearched && !isEnd) {
      items.splice(isOpen(items.at(-1)) ? -1 : items.length, 1, { ...anything })
    }
    const pieces = isTop ? limited(items, this.#lengths) : items
    const texts = pieces.map(({ text }) => text)
    return { text: texts.length === 0 ? '""' : texts.join(' '), ...together(pieces) }
  }

  #quantified(): Piece {
    const atom = this.#atom()
    const range = this.#quantifier()
    if (range === null) return atom
    this.#skip('?')
    const isOne = /^\[(?:[^\]\\]|\\.)*\]$|^"(?:[^"\\]|\\.)"$/.test(atom.text)
    const repeated = isOne ? atom.text : `( ${atom.text} )`
    const [min, max] = range
    return {
      text: `${repeated}{${min},${max === Infinity ? '' : max}}`,
      min: atom.min * min,
      max: atom.max === 0 ? 0 : atom.max * max,
      ...(atom.min === 1 && atom.max === 1 ? { letter: repeated } : {}),
    }
  }

  #quantifier(): readonly [min: number, max: number] | null {
    if (this.#skip('*')) return [0, Infinity]
    if (this.#skip('+')) return [1, Infinity]
    if (this.#skip('?')) return [0, 1]
    const rest = this.#pattern.slice(this.#at).join('')
    const match = /^\{(\d+)(,(\d*))?\}/.exec(rest)
    if (match === null) return null
    const [whole, min = '0', comma, max = ''] = match
    if (Math.max(Number(min), Number(max)) > maxRepeats) {
      const text = `\`${whole}\`: a regular expression may repeat up to ${maxRepeats} times`
      throw new SchemaFault(`${text}, ${this.#placeOf(this.#at)}`)
    }
    if (max !== '' && Number(max) < Number(min)) {
      throw this.#invalid(`\`${whole}\` has the larger number first`, this.#at)
    }
    this.#at += whole.length
    if (comma === undefined) return [Number(min), Number(min)]
    return [Number(min), max === '' ? Infinity : Number(max)]
  }

  #atom(): Piece {
    const start = this.#at
    const letter = this.#pattern[this.#at++] ?? ''
    if (letter === '(') return this.#group(start)
    if (letter === '[') return this.#class(start)
    if (letter === '.') return this.#ranges([[0x0a, 0x0a]], true)
    if (letter === '\\') {
      const found = this.#escape()
      return this.#ranges(found.ranges, found.isNegated)
    }
    if ('*+?'.includes(letter)) {
      throw this.#invalid(`\`${letter}\` has nothing before it to repeat`, start)
    }
    if ('^$'.includes(letter)) throw this.#unsupported(letter, start)
    const code = letter.codePointAt(0) ?? 0
    return this.#ranges([[code, code]], false)
  }

  #group(start: number): Piece {
    if (this.#skip('?')) {
      const kind = this.#pattern[this.#at++]
      const isNamed = kind === '<' && /[^=!]/.test(this.#pattern[this.#at] ?? '=')
      if (isNamed) while (this.#pattern[this.#at++] !== '>') this.#expectMore(start)
      else if (kind !== ':') throw this.#unsupported(`(?${kind ?? ''}`, start)
    }
    const inner = this.#choices(false)
    if (!this.#skip(')')) throw this.#unclosed(start)
    return { ...inner, text: `( ${inner.text} )` }
  }

  #class(start: number): Piece {
    const isNegated = this.#skip('^')
    const ranges: Range[] = []
    while (!this.#skip(']')) {
      this.#expectMore(start)
      ranges.push(...this.#classPart(start))
    }
    // An empty class is rejected, because a grammar would skip it.
    if (ranges.length === 0) throw this.#unsupported(isNegated ? '[^]' : '[]', start)
    return this.#ranges(ranges, isNegated)
  }

  /** Reads one part of a class: a letter, an escape or a range. */
  #classPart(classStart: number): readonly Range[] {
    const start = this.#at
    const first = this.#classItem()
    if (this.#pattern[this.#at] !== '-' || this.#pattern[this.#at + 1] === ']') return first
    this.#at++
    this.#expectMore(classStart)
    const last = this.#classItem()
    const [from, to] = [codeIn(first), codeIn(last)]
    // As in JavaScript: next to a set such as `\d`, a hyphen is a letter.
    if (from === null || to === null) return [...first, [hyphen, hyphen], ...last]
    if (from > to) {
      const text = this.#pattern.slice(start, this.#at).join('')
      throw this.#invalid(`the range \`${text}\` ends before it begins`, start)
    }
    return [[from, to]]
  }

  #classItem(): readonly Range[] {
    const start = this.#at
    const letter = this.#pattern[this.#at++] ?? ''
    if (letter !== '\\') {
      const code = letter.codePointAt(0) ?? 0
      return [[code, code]]
    }
    const { ranges, isNegated } = this.#escape()
    if (isNegated) throw this.#unsupported(this.#pattern.slice(start, this.#at).join(''), start)
    return ranges
  }

  #escape(): { readonly ranges: readonly Range[]; readonly isNegated: boolean } {
    const letter = this.#pattern[this.#at++]
    if (letter === undefined) throw this.#invalid('nothing follows the last `\\`', this.#at - 2)
    const known = classes[letter.toLowerCase()]
    if (known !== undefined) return { ranges: known, isNegated: letter !== letter.toLowerCase() }
    const code = this.#codeOf(letter)
    return { ranges: [[code, code]], isNegated: false }
  }

  #codeOf(letter: string): number {
    const rest = this.#pattern.slice(this.#at).join('')
    const hex = { x: /^[\da-fA-F]{2}/, u: /^[\da-fA-F]{4}/ }[letter]?.exec(rest)?.[0]
    if (hex !== undefined) {
      this.#at += hex.length
      return Number.parseInt(hex, 16)
    }
    const known = escapes[letter]
    if (known !== undefined) return known
    if (/[A-Za-z0-9]/.test(letter)) throw this.#unsupported(`\\${letter}`, this.#at - 2)
    return letter.codePointAt(0) ?? 0
  }

  /** A set of letters. In a JSON string, letters that need an escape are written as escapes. */
  #ranges(ranges: readonly Range[], isNegated: boolean): Piece {
    if (ranges.flat().some((code) => code >= 0xd800 && code <= 0xdfff)) {
      throw this.#invalid('half of a surrogate pair is no character', this.#at - 1)
    }
    return { text: this.#letters(ranges, isNegated), min: 1, max: 1 }
  }

  #letters(ranges: readonly Range[], isNegated: boolean): string {
    const inside = ranges.map(([from, to]) => rangeText(from, to)).join('')
    if (this.#place === 'answer') return `[${isNegated ? '^' : ''}${inside}]`
    if (isNegated) return String.raw`[^"\\\x7F\x00-\x1F${inside}]`
    const has = (code: number): boolean => ranges.some(([from, to]) => from <= code && code <= to)
    const plain = ranges.flatMap(([from, to]) => withoutEscaped(from, to))
    const escaped = jsonEscapes.filter(([code]) => has(code)).map(([, text]) => text)
    const set = plain.map(([from, to]) => rangeText(from, to)).join('')
    const choices = [...(set === '' ? [] : [`[${set}]`]), ...escaped]
    return choices.length === 1 ? choices.join('') : `( ${choices.join(' | ')} )`
  }

  #skip(letter: string): boolean {
    const isMatch = this.#pattern[this.#at] === letter
    if (isMatch) this.#at++
    return isMatch
  }

  #expectMore(start: number): void {
    if (this.#at >= this.#pattern.length) throw this.#unclosed(start)
  }

  #unclosed(start: number): SchemaFault {
    return this.#invalid(`\`${this.#pattern[start]}\` is not closed`, start)
  }

  #invalid(problem: string, at: number): SchemaFault {
    return invalidSchema(`${problem}, ${this.#placeOf(at)}`)
  }

  #unsupported(what: string, at: number): SchemaFault {
    const problem = `\`${what}\` in a regular expression cannot be enforced`
    return new SchemaFault(`${problem}, ${this.#placeOf(at)}`)
  }

  /** Shows only the part of a long pattern around the position. */
  #placeOf(at: number): string {
    const from = this.#pattern.length <= maxShown ? 0 : Math.max(0, at - maxShown / 2)
    const shown = this.#pattern.slice(from, from + maxShown).join('')
    const end = from + maxShown < this.#pattern.length ? '…' : ''
    return `at character ${at + 1} of \`${from > 0 ? '…' : ''}${shown}${end}\``
  }
}

/** Letters that are escaped in JSON strings, with their escapes in GBNF. */
const jsonEscapes: readonly (readonly [number, string])[] = [
  [0x22, String.raw`"\\\""`],
  [0x5c, String.raw`"\\\\"`],
  [0x0a, String.raw`"\\n"`],
  [0x0d, String.raw`"\\r"`],
  [0x09, String.raw`"\\t"`],
]

function withoutEscaped(from: number, to: number): readonly Range[] {
  const kept: Range[] = []
  let start = Math.max(from, 0x20)
  for (const code of [0x22, 0x5c, 0x7f]) {
    if (code < start || code > to) continue
    if (code > start) kept.push([start, code - 1])
    start = code + 1
  }
  if (start <= to) kept.push([start, to])
  return kept
}

const rangeText = (from: number, to: number): string =>
  from === to ? codeText(from) : `${codeText(from)}-${codeText(to)}`

/** A letter in a GBNF character class. */
export function codeText(code: number): string {
  const letter = String.fromCodePoint(code)
  if (/[A-Za-z0-9 ]/.test(letter)) return letter
  if (code <= 0xff) return `\\x${code.toString(16).padStart(2, '0').toUpperCase()}`
  if (code <= 0xffff) return `\\u${code.toString(16).padStart(4, '0').toUpperCase()}`
  return `\\U${code.toString(16).padStart(8, '0').toUpperCase()}`
}
