/** Converts regular expressions to GBNF expressions. Pure. */

import { invalidSchema, SchemaError } from './schema-keywords.ts'

/** In a JSON string, other text may surround a match. An answer must match as a whole. */
export type PatternContext = 'json' | 'answer'

export interface Lengths {
  readonly min: number
  readonly max: number
}

const anyLength: Lengths = { min: 0, max: Infinity }

/** Throws for look-around, back-references and other patterns that no grammar can express. */
export function patternGrammar(
  pattern: string,
  place: PatternContext,
  lengths: Lengths = anyLength,
): string {
  return new PatternParser(pattern, place, lengths).parse()
}

/** A part of a pattern. `letter` is the repeated expression if that matches a single character. */
interface PatternPart extends Lengths {
  readonly text: string
  readonly letter?: string
}

const anyText: PatternPart = { text: 'char*', letter: 'char', ...anyLength }

/** Whether a part, such as `a*`, can be dropped where any text may precede or follow it. */
const isUnbounded = (piece: PatternPart | undefined): boolean =>
  piece?.letter !== undefined && piece.min === 0 && piece.max === Infinity

const sumLengths = (pieces: readonly PatternPart[]): Lengths => ({
  min: pieces.reduce((sum, { min }) => sum + min, 0),
  max: pieces.reduce((sum, { max }) => sum + max, 0),
})

function limitLength(
  pieces: readonly PatternPart[],
  { min, max }: Lengths,
): readonly PatternPart[] {
  const whole = sumLengths(pieces)
  if (whole.min >= min && whole.max <= max) return pieces
  const variable = pieces.filter((piece) => piece.min !== piece.max)
  const taker = variable.find(({ letter }) => letter !== undefined)
  if (taker?.letter === undefined || (whole.max > max && variable.length > 1)) {
    throw new SchemaError('`pattern` with `minLength` or `maxLength` cannot be enforced')
  }
  const from = Math.max(taker.min, min - (whole.min - taker.min))
  const to = Math.min(taker.max, max - (whole.min - taker.min))
  if (from > to) throw new SchemaError('no text of these lengths matches the `pattern`')
  const text = `${taker.letter}{${from},${to === Infinity ? '' : to}}`
  return pieces.map((piece) => (piece === taker ? { text, min: from, max: to } : piece))
}

const maxPatternChars = 1024
const maxRepeats = 256
const maxShownChars = 60

type Range = readonly [number, number]

const escapeClasses: Readonly<Record<string, readonly Range[]>> = {
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

function singleCode(ranges: readonly Range[]): number | null {
  const [range] = ranges
  return ranges.length === 1 && range?.[0] === range?.[1] ? (range?.[0] ?? null) : null
}

const escapes: Readonly<Record<string, number>> = { n: 0x0a, r: 0x0d, t: 0x09, f: 0x0c, v: 0x0b }

class PatternParser {
  readonly #pattern: readonly string[]
  readonly #context: PatternContext
  readonly #lengths: Lengths
  #at = 0

  constructor(pattern: string, place: PatternContext, lengths: Lengths) {
    if (pattern.length > maxPatternChars) {
      throw new SchemaError(
        `a regular expression may have ${maxPatternChars} characters, not ${pattern.length}`,
      )
    }
    this.#pattern = Array.from(pattern)
    this.#context = place
    this.#lengths = lengths
  }

  parse(): string {
    const choices = this.#parseChoices(true)
    if (this.#at < this.#pattern.length)
      throw this.#invalidError('`)` has no `(` before it', this.#at)
    return choices.text
  }

  #parseChoices(isTop: boolean): PatternPart {
    const choices = [this.#parseSequence(isTop)]
    while (this.#skip('|')) choices.push(this.#parseSequence(isTop))
    const texts = choices.map(({ text }) => text)
    return {
      text: joinChoices(texts),
      min: Math.min(...choices.map(({ min }) => min)),
      max: Math.max(...choices.map(({ max }) => max)),
    }
  }

  /** Parses a sequence. In a JSON string, any text may surround an unanchored pattern. */
  #parseSequence(isTop: boolean): PatternPart {
    const items: PatternPart[] = []
    const isStart = this.#skip('^')
    if (isStart && !isTop) throw this.#unsupportedError('^', this.#at - 1)
    let isEnd = false
    for (;;) {
      const next = this.#pattern[this.#at]
      if (next === undefined || next === '|' || next === ')') break
      if (next === '$' && isTop) {
        if (![undefined, '|', ')'].includes(this.#pattern[this.#at + 1])) {
          throw this.#unsupportedError('$', this.#at)
        }
        this.#at++
        isEnd = true
        break
      }
      items.push(this.#parseQuantified())
    }
    const isSearched = isTop && this.#context === 'json'
    if (isSearched && !isStart) items.splice(0, isUnbounded(items[0]) ? 1 : 0, anyText)
    if (isSearched && !isEnd) {
      items.splice(isUnbounded(items.at(-1)) ? -1 : items.length, 1, { ...anyText })
    }
    const pieces = isTop ? limitLength(items, this.#lengths) : items
    const texts = pieces.map(({ text }) => text)
    return { text: texts.length === 0 ? '""' : texts.join(' '), ...sumLengths(pieces) }
  }

  #parseQuantified(): PatternPart {
    const atom = this.#parseAtom()
    const range = this.#parseQuantifier()
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

  #parseQuantifier(): readonly [min: number, max: number] | null {
    if (this.#skip('*')) return [0, Infinity]
    if (this.#skip('+')) return [1, Infinity]
    if (this.#skip('?')) return [0, 1]
    const rest = this.#pattern.slice(this.#at).join('')
    const match = /^\{(\d+)(,(\d*))?\}/.exec(rest)
    if (match === null) return null
    const [whole, min = '0', comma, max = ''] = match
    if (Math.max(Number(min), Number(max)) > maxRepeats) {
      const text = `\`${whole}\`: a regular expression may repeat up to ${maxRepeats} times`
      throw new SchemaError(`${text}, ${this.#describePosition(this.#at)}`)
    }
    if (max !== '' && Number(max) < Number(min)) {
      throw this.#invalidError(`\`${whole}\` has the larger number first`, this.#at)
    }
    this.#at += whole.length
    if (comma === undefined) return [Number(min), Number(min)]
    return [Number(min), max === '' ? Infinity : Number(max)]
  }

  #parseAtom(): PatternPart {
    const start = this.#at
    const letter = this.#pattern[this.#at++] ?? ''
    if (letter === '(') return this.#parseGroup(start)
    if (letter === '[') return this.#parseClass(start)
    if (letter === '.') return this.#toPart([[0x0a, 0x0a]], true)
    if (letter === '\\') {
      const found = this.#parseEscape()
      return this.#toPart(found.ranges, found.isNegated)
    }
    if ('*+?'.includes(letter)) {
      throw this.#invalidError(`\`${letter}\` has nothing before it to repeat`, start)
    }
    if ('^$'.includes(letter)) throw this.#unsupportedError(letter, start)
    const code = letter.codePointAt(0) ?? 0
    return this.#toPart([[code, code]], false)
  }

  #parseGroup(start: number): PatternPart {
    if (this.#skip('?')) {
      const kind = this.#pattern[this.#at++]
      const isNamed = kind === '<' && /[^=!]/.test(this.#pattern[this.#at] ?? '=')
      if (isNamed) while (this.#pattern[this.#at++] !== '>') this.#expectMore(start)
      else if (kind !== ':') throw this.#unsupportedError(`(?${kind ?? ''}`, start)
    }
    const inner = this.#parseChoices(false)
    if (!this.#skip(')')) throw this.#unclosedError(start)
    return { ...inner, text: `( ${inner.text} )` }
  }

  #parseClass(start: number): PatternPart {
    const isNegated = this.#skip('^')
    const ranges: Range[] = []
    while (!this.#skip(']')) {
      this.#expectMore(start)
      ranges.push(...this.#parseClassPart(start))
    }
    // An empty class is rejected, because a grammar would skip it.
    if (ranges.length === 0) throw this.#unsupportedError(isNegated ? '[^]' : '[]', start)
    return this.#toPart(ranges, isNegated)
  }

  #parseClassPart(classStart: number): readonly Range[] {
    const start = this.#at
    const first = this.#parseClassItem()
    if (this.#pattern[this.#at] !== '-' || this.#pattern[this.#at + 1] === ']') return first
    this.#at++
    this.#expectMore(classStart)
    const last = this.#parseClassItem()
    const [from, to] = [singleCode(first), singleCode(last)]
    // As in JavaScript, a hyphen next to a set such as `\d` is a literal hyphen.
    if (from === null || to === null) return [...first, [hyphen, hyphen], ...last]
    if (from > to) {
      const text = this.#pattern.slice(start, this.#at).join('')
      throw this.#invalidError(`the range \`${text}\` ends before it begins`, start)
    }
    return [[from, to]]
  }

  #parseClassItem(): readonly Range[] {
    const start = this.#at
    const letter = this.#pattern[this.#at++] ?? ''
    if (letter !== '\\') {
      const code = letter.codePointAt(0) ?? 0
      return [[code, code]]
    }
    const { ranges, isNegated } = this.#parseEscape()
    if (isNegated)
      throw this.#unsupportedError(this.#pattern.slice(start, this.#at).join(''), start)
    return ranges
  }

  #parseEscape(): { readonly ranges: readonly Range[]; readonly isNegated: boolean } {
    const letter = this.#pattern[this.#at++]
    if (letter === undefined)
      throw this.#invalidError('nothing follows the last `\\`', this.#at - 2)
    const known = escapeClasses[letter.toLowerCase()]
    if (known !== undefined) return { ranges: known, isNegated: letter !== letter.toLowerCase() }
    const code = this.#parseCode(letter)
    return { ranges: [[code, code]], isNegated: false }
  }

  #parseCode(letter: string): number {
    const rest = this.#pattern.slice(this.#at).join('')
    const hex = { x: /^[\da-fA-F]{2}/, u: /^[\da-fA-F]{4}/ }[letter]?.exec(rest)?.[0]
    if (hex !== undefined) {
      this.#at += hex.length
      return Number.parseInt(hex, 16)
    }
    const known = escapes[letter]
    if (known !== undefined) return known
    if (/[A-Za-z0-9]/.test(letter)) throw this.#unsupportedError(`\\${letter}`, this.#at - 2)
    return letter.codePointAt(0) ?? 0
  }

  #toPart(ranges: readonly Range[], isNegated: boolean): PatternPart {
    if (ranges.flat().some((code) => code >= 0xd800 && code <= 0xdfff)) {
      throw this.#invalidError('half of a surrogate pair is no character', this.#at - 1)
    }
    return { text: this.#toClass(ranges, isNegated), min: 1, max: 1 }
  }

  #toClass(ranges: readonly Range[], isNegated: boolean): string {
    const inside = ranges.map(([from, to]) => toGbnfRange(from, to)).join('')
    if (this.#context === 'answer') return `[${isNegated ? '^' : ''}${inside}]`
    if (isNegated) return String.raw`[^"\\\x7F\x00-\x1F${inside}]`
    const has = (code: number): boolean => ranges.some(([from, to]) => from <= code && code <= to)
    const plain = ranges.flatMap(([from, to]) => splitAtEscapes(from, to))
    const escaped = jsonEscapes.filter(([code]) => has(code)).map(([, text]) => text)
    const set = plain.map(([from, to]) => toGbnfRange(from, to)).join('')
    return joinChoices([...(set === '' ? [] : [`[${set}]`]), ...escaped])
  }

  #skip(letter: string): boolean {
    const isMatch = this.#pattern[this.#at] === letter
    if (isMatch) this.#at++
    return isMatch
  }

  #expectMore(start: number): void {
    if (this.#at >= this.#pattern.length) throw this.#unclosedError(start)
  }

  #unclosedError(start: number): SchemaError {
    return this.#invalidError(`\`${this.#pattern[start]}\` is not closed`, start)
  }

  #invalidError(problem: string, at: number): SchemaError {
    return invalidSchema(`${problem}, ${this.#describePosition(at)}`)
  }

  #unsupportedError(what: string, at: number): SchemaError {
    const problem = `\`${what}\` in a regular expression cannot be enforced`
    return new SchemaError(`${problem}, ${this.#describePosition(at)}`)
  }

  #describePosition(at: number): string {
    const from = this.#pattern.length <= maxShownChars ? 0 : Math.max(0, at - maxShownChars / 2)
    const shown = this.#pattern.slice(from, from + maxShownChars).join('')
    const end = from + maxShownChars < this.#pattern.length ? '…' : ''
    return `at character ${at + 1} of \`${from > 0 ? '…' : ''}${shown}${end}\``
  }
}

export function joinChoices(choices: readonly string[]): string {
  if (choices.length === 0) throw new Error('an empty choice allows nothing')
  return choices.length === 1 ? choices.join('') : `( ${choices.join(' | ')} )`
}

const jsonEscapes: readonly (readonly [number, string])[] = [
  [0x22, String.raw`"\\\""`],
  [0x5c, String.raw`"\\\\"`],
  [0x0a, String.raw`"\\n"`],
  [0x0d, String.raw`"\\r"`],
  [0x09, String.raw`"\\t"`],
]

function splitAtEscapes(from: number, to: number): readonly Range[] {
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

const toGbnfRange = (from: number, to: number): string =>
  from === to ? toGbnfCode(from) : `${toGbnfCode(from)}-${toGbnfCode(to)}`

export function toGbnfCode(code: number): string {
  const letter = String.fromCodePoint(code)
  if (/[A-Za-z0-9 ]/.test(letter)) return letter
  if (code <= 0xff) return `\\x${code.toString(16).padStart(2, '0').toUpperCase()}`
  if (code <= 0xffff) return `\\u${code.toString(16).padStart(4, '0').toUpperCase()}`
  return `\\U${code.toString(16).padStart(8, '0').toUpperCase()}`
}
