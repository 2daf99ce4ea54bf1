/** Splits a template into text and the tokens of expressions and statements. */

import { TemplateError } from './limits.ts'

export type TokenKind = 'text' | 'begin' | 'end' | 'name' | 'string' | 'integer' | 'float' | 'sign'

/** `begin` and `end` are the delimiters of an expression (`{{`) or a statement (`{%`). */
export interface Lexeme {
  readonly kind: TokenKind
  readonly text: string
  readonly line: number
}

/** As chat templates expect, removes spaces before statements and line breaks after them. */
export function tokenize(source: string): readonly Lexeme[] {
  const scanner = new Lexer(source.replaceAll(/\r\n?/g, '\n').replace(/\n$/, ''))
  return scanner.scan()
}

const tagStartPattern = /\{[{%#][-+]?/g
const rawEndPattern = /\{%([-+]?)\s*endraw\s*([-+]?)%\}/g
const spacePattern = /\s*/y
const namePattern = /[\p{ID_Start}_][\p{ID_Continue}]*/uy
const floatPattern = /\d[\d_]*(?:\.\d[\d_]*(?:[eE][-+]?\d+)?|[eE][-+]?\d+)/y
const integerPattern = /0[xX][\da-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|\d[\d_]*/y
const signPattern = /\*\*|\/\/|[=!<>]=|[-+*/%~<>=()[\]{}.,:|]/y
const stringPattern = /'(?:[^'\\]|\\[\s\S])*'|"(?:[^"\\]|\\[\s\S])*"/y

class Lexer {
  readonly #source: string
  readonly #lexemes: Lexeme[] = []
  #at = 0
  #line = 1
  #countedTo = 0

  constructor(source: string) {
    this.#source = source
  }

  scan(): readonly Lexeme[] {
    while (this.#at < this.#source.length) this.#readNext()
    return this.#lexemes
  }

  #readNext(): void {
    tagStartPattern.lastIndex = this.#at
    const match = tagStartPattern.exec(this.#source)
    if (match === null) {
      this.#addLexeme('text', this.#source.slice(this.#at))
      this.#at = this.#source.length
      return
    }
    const [open] = match
    const before = this.#source.slice(this.#at, match.index)
    this.#addLexeme('text', this.#trimBefore(before, open))
    this.#at = match.index + open.length
    if (open.startsWith('{#')) this.#skipComment()
    else if (open.startsWith('{%') && this.#isRaw()) this.#readRaw()
    else this.#readTag(open.startsWith('{%'))
  }

  #trimBefore(before: string, open: string): string {
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
    this.#skipAfterTag(mark === '-' || mark === '+' ? mark : '', true)
  }

  #isRaw(): boolean {
    const raw = /\s*raw\s*[-+]?%\}/y
    raw.lastIndex = this.#at
    return raw.test(this.#source)
  }

  #readRaw(): void {
    const start = this.#source.indexOf('%}', this.#at) + 2
    const openMark = this.#source[start - 3] ?? ''
    rawEndPattern.lastIndex = start
    const end = rawEndPattern.exec(this.#source)
    if (end === null) throw this.#error('Missing end of raw directive')
    this.#at = start
    this.#skipAfterTag(openMark, true)
    const inner = this.#source.slice(this.#at, end.index)
    this.#addLexeme('text', this.#trimBefore(inner, `{%${end[1] ?? ''}`))
    this.#at = end.index + end[0].length
    this.#skipAfterTag(end[2] ?? '', true)
  }

  #readTag(isStatement: boolean): void {
    this.#addLexeme('begin', isStatement ? '{%' : '{{')
    const close = isStatement ? '%}' : '}}'
    let depth = 0
    for (;;) {
      this.#match(spacePattern)
      if (this.#at >= this.#source.length) throw this.#error('unexpected end of template')
      const mark = /[-+]/.test(this.#source[this.#at] ?? '') ? (this.#source[this.#at] ?? '') : ''
      if (depth === 0 && this.#source.startsWith(mark + close, this.#at)) {
        this.#addLexeme('end', close)
        this.#at += mark.length + close.length
        return this.#skipAfterTag(mark, isStatement)
      }
      const found = this.#readToken()
      if (found === '{' || found === '(' || found === '[') depth++
      else if (found === '}' || found === ')' || found === ']') depth--
    }
  }

  #skipAfterTag(mark: string, removesLineBreak: boolean): void {
    if (mark === '-') this.#match(spacePattern)
    else if (mark !== '+' && removesLineBreak && this.#source[this.#at] === '\n') this.#at++
  }

  #readToken(): string {
    for (const [kind, pattern] of patterns) {
      const found = this.#match(pattern)
      if (found === null) continue
      this.#addLexeme(kind, kind === 'string' ? unescape(found) : found, true)
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

  #addLexeme(kind: TokenKind, value: string, isToken = false): void {
    if (value === '' && !isToken) return
    this.#lexemes.push({ kind, text: value, line: this.#currentLine() })
  }

  #currentLine(): number {
    for (; this.#countedTo < this.#at; this.#countedTo++) {
      if (this.#source[this.#countedTo] === '\n') this.#line++
    }
    return this.#line
  }

  #error(message: string): TemplateError {
    return new TemplateError(`${message} (line ${this.#currentLine()})`)
  }
}

const patterns: readonly (readonly [TokenKind, RegExp])[] = [
  ['name', namePattern],
  ['string', stringPattern],
  ['float', floatPattern],
  ['integer', integerPattern],
  ['sign', signPattern],
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
