/** Splits the source of a template into text and the tokens of its expressions and statements. */

import { TemplateError } from '../limits.ts'

export type TokenKind = 'text' | 'begin' | 'end' | 'name' | 'string' | 'integer' | 'float' | 'sign'

/** `begin` and `end` are the delimiters of an expression (`{{`) or a statement (`{%`). */
export interface Lexeme {
  readonly kind: TokenKind
  readonly text: string
  readonly line: number
}

/**
 * Removes the line break after a statement and the spaces before a statement, as the environment of
 * chat templates does. Also removes a line break at the end of the source.
 */
export function scan(source: string): readonly Lexeme[] {
  const scanner = new Lexer(source.replaceAll(/\r\n?/g, '\n').replace(/\n$/, ''))
  return scanner.scan()
}

const tagStart = /\{[{%#][-+]?/g
const rawEnd = /\{%([-+]?)\s*endraw\s*([-+]?)%\}/g
const space = /\s*/y
const word = /[\p{ID_Start}_][\p{ID_Continue}]*/uy
const float = /\d[\d_]*(?:\.\d[\d_]*(?:[eE][-+]?\d+)?|[eE][-+]?\d+)/y
const integer = /0[xX][\da-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|\d[\d_]*/y
const sign = /\*\*|\/\/|[=!<>]=|[-+*/%~<>=()[\]{}.,:|]/y
const text = /'(?:[^'\\]|\\[\s\S])*'|"(?:[^"\\]|\\[\s\S])*"/y

class Lexer {
  readonly #source: string
  readonly #found: Lexeme[] = []
  #at = 0
  #line = 1
  /** The position up to which lines were counted. */
  #counted = 0

  constructor(source: string) {
    this.#source = source
  }

  scan(): readonly Lexeme[] {
    while (this.#at < this.#source.length) this.#next()
    return this.#found
  }

  #next(): void {
    tagStart.lastIndex = this.#at
    const match = tagStart.exec(this.#source)
    if (match === null) {
      this.#add('text', this.#source.slice(this.#at))
      this.#at = this.#source.length
      return
    }
    const [open] = match
    const before = this.#source.slice(this.#at, match.index)
    this.#add('text', this.#trimmed(before, open))
    this.#at = match.index + open.length
    if (open.startsWith('{#')) this.#skipComment()
    else if (open.startsWith('{%') && this.#isRaw()) this.#takeRaw()
    else this.#takeTag(open.startsWith('{%'))
  }

  /** The text before a tag, without white space that the tag strips. */
  #trimmed(before: string, open: string): string {
    if (open.endsWith('-')) return before.trimEnd()
    if (open.startsWith('{{') || open.endsWith('+')) return before
    const lineStart = before.lastIndexOf('\n') + 1
    const isLineStart = lineStart > 0 || this.#at === 0 || this.#source[this.#at - 1] === '\n'
    const rest = before.slice(lineStart)
    return isLineStart && rest.trim() === '' ? before.slice(0, lineStart) : before
  }

  #skipComment(): void {
    const end = this.#source.indexOf('#}', this.#at)
    if (end === -1) throw this.#error('Missing end of comment tag')
    const mark = this.#source[end - 1]
    this.#at = end + 2
    this.#afterTag(mark === '-' || mark === '+' ? mark : '', true)
  }

  #isRaw(): boolean {
    const raw = /\s*raw\s*[-+]?%\}/y
    raw.lastIndex = this.#at
    return raw.test(this.#source)
  }

  #takeRaw(): void {
    const start = this.#source.indexOf('%}', this.#at) + 2
    const openMark = this.#source[start - 3] ?? ''
    rawEnd.lastIndex = start
    const end = rawEnd.exec(this.#source)
    if (end === null) throw this.#error('Missing end of raw directive')
    this.#at = start
    this.#afterTag(openMark, true)
    const inner = this.#source.slice(this.#at, end.index)
    this.#add('text', this.#trimmed(inner, `{%${end[1] ?? ''}`))
    this.#at = end.index + end[0].length
    this.#afterTag(end[2] ?? '', true)
  }

  #takeTag(isStatement: boolean): void {
    this.#add('begin', isStatement ? '{%' : '{{')
    const close = isStatement ? '%}' : '}}'
    let depth = 0
    for (;;) {
      this.#match(space)
      if (this.#at >= this.#source.length) throw this.#error('unexpected end of template')
      const mark = /[-+]/.test(this.#source[this.#at] ?? '') ? (this.#source[this.#at] ?? '') : ''
      if (depth === 0 && this.#source.startsWith(mark + close, this.#at)) {
        this.#add('end', close)
        this.#at += mark.length + close.length
        return this.#afterTag(mark, isStatement)
      }
      const found = this.#takeToken()
      if (found === '{' || found === '(' || found === '[') depth++
      else if (found === '}' || found === ')' || found === ']') depth--
    }
  }

  /** Skips white space after a tag that strips it. */
  #afterTag(mark: string, removesLineBreak: boolean): void {
    if (mark === '-') this.#match(space)
    else if (mark !== '+' && removesLineBreak && this.#source[this.#at] === '\n') this.#at++
  }

  #takeToken(): string {
    for (const [kind, pattern] of patterns) {
      const found = this.#match(pattern)
      if (found === null) continue
      this.#add(kind, kind === 'string' ? unescape(found) : found, true)
      return kind === 'sign' ? found : ''
    }
    throw this.#error(`unexpected char ${JSON.stringify(this.#source[this.#at])}`)
  }

  #match(pattern: RegExp): string | null {
    pattern.lastIndex = this.#at
    const found = pattern.exec(this.#source)?.[0] ?? null
    if (found !== null) this.#at += found.length
    return found
  }

  #add(kind: TokenKind, value: string, isToken = false): void {
    if (value === '' && !isToken) return
    this.#found.push({ kind, text: value, line: this.#lineNow() })
  }

  #lineNow(): number {
    for (; this.#counted < this.#at; this.#counted++) {
      if (this.#source[this.#counted] === '\n') this.#line++
    }
    return this.#line
  }

  #error(message: string): TemplateError {
    return new TemplateError(`${message} (line ${this.#lineNow()})`)
  }
}

const patterns: readonly (readonly [TokenKind, RegExp])[] = [
  ['name', word],
  ['string', text],
  ['float', float],
  ['integer', integer],
  ['sign', sign],
]

const escapes: Readonly<Record<string, string>> = {
  n: '\n',
  t: '\t',
  r: '\r',
  b: '\b',
  f: '\f',
  v: '\v',
  a: '\u0007',
  '0': '\0',
  '\n': '',
}

function unescape(quoted: string): string {
  return quoted
    .slice(1, -1)
    .replaceAll(
      /\\(?:x([\da-fA-F]{2})|u([\da-fA-F]{4})|U([\da-fA-F]{8})|([\s\S]))/g,
      (whole: string, two?: string, four?: string, eight?: string, letter?: string) => {
        const code = two ?? four ?? eight
        if (code !== undefined) {
          const point = Number.parseInt(code, 16)
          if (point > 0x10ffff) throw new TemplateError('illegal Unicode character')
          return String.fromCodePoint(point)
        }
        const known = escapes[letter ?? '']
        if (known !== undefined) return known
        return letter === '\\' || letter === "'" || letter === '"' ? letter : whole
      },
    )
}
