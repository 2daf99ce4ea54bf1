/** The syntax tree of a template. Types only. */

export type Expression =
  | { readonly kind: 'literal'; readonly value: string | number | boolean | null }
  | { readonly kind: 'float'; readonly value: number }
  | { readonly kind: 'name'; readonly name: string }
  | { readonly kind: 'list'; readonly items: readonly Expression[] }
  | { readonly kind: 'tuple'; readonly items: readonly Expression[] }
  | { readonly kind: 'dict'; readonly entries: readonly (readonly [Expression, Expression])[] }
  | { readonly kind: 'attribute'; readonly of: Expression; readonly name: string }
  | { readonly kind: 'item'; readonly of: Expression; readonly key: Expression }
  | {
      readonly kind: 'slice'
      readonly of: Expression
      readonly from: Expression | null
      readonly to: Expression | null
      readonly step: Expression | null
    }
  | { readonly kind: 'call'; readonly callee: Expression; readonly args: Arguments }
  | { readonly kind: 'filter'; readonly of: Expression; readonly call: NamedCall }
  | {
      readonly kind: 'test'
      readonly of: Expression
      readonly call: NamedCall
      readonly isNot: boolean
    }
  | { readonly kind: 'not'; readonly of: Expression }
  | { readonly kind: 'negative'; readonly of: Expression }
  | { readonly kind: 'positive'; readonly of: Expression }
  | { readonly kind: 'and'; readonly left: Expression; readonly right: Expression }
  | { readonly kind: 'or'; readonly left: Expression; readonly right: Expression }
  | {
      readonly kind: 'binary'
      readonly sign: string
      readonly left: Expression
      readonly right: Expression
    }
  | {
      readonly kind: 'compare'
      readonly first: Expression
      readonly rest: readonly (readonly [string, Expression])[]
    }
  | {
      readonly kind: 'choice'
      readonly test: Expression
      readonly then: Expression
      readonly otherwise: Expression | null
    }

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
  | { readonly kind: 'name'; readonly name: string }
  | { readonly kind: 'member'; readonly of: string; readonly name: string }
  | { readonly kind: 'tuple'; readonly targets: readonly Target[] }

export interface Parameter {
  readonly name: string
  readonly byDefault: Expression | null
}

export type Statement =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'output'; readonly value: Expression }
  | {
      readonly kind: 'if'
      readonly branches: readonly { readonly test: Expression | null; readonly body: Body }[]
    }
  | {
      readonly kind: 'for'
      readonly target: Target
      readonly items: Expression
      readonly test: Expression | null
      readonly body: Body
      readonly otherwise: Body
      readonly isRecursive: boolean
    }
  | { readonly kind: 'set'; readonly target: Target; readonly value: Expression }
  | {
      readonly kind: 'set-block'
      readonly target: Target
      readonly filters: readonly NamedCall[]
      readonly body: Body
    }
  | {
      readonly kind: 'macro'
      readonly name: string
      readonly parameters: readonly Parameter[]
      readonly body: Body
    }
  | {
      readonly kind: 'call-block'
      readonly call: Expression
      readonly parameters: readonly Parameter[]
      readonly body: Body
    }
  | { readonly kind: 'filter-block'; readonly filters: readonly NamedCall[]; readonly body: Body }
  | {
      readonly kind: 'with'
      readonly values: readonly (readonly [Target, Expression])[]
      readonly body: Body
    }
  | { readonly kind: 'do'; readonly value: Expression }
  | { readonly kind: 'break' | 'continue' }

export type Body = readonly Statement[]
