/** Evaluates the expressions of a template. */

import { runFilter } from './filters.ts'
import type { Arguments, Expression } from './syntax/nodes.ts'
import { applyOperator, attributeOf, isOrdered, itemOf, runTest, sliceOf } from './operations.ts'
import { spend, TemplateError } from './limits.ts'
import {
  Callable,
  defined,
  Dict,
  isFloat,
  isTrue,
  iterate,
  type Named,
  numberOf,
  spendFor,
  toFloat,
  toKey,
  Tuple,
  typeName,
  Undefined,
  type Value,
} from './values.ts'

/** The variables of a body; variables of outer bodies can be read. */
export class Scope {
  readonly #values = new Map<string, Value>()
  readonly #parent: Scope | null

  constructor(parent: Scope | null = null) {
    this.#parent = parent
  }

  open(): Scope {
    return new Scope(this)
  }

  set(name: string, value: Value): void {
    this.#values.set(name, value)
  }

  get(name: string): Value {
    const found = this.#values.get(name)
    if (found !== undefined) return found
    return this.#parent === null ? new Undefined(`'${name}' is undefined`) : this.#parent.get(name)
  }

  isTrue(test: Expression): boolean {
    return isTrue(evaluate(test, this))
  }
}

type Evaluate<Kind extends Expression['kind']> = (
  node: Extract<Expression, { kind: Kind }>,
  scope: Scope,
) => Value

/** Expressions that create a value instead of looking one up. `runFilter` charges for filters. */
const creating: ReadonlySet<Expression['kind']> = new Set(['call', 'binary', 'slice'])

export function evaluate(node: Expression, scope: Scope): Value {
  spend(1 / 8)
  const value = (evaluators[node.kind] as (node: Expression, scope: Scope) => Value)(node, scope)
  if (creating.has(node.kind)) spendFor(value)
  return value
}

const choice: Evaluate<'choice'> = ({ test, then, otherwise }, scope) => {
  if (scope.isTrue(test)) return evaluate(then, scope)
  if (otherwise !== null) return evaluate(otherwise, scope)
  return new Undefined(
    'the inline if-expression evaluated to false and no else section was defined.',
  )
}

const compared: Evaluate<'compare'> = ({ first, rest }, scope) => {
  let left = evaluate(first, scope)
  for (const [sign, node] of rest) {
    const right = evaluate(node, scope)
    if (!isOrdered(sign, left, right)) return false
    left = right
  }
  return true
}

const called: Evaluate<'call'> = ({ callee, args: given }, scope) => {
  const target = defined(evaluate(callee, scope))
  if (!(target instanceof Callable)) {
    throw new TemplateError(`'${typeName(target)}' object is not callable`)
  }
  const { args, named } = evaluateArguments(given, scope)
  for (const arg of args) spendFor(arg)
  return target.call(args, named)
}

const signed =
  (factor: number) =>
  ({ of }: { readonly of: Expression }, scope: Scope): Value => {
    const value = defined(evaluate(of, scope))
    const number = numberOf(value)
    if (number === null) throw new TemplateError(`bad operand type: '${typeName(value)}'`)
    return isFloat(value) ? toFloat(factor * number) : factor * number
  }

const items = (nodes: readonly Expression[], scope: Scope): Value[] =>
  nodes.map((node) => evaluate(node, scope))

const dict: Evaluate<'dict'> = ({ entries }, scope) =>
  new Dict(entries.map(([key, value]) => [toKey(evaluate(key, scope)), evaluate(value, scope)]))

const filtered: Evaluate<'filter'> = ({ of, call }, scope) => {
  const value = evaluate(of, scope)
  const { args, named } = evaluateArguments(call.args, scope)
  return runFilter(call.name, value, args, named)
}

const tested: Evaluate<'test'> = ({ of, call, isNot }, scope) => {
  const value = evaluate(of, scope)
  const { args } = evaluateArguments(call.args, scope)
  return runTest(call.name, value, args) !== isNot
}

const evaluators: { readonly [Kind in Expression['kind']]: Evaluate<Kind> } = {
  literal: ({ value }) => value,
  float: ({ value }) => toFloat(value),
  name: ({ name }, scope) => scope.get(name),
  list: (node, scope) => items(node.items, scope),
  tuple: (node, scope) => Tuple.from(items(node.items, scope)),
  dict,
  attribute: ({ of, name }, scope) => attributeOf(evaluate(of, scope), name),
  item: ({ of, key }, scope) => itemOf(evaluate(of, scope), evaluate(key, scope)),
  slice: ({ of, bounds }, scope) =>
    sliceOf(
      evaluate(of, scope),
      bounds.map((bound) => (bound === null ? null : evaluate(bound, scope))),
    ),
  call: called,
  filter: filtered,
  test: tested,
  not: ({ of }, scope) => !scope.isTrue(of),
  negative: signed(-1),
  positive: signed(1),
  and: ({ left, right }, scope) => {
    const value = evaluate(left, scope)
    return isTrue(value) ? evaluate(right, scope) : value
  },
  or: ({ left, right }, scope) => {
    const value = evaluate(left, scope)
    return isTrue(value) ? value : evaluate(right, scope)
  },
  binary: ({ sign, left, right }, scope) =>
    applyOperator(sign, evaluate(left, scope), evaluate(right, scope)),
  compare: compared,
  choice,
}

export function evaluateArguments(
  given: Arguments,
  scope: Scope,
): { readonly args: readonly Value[]; readonly named: Named } {
  const args = items(given.args, scope)
  if (given.rest !== null) for (const item of iterate(evaluate(given.rest, scope))) args.push(item)
  const named = new Map(given.named.map(([name, node]) => [name, evaluate(node, scope)]))
  const rest = given.namedRest === null ? null : evaluate(given.namedRest, scope)
  if (rest instanceof Dict) for (const [key, value] of rest) named.set(String(key), value)
  return { args, named }
}
