/** Compiles the statements of a template to functions. Rejects unknown tags. */

import { type AppliedFilter, type Expression, ExpressionParser } from './expressions.ts'
import { tokenize } from './lexer.ts'
import { fail, spend, spendOutput, TemplateError, withDepthLimit } from './limits.ts'
import type { Scope, TemplateNames } from './scope.ts'
import {
  Callable,
  isTrue,
  iterate,
  type NamedArguments,
  Namespace,
  toText,
  Undefined,
  type Value,
  valueOr,
} from './values.ts'

type Jump = 'break' | 'continue' | null
/** Executes a statement and adds its text to `output`. */
type Statement = (scope: Scope, output: string[]) => Jump
type Body = readonly Statement[]

interface Target {
  readonly names: readonly string[]
  readonly assign: (value: Value, scope: Scope) => void
}

interface Macro {
  readonly parameters: readonly {
    readonly name: string
    readonly defaultValue: Expression | null
  }[]
  readonly body: Body
}

interface Loop {
  readonly target: Target
  readonly test: Expression | null
  readonly body: Body
  readonly otherwise: Body
}

/**
 * Throws a `TemplateError` for an invalid template. Adds the names that the template reads to
 * `names`.
 */
export function compileTemplate(source: string, names: TemplateNames): (scope: Scope) => string {
  const body = new StatementParser(new ExpressionParser(tokenize(source), names)).parse()
  return (scope) => capture(body, scope)
}

/** The nesting is limited, because names are looked up in all enclosing blocks. */
const maxDepth = 100

class StatementParser {
  readonly #tokens: ExpressionParser
  readonly #statements: Readonly<Record<string, () => Statement>>
  #depth = 0

  constructor(tokens: ExpressionParser) {
    this.#tokens = tokens
    this.#statements = {
      if: () => this.#parseIf(),
      for: () => this.#parseFor(),
      set: () => this.#parseSet(),
      macro: () => this.#parseMacro(),
      filter: () => this.#parseFilterBlock(),
      generation: () => this.#parseGeneration(),
      do: () => this.#parseDo(),
      break: () => this.#parseJump('break'),
      continue: () => this.#parseJump('continue'),
    }
  }

  parse(): Body {
    const { body, end } = this.#parseBody([])
    if (end !== null) throw new TemplateError(`unexpected '${end}'`)
    return body
  }

  /** Parses statements up to and including the name of a tag in `ends`. */
  #parseBody(
    ends: readonly string[],
    names: readonly string[] = [],
  ): { readonly body: Body; readonly end: string | null } {
    if (++this.#depth > maxDepth) throw new TemplateError('blocks are nested too deeply')
    const body: Statement[] = []
    const end = this.#tokens.names.inBody(names, () => this.#parseStatements(ends, body))
    this.#depth--
    return { body, end }
  }

  #parseStatements(ends: readonly string[], body: Statement[]): string | null {
    const tokens = this.#tokens
    while (tokens.current !== undefined) {
      if (tokens.is('text')) {
        const { text } = tokens.advance()
        body.push((_, output) => write(text, output))
      } else if (tokens.skip('begin', '{{')) {
        const value = tokens.parseTuple()
        tokens.expect('end', '}}')
        body.push((scope, output) => write(toText(value(scope)), output))
      } else {
        tokens.expect('begin', '{%')
        const name = tokens.expect('name')
        if (ends.includes(name)) return name
        const parse = Object.hasOwn(this.#statements, name) ? this.#statements[name] : undefined
        if (parse === undefined) throw new TemplateError(`unknown tag '${name}'`)
        body.push(parse())
      }
    }
    if (ends.length > 0) throw new TemplateError(`'${ends.at(-1)}' is missing`)
    return null
  }

  #expectTagEnd(): void {
    this.#tokens.expect('end', '%}')
  }

  #parseBlock(end: string, names: readonly string[] = []): Body {
    this.#expectTagEnd()
    const { body } = this.#parseBody([end], names)
    this.#expectTagEnd()
    return body
  }

  #parseIf(): Statement {
    const branches: { test: Expression; body: Body }[] = []
    for (let end: string | null = null; end !== 'endif';) {
      const isElse: boolean = end === 'else'
      const test: Expression = isElse ? () => true : this.#tokens.parseTuple()
      this.#expectTagEnd()
      const parsed = this.#parseBody(isElse ? ['endif'] : ['elif', 'else', 'endif'])
      branches.push({ test, body: parsed.body })
      end = parsed.end
    }
    this.#expectTagEnd()
    return (scope, output) => {
      const chosen = branches.find(({ test }) => isTrue(test(scope)))
      return chosen === undefined ? null : runBody(chosen.body, scope, output)
    }
  }

  #parseFor(): Statement {
    const { names } = this.#tokens
    const target = this.#parseTarget()
    this.#tokens.expect('name', 'in')
    const items = this.#tokens.parseTuple(false)
    const { end, ...head } = names.inBody([...target.names, 'loop'], () => {
      const test = this.#tokens.skip('name', 'if') ? this.#tokens.parse() : null
      this.#expectTagEnd()
      return { test, ...this.#parseBody(['else', 'endfor']) }
    })
    const otherwise = end === 'else' ? this.#parseBlock('endfor') : []
    if (end !== 'else') this.#expectTagEnd()
    const loop = { ...head, target, otherwise }
    return (scope, output) => runLoop(loop, items(scope), scope, output)
  }

  #parseTarget(): Target {
    const first = this.#parseSingleTarget()
    if (!this.#tokens.is('sign', ',')) return first
    const targets = [first]
    while (this.#tokens.skip('sign', ',')) {
      if (!this.#tokens.is('name') && !this.#tokens.is('sign', '(')) break
      targets.push(this.#parseSingleTarget())
    }
    return {
      names: targets.flatMap(({ names }) => names),
      assign: (value, scope) => assignEach(targets, iterate(value), scope),
    }
  }

  #parseSingleTarget(): Target {
    const tokens = this.#tokens
    if (tokens.skip('sign', '(')) {
      const inner = this.#parseTarget()
      tokens.expect('sign', ')')
      return inner
    }
    const name = tokens.expect('name')
    if (!tokens.skip('sign', '.')) {
      return { names: [name], assign: (value, scope) => scope.set(name, value) }
    }
    const member = tokens.expect('name')
    return {
      names: [],
      assign(value, scope) {
        const owner = scope.get(name)
        if (owner instanceof Namespace) owner.set(member, value)
        else throw new TemplateError('cannot assign attribute on non-namespace object')
      },
    }
  }

  #parseSet(): Statement {
    const tokens = this.#tokens
    const target = this.#parseTarget()
    let value: Expression
    if (tokens.skip('sign', '=')) {
      value = tokens.parseTuple()
      this.#expectTagEnd()
    } else value = this.#parseFiltered('endset')
    tokens.names.set(target.names)
    return (scope) => {
      target.assign(value(scope), scope)
      return null
    }
  }

  /** Parses more filters, and the block whose text they change. */
  #parseFiltered(end: string, ...filters: AppliedFilter[]): Expression {
    while (this.#tokens.skip('sign', '|')) filters.push(this.#tokens.parseFilter())
    const body = this.#parseBlock(end)
    return (scope) =>
      filters.reduce<Value>((value, filter) => filter(value, scope), capture(body, scope))
  }

  #parseFilterBlock(): Statement {
    const text = this.#parseFiltered('endfilter', this.#tokens.parseFilter())
    return (scope, output) => write(toText(text(scope)), output)
  }

  #parseMacro(): Statement {
    const name = this.#tokens.expect('name')
    const parameters = this.#parseParameters()
    const parameterNames = parameters.map((parameter) => parameter.name)
    const macro = { parameters, body: this.#parseBlock('endmacro', [name, ...parameterNames]) }
    this.#tokens.names.set([name])
    return (scope) => {
      scope.set(name, createMacro(name, macro, scope))
      return null
    }
  }

  #parseParameters(): Macro['parameters'] {
    const tokens = this.#tokens
    tokens.expect('sign', '(')
    return tokens.parseList(')', () => {
      const name = tokens.expect('name')
      return { name, defaultValue: tokens.skip('sign', '=') ? tokens.parse() : null }
    })
  }

  /** Parses a tag that marks assistant text for training. It has no effect on the output. */
  #parseGeneration(): Statement {
    const body = this.#parseBlock('endgeneration')
    return (scope, output) => runBody(body, scope.open(), output)
  }

  #parseDo(): Statement {
    const value = this.#tokens.parseTuple()
    this.#expectTagEnd()
    return (scope) => {
      value(scope)
      return null
    }
  }

  #parseJump(kind: 'break' | 'continue'): Statement {
    this.#expectTagEnd()
    return () => kind
  }
}

function runBody(body: Body, scope: Scope, output: string[]): Jump {
  for (const statement of body) {
    spend(1)
    const jump = statement(scope, output)
    if (jump !== null) return jump
  }
  return null
}

function capture(body: Body, scope: Scope): string {
  const output: string[] = []
  runBody(body, scope.open(), output)
  return output.join('')
}

function write(text: string, output: string[]): null {
  spendOutput(text)
  output.push(text)
  return null
}

function assignEach(targets: readonly Target[], items: readonly Value[], scope: Scope): void {
  if (items.length !== targets.length) {
    const wanted = `${targets.length} values, got ${items.length}`
    throw new TemplateError(`cannot unpack: expected ${wanted}`)
  }
  for (const [at, { assign }] of targets.entries()) assign(items[at] ?? null, scope)
}

const createMacro = (name: string, { parameters, body }: Macro, scope: Scope): Callable =>
  new Callable(
    name,
    (args, named) => {
      const inner = scope.open()
      return withDepthLimit(() => {
        bindArguments(name, parameters, { args, named }, inner)
        return capture(body, inner)
      }, 'the template calls itself too deeply')
    },
    new Map<string, Value>([
      ['name', name],
      ['arguments', parameters.map((parameter) => parameter.name)],
    ]),
  )

function bindArguments(
  macro: string,
  parameters: Macro['parameters'],
  { args, named }: { readonly args: readonly Value[]; readonly named: NamedArguments },
  scope: Scope,
): void {
  const known = new Set(parameters.map(({ name }) => name))
  for (const [at, { name, defaultValue }] of parameters.entries()) {
    const given = at < args.length ? args[at] : named.get(name)
    const missing = defaultValue ?? (() => new Undefined(`parameter '${name}' was not provided`))
    scope.set(name, given ?? (given === null ? null : missing(scope)))
  }
  const hasOther = [...named.keys()].some((name) => !known.has(name))
  if (hasOther || args.length > parameters.length) {
    throw new TemplateError(`macro '${macro}' takes not more than ${known.size} argument(s)`)
  }
}

function runLoop(loop: Loop, given: Value, scope: Scope, output: string[]): null {
  const { target, test, body, otherwise } = loop
  const all = iterate(given)
  // Every item costs a step, even if the body is empty or the test excludes the item.
  spend(all.length)
  const withItem = (item: Value): Scope => {
    const inner = scope.open()
    target.assign(item, inner)
    return inner
  }
  const items = test === null ? all : all.filter((item) => isTrue(test(withItem(item))))
  for (const [at, item] of items.entries()) {
    const inner = withItem(item)
    const get = (name: string): Value | undefined => loopAttributes.get(name)?.(at, items)
    inner.set('loop', new Callable('loop', () => fail('the loop is not recursive'), { get }))
    if (runBody(body, inner, output) === 'break') break
  }
  if (items.length === 0) runBody(otherwise, scope.open(), output)
  return null
}

const loopAttributes = new Map<string, (at: number, items: readonly Value[]) => Value>([
  ['index', (at) => at + 1],
  ['index0', (at) => at],
  ['revindex', (at, items) => items.length - at],
  ['revindex0', (at, items) => items.length - at - 1],
  ['first', (at) => at === 0],
  ['last', (at, items) => items.length - at === 1],
  ['length', (_, items) => items.length],
  // Only recursive loops have a greater depth.
  ['depth', () => 1],
  ['depth0', () => 0],
  ['previtem', (at, items) => valueOr(items[at - 1], new Undefined('there is no item before'))],
  ['nextitem', (at, items) => valueOr(items[at + 1], new Undefined('there is no item after'))],
])
