/** The syntax tree of a template. Types only. */

/** Distributes over `Kind`: one node type per kind. */
type Node<Kind extends string, Parts extends object = object> = Kind extends string
  ? Readonly<{ kind: Kind } & Parts>
  : never
type Two = { left: Expression; right: Expression }

export type Expression =
  | Node<'literal', { value: string | number | boolean | null }>
  | Node<'float', { value: number }>
  | Node<'name', { name: string }>
  | Node<'list' | 'tuple', { items: readonly Expression[] }>
  | Node<'dict', { entries: readonly (readonly [Expression, Expression])[] }>
  | Node<'attribute', { of: Expression; name: string }>
  | Node<'item', { of: Expression; key: Expression }>
  | Node<'slice', { of: Expression; bounds: readonly (Expression | null)[] }>
  | Node<'call', { callee: Expression; args: Arguments }>
  | Node<'filter', { of: Expression; call: NamedCall }>
  | Node<'test', { of: Expression; call: NamedCall; isNot: boolean }>
  | Node<'not' | 'negative' | 'positive', { of: Expression }>
  | Node<'and' | 'or', Two>
  | Node<'binary', Two & { sign: string }>
  | Node<'compare', { first: Expression; rest: readonly (readonly [string, Expression])[] }>
  | Node<'choice', { test: Expression; then: Expression; otherwise: Expression | null }>

export interface Arguments {
  readonly args: readonly Expression[]
  readonly named: readonly (readonly [string, Expression])[]
  /** The expressions of `*list` and `**dict`. */
  readonly rest: Expression | null
  readonly namedRest: Expression | null
}

/** A filter or a test with its arguments. */
export interface NamedCall {
  readonly name: string
  readonly args: Arguments
}

/** The target of an assignment. */
export type Target =
  | Node<'name', { name: string }>
  | Node<'member', { of: string; name: string }>
  | Node<'tuple', { targets: readonly Target[] }>

export interface Parameter {
  readonly name: string
  readonly byDefault: Expression | null
}

/** The parameters and the body of a macro or of a `call` block. */
export interface MacroParts {
  readonly parameters: readonly Parameter[]
  readonly body: Body
}

interface ForParts {
  readonly target: Target
  readonly items: Expression
  readonly test: Expression | null
  readonly body: Body
  readonly otherwise: Body
  readonly isRecursive: boolean
}

export type Statement =
  | Node<'text', { text: string }>
  | Node<'output' | 'do', { value: Expression }>
  | Node<'if', { branches: readonly { readonly test: Expression | null; readonly body: Body }[] }>
  | Node<'for', ForParts>
  | Node<'set', { target: Target; value: Expression }>
  | Node<'set-block', { target: Target; filters: readonly NamedCall[]; body: Body }>
  | Node<'macro', { name: string } & MacroParts>
  | Node<'call-block', { call: Expression } & MacroParts>
  | Node<'filter-block', { filters: readonly NamedCall[]; body: Body }>
  | Node<'with', { values: readonly (readonly [Target, Expression])[]; body: Body }>
  | Node<'break' | 'continue'>

export type Body = readonly Statement[]
