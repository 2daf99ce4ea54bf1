/** Problems of a value as plain data; configuration, requests and messages format them as text. */

import { nearest } from '../../foundation/options.ts'
import {
  expectationOf,
  hasShapeOf,
  isInteger,
  isPrivate,
  keysOf,
  noteOf,
  oneOf,
  type Path,
  type Schema,
  schemaAt,
  unwrapped,
  valueAt,
  z,
} from './schema.ts'

/** One problem of a value. `path` leads to the value, or to the unknown key. */
export type Problem = { readonly path: Path } & (
  | { readonly kind: 'missing' }
  | {
      readonly kind: 'unknown_key'
      readonly known: readonly string[]
      readonly nearest: string | undefined
    }
  | { readonly kind: 'invalid_key'; readonly expected: string }
  | { readonly kind: 'rule'; readonly message: string }
  | ({ readonly expected: string; readonly isPrivate: boolean } & Mismatch)
)

/** How a value differs from its schema. */
type Mismatch =
  /** `allowed` has the allowed values if the value selects an alternative of a union. */
  | { readonly kind: 'type'; readonly allowed?: readonly unknown[] }
  | { readonly kind: 'format'; readonly expected: string }
  | { readonly kind: 'choice'; readonly allowed: readonly unknown[]; readonly reason?: string }
  | { readonly kind: 'length'; readonly of: 'string' | 'array'; readonly bound: Bound }
  | { readonly kind: 'range'; readonly of: 'integer' | 'decimal'; readonly bound: Bound }

/** The bound that a number or length violates. */
export interface Bound {
  readonly side: 'min' | 'max'
  readonly value: number
  /** Whether the bound itself is allowed. */
  readonly isInclusive: boolean
}

/**
 * Checks values against one schema. The validator is compiled once. A valid value is neither copied
 * nor changed: defaults and transformations of the schema do not apply.
 */
export class Checker<S extends z.ZodType> {
  readonly #schema: S

  constructor(schema: S) {
    this.#schema = schema
  }

  isValid(value: unknown): value is z.input<S> {
    return isValid(this.#schema, value)
  }

  /**
   * All problems in the order of the schema; empty for a valid value. Of a long list, only the
   * first invalid item is described: describing millions of items would take seconds and gigabytes.
   */
  problemsIn(value: unknown): Problem[] {
    return problemsOf(this.#schema, cutAfterFirstWrongItem(this.#schema, value))
  }
}

/** For lists up to this length, all invalid items are described. */
const longList = 32
/** Compiled schemas. Each is compiled at its first use, because that takes milliseconds. */
const validators = new WeakMap<Schema, Schema>()

function isValid(schema: Schema, value: unknown): boolean {
  let compiled = validators.get(schema)
  if (compiled === undefined) {
    compiled = z.compile(schema)
    validators.set(schema, compiled)
  }
  return z.validate(compiled, value)
}

/** A copy of the value in which every long list ends with its first invalid item. */
function cutAfterFirstWrongItem(schema: Schema, value: unknown): unknown {
  const inner = unwrapped(schema)
  if (inner instanceof z.ZodUnion) {
    const meant = (inner.options as Schema[]).find((option) => hasShapeOf(option, value))
    return meant === undefined ? value : cutAfterFirstWrongItem(meant, value)
  }
  if (inner instanceof z.ZodArray && Array.isArray(value)) {
    const item = inner.element
    const items = value as readonly unknown[]
    const wrong = items.length > longList ? items.findIndex((one) => !isValid(item, one)) : -1
    const kept = wrong === -1 ? items : items.slice(0, wrong + 1)
    return kept.map((one) => cutAfterFirstWrongItem(item, one))
  }
  const isObject = typeof value === 'object' && value !== null && !Array.isArray(value)
  if (!(inner instanceof z.ZodObject) || !isObject) return value
  const fields = Object.entries(inner.shape as Record<string, Schema>).filter(([name]) =>
    Object.hasOwn(value, name),
  )
  const cut = fields.map(([name, field]) => {
    return [name, cutAfterFirstWrongItem(field, (value as Record<string, unknown>)[name])]
  })
  return { ...value, ...Object.fromEntries(cut) }
}

/** All problems of a value, in the order of the schema. */
export function problemsOf(schema: Schema, value: unknown): Problem[] {
  const result = z.safeParse(schema, value)
  if (result.success) return []
  return result.error.issues
    .filter((issue, at, all) => !isRepeated(issue, all[at + 1]))
    .flatMap((issue) => toProblems(issue, [], schema, value))
}

/** Whether the next issue repeats this one: an unsafe integer often also exceeds its bound. */
const isRepeated = (issue: Issue, next: Issue | undefined): boolean =>
  'note' in issue && next?.code === issue.code && next.path.join() === issue.path.join()

type Issue = z.core.$ZodIssue

function toProblems(issue: Issue, prefix: Path, root: Schema, value: unknown): Problem[] {
  const path = [...prefix, ...(issue.path as Path)]
  const found = valueAt(value, path)
  const schema = schemaAt(root, path, value)
  const mismatch = { path, expected: expectationOf(schema), isPrivate: isPrivate(schema) }
  if (issue.code === 'unrecognized_keys') {
    const known = schema === undefined ? [] : keysOf(schema, found)
    return issue.keys.map((key) => ({
      kind: 'unknown_key',
      path: [...path, key],
      known,
      nearest: nearest(key, known),
    }))
  }
  if (issue.code === 'custom') return [{ kind: 'rule', path, message: issue.message }]
  if (issue.code === 'invalid_key') {
    const record = unwrapped(schemaAt(root, path.slice(0, -1), value))
    const key = record instanceof z.ZodRecord ? record.keyType : undefined
    return [{ kind: 'invalid_key', path, expected: expectationOf(key) }]
  }
  // If a string became a list before it was checked, the path of an item leads to no value.
  const isTyped = issue.code.startsWith('invalid_') && issue.code !== 'invalid_format'
  if (found === undefined && isTyped) return [{ kind: 'missing', path }]
  if (issue.code === 'invalid_union') {
    return inUnion(issue, path, root, value) ?? [{ kind: 'type', ...mismatch }]
  }
  return [{ ...mismatch, ...mismatchOf(issue, schema, found) }]
}

type UnionIssue = Extract<Issue, { code: 'invalid_union' }>

/** The problems of the alternative that the value resembles; `undefined` if it resembles none. */
function inUnion(
  issue: UnionIssue,
  path: Path,
  root: Schema,
  value: unknown,
): Problem[] | undefined {
  const found = valueAt(value, path)
  const { discriminator } = issue as { readonly discriminator?: string }
  if (discriminator !== undefined && issue.errors.length === 0) {
    const { options = [] } = issue as { readonly options?: readonly unknown[] }
    const allowed = options.filter((option) => option !== undefined)
    const kind = typeof found === 'string' ? 'choice' : 'type'
    return [{ kind, path, allowed, expected: oneOf(allowed), isPrivate: false }]
  }
  const union = unwrapped(schemaAt(root, path, value))
  const options = union instanceof z.ZodUnion ? union.options : []
  const meant = options.findIndex((option) => hasShapeOf(option, found))
  return issue.errors[meant]?.flatMap((inner) => toProblems(inner, path, root, value))
}

function mismatchOf(issue: Issue, schema: Schema | undefined, found: unknown): Mismatch {
  if (issue.code === 'invalid_value') {
    const allowed = issue.values
    if (!allowed.some((one) => typeof one === typeof found)) return { kind: 'type' }
    const reason = noteOf(schema, 'reason')
    return { kind: 'choice', allowed, ...(reason === undefined ? {} : { reason }) }
  }
  if (issue.code === 'invalid_format') {
    return { kind: 'format', expected: noteOf(schema, 'format') ?? expectationOf(schema) }
  }
  if (issue.code !== 'too_small' && issue.code !== 'too_big') return { kind: 'type' }
  const side = issue.code === 'too_small' ? 'min' : 'max'
  const limit = issue.code === 'too_small' ? issue.minimum : issue.maximum
  const bound = { side, value: Number(limit), isInclusive: issue.inclusive !== false } as const
  if (issue.origin === 'string') return { kind: 'length', of: 'string', bound }
  if (issue.origin === 'array') return { kind: 'length', of: 'array', bound }
  return { kind: 'range', of: isInteger(schema) ? 'integer' : 'decimal', bound }
}
