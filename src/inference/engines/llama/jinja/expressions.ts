/** Compiles the expressions of a template to functions. */

import { runFilter } from './filters.ts'
import type { Lexeme } from './lexer.ts'
import { spend, TemplateError } from './limits.ts'
import { applyOperator, compareBy, getAttribute, getItem, getSlice, runTest } from './operations.ts'
import type { Scope, TemplateNames } from './scope.ts'
import {
  asNumber,
  Callable,
  Dict,
  expectDefined,
  isFloat,
  isTrue,
  type NamedArguments,
  spendFor,
  toFloat,
  toKey,
  Tuple,
  typeName,
  Undefined,
  type Value,
} from './values.ts'

export type Expression = (scope: Scope) => Value
export type AppliedFilter = (value: Value, scope: Scope) => Value
type Arguments = (scope: Scope) => {
  readonly args: readonly Value[]
  readonly named: NamedArguments
}

const toExpression =
  (evaluate: Expression): Expression =>
  (scope) => {
    spend(1 / 8)
    return evaluate(scope)
  }

/** An expression whose result costs steps. Filters charge for their results themselves. */
const toCreator = (evaluate: Expression): Expression =>
  toExpression((scope) => {
    const value = evaluate(scope)
    spendFor(value)
    return value
  })

const constants: ReadonlyMap<string, boolean | null> = new Map(
  Object.entries({ true: true, True: true, false: false, False: false, none: null, None: null }),
)
const comparisons: ReadonlySet<string> = new Set(['==', '!=', '<', '>', '<=', '>='])
const wordsAfterTest: ReadonlySet<string> = new Set(['else', 'or', 'and', 'if', 'is', 'in', 'not'])
/** The arithmetic operators and `~`, in levels of equal precedence, the loosest binding first. */
const operatorLevels = [['+', '-'], ['~'], ['*', '/', '//', '%'], ['**']]
const noArguments: Arguments = () => ({ args: [], named: new Map() })

/** The depth is limited, because the parser is recursive. */
const maxDepth = 200

export class ExpressionParser {
  readonly names: TemplateNames
  readonly #lexemes: readonly Lexeme[]
  #at = 0
  #depth = 0

  constructor(lexemes: readonly Lexeme[], names: TemplateNames) {
    this.#lexemes = lexemes
    this.names = names
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

  is(kind: Lexeme['kind'], text?: string, offset = 0): boolean {
    const lexeme = this.#lexemes[this.#at + offset]
    return lexeme?.kind === kind && (text === undefined || lexeme.text === text)
  }

  skip(kind: Lexeme['kind'], text: string): boolean {
    const isMatch = this.is(kind, text)
    if (isMatch) this.#at++
    return isMatch
  }

  expect(kind: Lexeme['kind'], text?: string): string {
    if (!this.is(kind, text)) throw this.#unexpectedError(text ?? kind)
    return this.advance().text
  }

  #unexpectedError(wanted: string): TemplateError {
    const { current } = this
    if (current === undefined) return new TemplateError(`expected '${wanted}', got end of template`)
    return new TemplateError(
      `expected '${wanted}', got '${current.text.slice(0, 40)}' (line ${current.line})`,
    )
  }

  /** If `withCondition` is `false`, a following `if` is not part of the expression. */
  parseTuple(withCondition = true): Expression {
    const parse = (): Expression => (withCondition ? this.parse() : this.#parseOr())
    const first = parse()
    if (!this.is('sign', ',')) return first
    const items = [first]
    while (this.skip('sign', ',')) {
      if (this.#isEndOfTuple()) break
      items.push(parse())
    }
    return toTuple(items)
  }

  #isEndOfTuple(): boolean {
    return this.is('end') || this.is('sign', ')') || this.is('name', 'in') || this.is('sign', '=')
  }

  parse(): Expression {
    if (++this.#depth > maxDepth) throw new TemplateError('an expression is nested too deeply')
    let value = this.#parseOr()
    while (this.skip('name', 'if')) {
      const test = this.#parseOr()
      const otherwise = this.skip('name', 'else') ? this.parse() : noElse
      const consequent = value
      value = toExpression((scope) => (isTrue(test(scope)) ? consequent(scope) : otherwise(scope)))
    }
    this.#depth--
    return value
  }

  #parseOr(): Expression {
    let left = this.#parseAnd()
    while (this.skip('name', 'or')) left = toChoice(left, this.#parseAnd(), true)
    return left
  }

  #parseAnd(): Expression {
    let left = this.#parseNot()
    while (this.skip('name', 'and')) left = toChoice(left, this.#parseNot(), false)
    return left
  }

  #parseNot(): Expression {
    if (!this.skip('name', 'not')) return this.#parseCompare()
    const value = this.#parseNot()
    return toExpression((scope) => !isTrue(value(scope)))
  }

  #parseCompare(): Expression {
    const first = this.#parseOperators(0)
    const rest: (readonly [string, Expression])[] = []
    for (let sign = this.#comparison(); sign !== null; sign = this.#comparison()) {
      rest.push([sign, this.#parseOperators(0)])
    }
    if (rest.length === 0) return first
    return toExpression((scope) => {
      let left = first(scope)
      return rest.every(([sign, next]) => {
        const right = next(scope)
        const holds = compareBy(sign, left, right)
        left = right
        return holds
      })
    })
  }

  #comparison(): string | null {
    const { current } = this
    if (current?.kind === 'sign' && comparisons.has(current.text)) return this.advance().text
    if (this.skip('name', 'in')) return 'in'
    if (!this.is('name', 'not') || !this.is('name', 'in', 1)) return null
    this.#at += 2
    return 'not in'
  }

  #parseOperators(level: number): Expression {
    const signs = operatorLevels[level]
    if (signs === undefined) return this.#parseUnary(true)
    let value = this.#parseOperators(level + 1)
    while (this.current?.kind === 'sign' && signs.includes(this.current.text)) {
      const sign = this.advance().text
      const [left, right] = [value, this.#parseOperators(level + 1)]
      value = toCreator((scope) => applyOperator(sign, left(scope), right(scope)))
    }
    return value
  }

  #parseUnary(withFilter: boolean): Expression {
    const factor = this.skip('sign', '-') ? -1 : this.skip('sign', '+') ? 1 : null
    const first = factor === null ? this.#parsePrimary() : toSigned(factor, this.#parseUnary(false))
    const value = this.#parsePostfix(first)
    return withFilter ? this.#parseFilters(value) : value
  }

  #parsePrimary(): Expression {
    const { kind, text } = this.advance()
    if (kind === 'name') {
      const constant = constants.get(text)
      if (constant !== undefined) return this.#toLiteral(constant)
      this.names.read(text)
      return toExpression((scope) => scope.get(text))
    }
    if (kind === 'string') return this.#toLiteral(text + this.#parseMoreText())
    if (kind === 'integer') return this.#toLiteral(Number(text.replaceAll('_', '')))
    if (kind === 'float') {
      const value = toFloat(Number(text.replaceAll('_', '')))
      return toExpression(() => value)
    }
    if (kind === 'sign' && text === '(') return this.#parseParenthesis()
    if (kind === 'sign' && text === '[') {
      const items = this.parseList(']', () => this.parse())
      return toExpression((scope) => items.map((item) => item(scope)))
    }
    if (kind === 'sign' && text === '{') {
      const entries = this.parseList('}', () => this.#parseEntry())
      return toExpression(
        (scope) => new Dict(entries.map(([key, value]) => [toKey(key(scope)), value(scope)])),
      )
    }
    this.#at--
    throw this.#unexpectedError('an expression')
  }

  #toLiteral(value: string | number | boolean | null): Expression {
    this.names.members.add(String(value))
    return toExpression(() => value)
  }

  #parseMoreText(): string {
    let text = ''
    while (this.is('string')) text += this.advance().text
    return text
  }

  #parseParenthesis(): Expression {
    if (this.skip('sign', ')')) return toTuple([])
    const inner = this.parseTuple()
    this.expect('sign', ')')
    return inner
  }

  /** Parses a list up to `end`. A comma may follow the last item. */
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

  #parseEntry(): readonly [Expression, Expression] {
    const key = this.parse()
    this.expect('sign', ':')
    return [key, this.parse()]
  }

  #parsePostfix(first: Expression): Expression {
    let value = first
    for (;;) {
      if (this.skip('sign', '.')) value = this.#parseMember(value)
      else if (this.skip('sign', '[')) value = this.#parseSubscript(value)
      else if (this.is('sign', '(')) value = this.#parseCall(value)
      else return value
    }
  }

  #parseMember(of: Expression): Expression {
    if (this.is('integer')) return toItem(of, this.#toLiteral(Number(this.advance().text)))
    const name = this.expect('name')
    this.names.members.add(name)
    return toExpression((scope) => getAttribute(of(scope), name))
  }

  #parseSubscript(of: Expression): Expression {
    const bound = (): Expression | null =>
      this.is('sign', ':') || this.is('sign', ']') ? null : this.parse()
    const from = bound()
    if (!this.skip('sign', ':')) {
      if (from === null) throw this.#unexpectedError('an expression')
      this.expect('sign', ']')
      return toItem(of, from)
    }
    const bounds = [from, bound(), this.skip('sign', ':') ? bound() : null]
    this.expect('sign', ']')
    return toCreator((scope) =>
      getSlice(
        of(scope),
        bounds.map((one) => (one === null ? null : one(scope))),
      ),
    )
  }

  #parseCall(callee: Expression): Expression {
    const given = this.#parseArguments()
    return toCreator((scope) => {
      const target = expectDefined(callee(scope))
      if (!(target instanceof Callable)) {
        throw new TemplateError(`'${typeName(target)}' object is not callable`)
      }
      const { args, named } = given(scope)
      for (const arg of args) spendFor(arg)
      return target.call(args, named)
    })
  }

  #parseFilters(first: Expression): Expression {
    let value = first
    for (;;) {
      if (this.skip('sign', '|')) {
        const [of, filter] = [value, this.parseFilter()]
        value = toExpression((scope) => filter(of(scope), scope))
      } else if (this.skip('name', 'is')) value = this.#parseTest(value)
      else if (this.is('sign', '(')) value = this.#parseCall(value)
      else return value
    }
  }

  /** Parses a filter. Its `|` was already read. */
  parseFilter(): AppliedFilter {
    const name = this.#parseDottedName()
    const given = this.is('sign', '(') ? this.#parseArguments() : noArguments
    return (value, scope) => {
      const { args, named } = given(scope)
      return runFilter(name, value, args, named)
    }
  }

  #parseDottedName(): string {
    let name = this.expect('name')
    while (this.skip('sign', '.')) name += `.${this.expect('name')}`
    return name
  }

  #parseTest(of: Expression): Expression {
    const isNot = this.skip('name', 'not')
    const name = this.#parseDottedName()
    let given = noArguments
    if (this.is('sign', '(')) given = this.#parseArguments()
    else if (this.#beginsArgument()) {
      const argument = this.#parsePostfix(this.#parsePrimary())
      given = (scope) => ({ args: [argument(scope)], named: new Map() })
    }
    return toExpression((scope) => {
      const value = of(scope)
      return runTest(name, value, given(scope).args) !== isNot
    })
  }

  #beginsArgument(): boolean {
    const { current } = this
    if (current === undefined) return false
    if (current.kind === 'name') return !wordsAfterTest.has(current.text)
    if (current.kind === 'sign') return current.text === '[' || current.text === '{'
    return ['string', 'integer', 'float'].includes(current.kind)
  }

  #parseArguments(): Arguments {
    this.expect('sign', '(')
    const positional: Expression[] = []
    const keywords: (readonly [string, Expression])[] = []
    this.parseList(')', () => {
      if (this.is('name') && this.is('sign', '=', 1)) {
        const name = this.advance().text
        this.#at++
        keywords.push([name, this.parse()])
      } else positional.push(this.parse())
    })
    return (scope) => ({
      args: positional.map((argument) => argument(scope)),
      named: new Map(keywords.map(([name, value]) => [name, value(scope)])),
    })
  }
}

const toTuple = (items: readonly Expression[]): Expression =>
  toExpression((scope) => Tuple.from(items.map((item) => item(scope))))

const toItem = (of: Expression, key: Expression): Expression =>
  toExpression((scope) => getItem(of(scope), key(scope)))

/** `or` and `and`: the left value if its truth is `decides`, otherwise the right value. */
const toChoice = (left: Expression, right: Expression, decides: boolean): Expression =>
  toExpression((scope) => {
    const value = left(scope)
    return isTrue(value) === decides ? value : right(scope)
  })

const noElse: Expression = () =>
  new Undefined('the inline if-expression evaluated to false and no else section was defined.')

const toSigned = (factor: number, of: Expression): Expression =>
  toExpression((scope) => {
    const value = expectDefined(of(scope))
    const number = asNumber(value)
    if (number === null) throw new TemplateError(`bad operand type: '${typeName(value)}'`)
    return isFloat(value) ? toFloat(factor * number) : factor * number
  })
