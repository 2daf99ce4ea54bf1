/** Executes the statements of a template. */

import { evaluate, evaluateArguments, type Scope } from './evaluator.ts'
import { runFilter } from './filters.ts'
import type { Body, MacroParts, NamedCall, Parameter, Statement, Target } from './syntax/nodes.ts'
import { spend, TemplateError, TooCostly, withDepthLimit } from './limits.ts'
import {
  Callable,
  iterate,
  type Named,
  Namespace,
  toText,
  Undefined,
  type Value,
  valueOr,
} from './values.ts'

/**
 * The maximum number of written characters. Text that is captured and written again counts twice.
 */
const maxWritten = 64 << 20

/** The statement that ended a body early. */
type Jump = 'break' | 'continue' | null
type Of<Kind extends Statement['kind']> = Extract<Statement, { kind: Kind }>

export class Interpreter {
  #written = 0

  render(body: Body, scope: Scope): string {
    const output: string[] = []
    this.#run(body, scope, output)
    return output.join('')
  }

  #run(body: Body, scope: Scope, output: string[]): Jump {
    for (const statement of body) {
      spend(1)
      const jump = this.#step(statement, scope, output)
      if (jump !== null) return jump
    }
    return null
  }

  #step(statement: Statement, scope: Scope, output: string[]): Jump {
    const { kind } = statement
    if (kind === 'text') this.#write(statement.text, output)
    else if (kind === 'output') this.#write(toText(evaluate(statement.value, scope)), output)
    else if (kind === 'if') return this.#if(statement.branches, scope, output)
    else if (kind === 'set') assign(statement.target, evaluate(statement.value, scope), scope)
    else if (kind === 'for')
      this.#loop(statement, evaluate(statement.items, scope), { scope, output, depth: 0 })
    else if (kind === 'do') evaluate(statement.value, scope)
    else if (kind === 'with') return this.#with(statement, scope, output)
    else if (kind === 'break' || kind === 'continue') return kind
    else this.#block(statement, scope, output)
    return null
  }

  #write(text: string, output: string[]): void {
    this.#written += text.length
    if (this.#written > maxWritten) throw new TooCostly('the template writes too much')
    output.push(text)
  }

  #block(statement: Statement, scope: Scope, output: string[]): void {
    const { kind } = statement
    if (kind === 'macro') {
      scope.set(statement.name, this.#macro(statement.name, statement, scope))
    } else if (kind === 'set-block') {
      const text = this.#capture(statement.body, scope)
      assign(statement.target, filtered(text, statement.filters, scope), scope)
    } else if (kind === 'filter-block') {
      const text = this.#capture(statement.body, scope)
      this.#write(toText(filtered(text, statement.filters, scope)), output)
    } else if (kind === 'call-block') {
      this.#write(toText(this.#call(statement, scope)), output)
    }
  }

  #with({ values, body }: Of<'with'>, scope: Scope, output: string[]): Jump {
    const inner = scope.open()
    for (const [target, value] of values) assign(target, evaluate(value, scope), inner)
    return this.#run(body, inner, output)
  }

  #capture(body: Body, scope: Scope): string {
    const output: string[] = []
    this.#run(body, scope.open(), output)
    return output.join('')
  }

  #if(branches: Of<'if'>['branches'], scope: Scope, output: string[]): Jump {
    for (const { test, body } of branches) {
      if (test !== null && !scope.isTrue(test)) continue
      return this.#run(body, scope, output)
    }
    return null
  }

  #loop(
    statement: Of<'for'>,
    items: Value,
    { scope, output, depth }: { scope: Scope; output: string[]; depth: number },
  ): void {
    const { target, test, body, otherwise } = statement
    const all = iterate(items)
    // Charged for all items, even if the body is empty or the test excludes them.
    spend(all.length)
    const chosen = all.filter((item) => {
      if (test === null) return true
      const inner = scope.open()
      assign(target, item, inner)
      return inner.isTrue(test)
    })
    const recurse = (nested: Value): Value => {
      const inner: string[] = []
      calledWithin(() => this.#loop(statement, nested, { scope, output: inner, depth: depth + 1 }))
      return inner.join('')
    }
    const loop = new LoopState(chosen, depth, statement.isRecursive ? recurse : null)
    for (const item of chosen) {
      const inner = scope.open()
      assign(target, item, inner)
      inner.set('loop', loop.next())
      if (this.#run(body, inner, output) === 'break') break
    }
    if (chosen.length === 0) this.#run(otherwise, scope.open(), output)
  }

  #macro(name: string, { parameters, body }: MacroParts, scope: Scope): Callable {
    return new Callable(
      name,
      (args, named) => {
        const inner = scope.open()
        return calledWithin(() => {
          bind(name, parameters, { args, named }, inner)
          return this.#capture(body, inner)
        })
      },
      new Map<string, Value>([
        ['name', name],
        ['arguments', parameters.map((parameter) => parameter.name)],
      ]),
    )
  }

  #call(statement: Of<'call-block'>, scope: Scope): Value {
    const { call } = statement
    if (call.kind !== 'call') throw new TemplateError('expected a call')
    const callee = evaluate(call.callee, scope)
    if (!(callee instanceof Callable)) throw new TemplateError('what is called is no macro')
    const { args, named } = evaluateArguments(call.args, scope)
    const caller = this.#macro('caller', statement, scope)
    return callee.call(args, new Map([...named, ['caller', caller]]))
  }
}

const calledWithin = <T>(action: () => T): T =>
  withDepthLimit(action, 'the template calls itself too deeply')

function bind(
  macro: string,
  parameters: readonly Parameter[],
  { args, named }: { readonly args: readonly Value[]; readonly named: Named },
  scope: Scope,
): void {
  const known = new Set(parameters.map(({ name }) => name))
  for (const [at, { name, byDefault }] of parameters.entries()) {
    const given = at < args.length ? args[at] : named.get(name)
    if (given !== undefined) scope.set(name, given)
    else if (byDefault === null) {
      scope.set(name, new Undefined(`parameter '${name}' was not provided`))
    } else scope.set(name, evaluate(byDefault, scope))
  }
  const others = [...named].filter(([name]) => !known.has(name) && name !== 'caller')
  scope.set('varargs', args.slice(parameters.length))
  scope.set('caller', named.get('caller') ?? new Undefined("'caller' is undefined"))
  if (others.length > 0 || args.length > parameters.length) {
    throw new TemplateError(`macro '${macro}' takes not more than ${known.size} argument(s)`)
  }
}

function filtered(text: string, filters: readonly NamedCall[], scope: Scope): Value {
  return filters.reduce<Value>((value, { name, args: given }) => {
    const { args, named } = evaluateArguments(given, scope)
    return runFilter(name, value, args, named)
  }, text)
}

function assign(target: Target, value: Value, scope: Scope): void {
  if (target.kind === 'name') return scope.set(target.name, value)
  if (target.kind === 'member') {
    const owner = scope.get(target.of)
    if (!(owner instanceof Namespace)) {
      throw new TemplateError('cannot assign attribute on non-namespace object')
    }
    owner.set(target.name, value)
    return
  }
  const items = iterate(value)
  if (items.length !== target.targets.length) {
    const wanted = `${target.targets.length} values, got ${items.length}`
    throw new TemplateError(`cannot unpack: expected ${wanted}`)
  }
  for (const [at, one] of target.targets.entries()) assign(one, items[at] ?? null, scope)
}

/** Creates a new variable `loop` for each item. */
class LoopState {
  readonly #items: readonly Value[]
  readonly #depth: number
  readonly #recurse: ((items: Value) => Value) | null
  #at = -1
  #last: readonly Value[] | null = null

  constructor(items: readonly Value[], depth: number, recurse: ((items: Value) => Value) | null) {
    this.#items = items
    this.#depth = depth
    this.#recurse = recurse
  }

  next(): Value {
    const at = ++this.#at
    const attributes = { get: (name: string) => this.#attribute(at, name) }
    return new Callable('loop', ([nested = null]) => this.#again(nested), attributes)
  }

  #attribute(at: number, name: string): Value | undefined {
    const items = this.#items
    const left = items.length - at
    const depth = this.#depth
    if (name === 'index') return at + 1
    if (name === 'index0') return at
    if (name === 'revindex') return left
    if (name === 'revindex0') return left - 1
    if (name === 'first') return at === 0
    if (name === 'last') return left === 1
    if (name === 'length') return items.length
    if (name === 'depth') return depth + 1
    if (name === 'depth0') return depth
    if (name === 'previtem') return valueOr(items[at - 1], new Undefined('there is no item before'))
    if (name === 'nextitem') return valueOr(items[at + 1], new Undefined('there is no item after'))
    if (name === 'cycle') return new Callable(name, (args) => args[at % args.length] ?? null)
    if (name === 'changed') return new Callable(name, (args) => this.#isChanged(args))
    return undefined
  }

  #isChanged(values: readonly Value[]): boolean {
    const isSame = this.#last !== null && values.every((value, at) => value === this.#last?.[at])
    this.#last = values
    return !isSame
  }

  #again(nested: Value): Value {
    if (this.#recurse === null) throw new TemplateError('the loop is not recursive')
    return this.#recurse(nested)
  }
}
