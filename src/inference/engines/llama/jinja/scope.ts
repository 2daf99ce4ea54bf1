/** The variables of a template: their values while it is rendered, and the names that it reads. */

import { Undefined, type Value } from './values.ts'

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
}

/** The names that a template reads. The parser adds them. */
export class TemplateNames {
  /** Variables that a caller may set, because the template reads them before it sets them. */
  readonly variables = new Set<string>()
  /** Attribute names and literals, with which the template may read members of values. */
  readonly members = new Set<string>()
  readonly #bodies: Set<string>[]

  /** `known` contains the names that every template can read. */
  constructor(known: Iterable<string>) {
    this.#bodies = [new Set(known)]
  }

  read(name: string): void {
    if (!this.#bodies.some((names) => names.has(name))) this.variables.add(name)
  }

  set(names: readonly string[]): void {
    for (const name of names) this.#bodies.at(-1)?.add(name)
  }

  /** Parses a body. `names`, and the names that the body sets, are known until its end. */
  inBody<T>(names: readonly string[], parse: () => T): T {
    this.#bodies.push(new Set(names))
    const body = parse()
    this.#bodies.pop()
    return body
  }
}
