/** Finds the names that a template reads, from its syntax tree. Pure. */

import type { Body, Expression, MacroParts, Statement, Target } from './nodes.ts'

export interface TemplateNames {
  /** Variables that a caller may set: the template reads them without having set them. */
  readonly variables: ReadonlySet<string>
  /** Attribute names and string literals, which may be used to read members of values. */
  readonly members: ReadonlySet<string>
}

/** The names that a body knows, and the names of the enclosing bodies. */
type Names = readonly Set<string>[]

/** `known` contains the names that are defined for every template. */
export function namesIn(body: Body, known: Iterable<string>): TemplateNames {
  const reader = new NameReader()
  reader.readBody(body, [new Set(known)])
  return reader
}

class NameReader implements TemplateNames {
  readonly variables = new Set<string>()
  readonly members = new Set<string>()

  /** Names that a body sets are known in the rest of that body, but not after it. */
  readBody(body: Body, outer: Names, ...names: readonly string[]): void {
    const own = new Set(names)
    const scope = [...outer, own]
    for (const statement of body) for (const name of this.#read(statement, scope)) own.add(name)
  }

  /** Reads a statement. Returns the names that it sets. */
  #read(statement: Statement, scope: Names): readonly string[] {
    switch (statement.kind) {
      case 'output':
      case 'do':
        this.#readValue(statement.value, scope)
        return []
      case 'if':
        for (const { test, body } of statement.branches) {
          this.#readValue(test, scope)
          this.readBody(body, scope)
        }
        return []
      case 'for': {
        const { target, items, test, body, otherwise } = statement
        const inner = [...scope, new Set([...namesOf(target), 'loop'])]
        this.#readValue(items, scope)
        this.#readValue(test, inner)
        this.readBody(body, inner)
        this.readBody(otherwise, scope)
        return []
      }
      case 'set':
        this.#readValue(statement.value, scope)
        return namesOf(statement.target)
      case 'set-block':
      case 'filter-block':
        for (const { args } of statement.filters) this.#readValue(args, scope)
        this.readBody(statement.body, scope)
        return statement.kind === 'set-block' ? namesOf(statement.target) : []
      case 'macro':
        this.#readMacro(statement, scope, statement.name)
        return [statement.name]
      case 'call-block':
        this.#readValue(statement.call, scope)
        this.#readMacro(statement, scope)
        return []
      case 'with':
        for (const [, value] of statement.values) this.#readValue(value, scope)
        this.readBody(
          statement.body,
          scope,
          ...statement.values.flatMap(([target]) => namesOf(target)),
        )
        return []
      default:
        return []
    }
  }

  #readMacro({ parameters, body }: MacroParts, scope: Names, ...names: readonly string[]): void {
    for (const { byDefault } of parameters) this.#readValue(byDefault, scope)
    const own = parameters.map(({ name }) => name)
    this.readBody(body, scope, ...names, ...own, 'caller', 'varargs', 'kwargs')
  }

  /** Reads an expression, or a list or an object that contains expressions. */
  #readValue(value: unknown, scope: Names): void {
    if (typeof value !== 'object' || value === null) return
    const expression = value as Expression
    if (expression.kind === 'name') {
      if (!scope.some((names) => names.has(expression.name))) this.variables.add(expression.name)
      return
    }
    if (expression.kind === 'attribute') this.members.add(expression.name)
    else if (expression.kind === 'literal') this.members.add(String(expression.value))
    for (const part of Object.values(value)) this.#readValue(part, scope)
  }
}

function namesOf(target: Target): readonly string[] {
  if (target.kind === 'name') return [target.name]
  return target.kind === 'tuple' ? target.targets.flatMap(namesOf) : []
}
