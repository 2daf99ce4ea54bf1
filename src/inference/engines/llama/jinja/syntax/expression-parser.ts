/** Parses the expressions of a template. */

import type { Lexeme } from './lexer.ts'
import type { Arguments, Expression, NamedCall } from './nodes.ts'
import { TemplateError } from '../limits.ts'

const constants: ReadonlyMap<string, boolean | null> = new Map([
  ['true', true],
  ['True', true],
  ['false', false],
  ['False', false],
  ['none', null],
  ['None', null],
])

/** Deeper nesting is refused, because the parser is recursive. */
const maxDepth = 200

export class ExpressionParser {
  readonly #lexemes: readonly Lexeme[]
  #at = 0
  #depth = 0

  constructor(lexemes: readonly Lexeme[]) {
    this.#lexemes = lexemes
  }

  get current(): Lexeme | undefined {
    return this.#lexemes[this.#at]
  }

  advance(): Lexeme {
    const lexeme = this.current
    if (lexeme === undefined) throw new TemplateError('unexpected end of template')
    this.#at++
    return lexeme
  }

  is(kind: Lexeme['kind'], text?: string): boolean {
    const { current } = this
    return current?.kind === kind && (text === undefined || current.text === text)
  }

  /** Skips the next token if it matches. Returns whether it did. */
  skip(kind: Lexeme['kind'], text: string): boolean {
    const isIt = this.is(kind, text)
    if (isIt) this.#at++
    return isIt
  }

  expect(kind: Lexeme['kind'], text?: string): string {
    if (!this.is(kind, text)) throw this.unexpected(text ?? kind)
    return this.advance().text
  }

  unexpected(wanted: string): TemplateError {
    const { current } = this
    if (current === undefined) return new TemplateError(`expected '${wanted}', got end of template`)
    return new TemplateError(
      `expected '${wanted}', got '${current.text.slice(0, 40)}' (line ${current.line})`,
    )
  }

  /**
   * Several expressions separated by commas form a tuple. Without a condition, a following `if` is
   * not part of the expression.
   */
  parseTuple(withCondition = true): Expression {
    const one = (): Expression => (withCondition ? this.parse() : this.#or())
    const first = one()
    if (!this.is('sign', ',')) return first
    const items = [first]
    while (this.skip('sign', ',')) {
      if (this.#isEndOfTuple()) break
      items.push(one())
    }
    return { kind: 'tuple', items }
  }

  #isEndOfTuple(): boolean {
    return this.is('end') || this.is('sign', ')') || this.is('name', 'in') || this.is('sign', '=')
  }

  parse(): Expression {
    if (++this.#depth > maxDepth) throw new TemplateError('an expression is nested too deeply')
    let value = this.#or()
    while (this.skip('name', 'if')) {
      const test = this.#or()
      const otherwise = this.skip('name', 'else') ? this.parse() : null
      value = { kind: 'choice', test, then: value, otherwise }
    }
    this.#depth--
    return value
  }

  #or(): Expression {
    let left = this.#and()
    while (this.skip('name', 'or')) left = { kind: 'or', left, right: this.#and() }
    return left
  }

  #and(): Expression {
    let left = this.#not()
    while (this.skip('name', 'and')) left = { kind: 'and', left, right: this.#not() }
    return left
  }

  #not(): Expression {
    if (this.skip('name', 'not')) return { kind: 'not', of: this.#not() }
    return this.#compare()
  }

  #compare(): Expression {
    const first = this.#sum()
    const rest: (readonly [string, Expression])[] = []
    for (;;) {
      const sign = this.#comparison()
      if (sign === null) break
      rest.push([sign, this.#sum()])
    }
    return rest.length === 0 ? first : { kind: 'compare', first, rest }
  }

  #comparison(): string | null {
    if (this.current?.kind === 'sign' && comparisons.has(this.current.text)) {
      return this.advance().text
    }
    if (this.skip('name', 'in')) return 'in'
    const next = this.#lexemes[this.#at + 1]
    if (this.is('name', 'not') && next?.kind === 'name' && next.text === 'in') {
      this.#at += 2
      return 'not in'
    }
    return null
  }

  #sum(): Expression {
    return this.#chain(['+', '-'], () =>
      this.#chain(['~'], () =>
        this.#chain(['*', '/', '//', '%'], () => this.#chain(['**'], () => this.#unary(true))),
      ),
    )
  }

  #chain(signs: readonly string[], next: () => Expression): Expression {
    let left = next()
    while (this.current?.kind === 'sign' && signs.includes(this.current.text)) {
      const sign = this.advance().text
      left = { kind: 'binary', sign, left, right: next() }
    }
    return left
  }

  #unary(withFilter: boolean): Expression {
    const kind = this.skip('sign', '-') ? 'negative' : this.skip('sign', '+') ? 'positive' : null
    const first: Expression = kind === null ? this.#primary() : { kind, of: this.#unary(false) }
    const value = this.#postfix(first)
    return withFilter ? this.#filtered(value) : value
  }

  #primary(): Expression {
    const lexeme = this.advance()
    const { kind, text } = lexeme
    if (kind === 'name') {
      const constant = constants.get(text)
      return constant === undefined ? { kind: 'name', name: text } : literal(constant)
    }
    if (kind === 'string') return literal(text + this.#moreText())
    if (kind === 'integer') return literal(Number(text.replaceAll('_', '')))
    if (kind === 'float') return { kind: 'float', value: Number(text.replaceAll('_', '')) }
    if (kind === 'sign' && text === '(') return this.#parenthesis()
    if (kind === 'sign' && text === '[') {
      return { kind: 'list', items: this.parseList(']', () => this.parse()) }
    }
    if (kind === 'sign' && text === '{') {
      return { kind: 'dict', entries: this.parseList('}', () => this.#entry()) }
    }
    this.#at--
    throw this.unexpected('an expression')
  }

  /** Adjacent string literals are concatenated. */
  #moreText(): string {
    let text = ''
    while (this.is('string')) text += this.advance().text
    return text
  }

  #parenthesis(): Expression {
    if (this.skip('sign', ')')) return { kind: 'tuple', items: [] }
    const inner = this.parseTuple()
    this.expect('sign', ')')
    return inner
  }

  /** Parses items separated by commas, up to the closing sign. A trailing comma is allowed. */
  parseList<T>(end: string, parseItem: () => T): readonly T[] {
    const items: T[] = []
    while (!this.skip('sign', end)) {
      if (items.length > 0) {
        this.expect('sign', ',')
        if (this.skip('sign', end)) break
      }
      items.push(parseItem())
    }
    return items
  }

  #entry(): readonly [Expression, Expression] {
    const key = this.parse()
    this.expect('sign', ':')
    return [key, this.parse()]
  }

  #postfix(first: Expression): Expression {
    let value = first
    for (;;) {
      if (this.skip('sign', '.')) value = this.#member(value)
      else if (this.skip('sign', '[')) value = this.#subscript(value)
      else if (this.is('sign', '(')) {
        value = { kind: 'call', callee: value, args: this.parseArguments() }
      } else return value
    }
  }

  #member(of: Expression): Expression {
    if (!this.is('integer')) return { kind: 'attribute', of, name: this.expect('name') }
    return { kind: 'item', of, key: literal(Number(this.advance().text)) }
  }

  #subscript(of: Expression): Expression {
    const bound = (): Expression | null =>
      this.is('sign', ':') || this.is('sign', ']') ? null : this.parse()
    const from = bound()
    if (!this.skip('sign', ':')) {
      if (from === null) throw this.unexpected('an expression')
      this.expect('sign', ']')
      return { kind: 'item', of, key: from }
    }
    const to = bound()
    const step = this.skip('sign', ':') ? bound() : null
    this.expect('sign', ']')
    return { kind: 'slice', of, bounds: [from, to, step] }
  }

  #filtered(first: Expression): Expression {
    let value = first
    for (;;) {
      if (this.skip('sign', '|')) value = { kind: 'filter', of: value, call: this.parseFilter() }
      else if (this.skip('name', 'is')) value = this.#test(value)
      else if (this.is('sign', '(')) {
        value = { kind: 'call', callee: value, args: this.parseArguments() }
      } else return value
    }
  }

  /** Parses the name and the arguments of a filter, after its `|`. */
  parseFilter(): NamedCall {
    const name = this.#dottedName()
    return { name, args: this.is('sign', '(') ? this.parseArguments() : noArguments }
  }

  #dottedName(): string {
    let name = this.expect('name')
    while (this.skip('sign', '.')) name += `.${this.expect('name')}`
    return name
  }

  #test(of: Expression): Expression {
    const isNot = this.skip('name', 'not')
    const name = this.#dottedName()
    let args = noArguments
    if (this.is('sign', '(')) args = this.parseArguments()
    else if (this.#beginsArgument()) {
      args = { ...noArguments, args: [this.#postfix(this.#primary())] }
    }
    return { kind: 'test', of, call: { name, args }, isNot }
  }

  #beginsArgument(): boolean {
    const { current } = this
    if (current === undefined) return false
    if (current.kind === 'name') return !afterTest.has(current.text)
    if (current.kind === 'sign') return current.text === '[' || current.text === '{'
    return ['string', 'integer', 'float'].includes(current.kind)
  }

  parseArguments(): Arguments {
    this.expect('sign', '(')
    const args: Expression[] = []
    const named: (readonly [string, Expression])[] = []
    let rest: Expression | null = null
    let namedRest: Expression | null = null
    this.parseList(')', () => {
      const next = this.#lexemes[this.#at + 1]
      if (this.skip('sign', '*')) rest = this.parse()
      else if (this.skip('sign', '**')) namedRest = this.parse()
      else if (this.is('name') && next?.kind === 'sign' && next.text === '=') {
        const name = this.advance().text
        this.#at++
        named.push([name, this.parse()])
      } else args.push(this.parse())
    })
    return { args, named, rest, namedRest }
  }
}

const comparisons: ReadonlySet<string> = new Set(['==', '!=', '<', '>', '<=', '>='])
/** Words that may follow a test without an argument. */
const afterTest: ReadonlySet<string> = new Set(['else', 'or', 'and', 'if', 'is', 'in', 'not'])
const noArguments: Arguments = { args: [], named: [], rest: null, namedRest: null }

const literal = (value: string | number | boolean | null): Expression => ({
  kind: 'literal',
  value,
})
