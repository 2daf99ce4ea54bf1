/** Problems of a value as plain data. Configuration, requests and messages format them as text. */

import { isPlainObject } from '../../foundation/json-value.ts'
import { findNearest } from '../../foundation/options.ts'
import {
  describeExpected,
  hasShapeOf,
  isInteger,
  isPrivate,
  listKeys,
  getNote,
  formatChoices,
  type Path,
  type Schema,
  getSchemaAt,
  unwrap,
  getValueAt,
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

type Mismatch =
  /** If the value should select an alternative of a union, `allowed` lists the valid values. */
  | { readonly kind: 'type'; readonly allowed?: readonly unknown[] }
  | { readonly kind: 'format'; readonly expected: string }
  | { readonly kind: 'choice'; readonly allowed: readonly unknown[]; readonly reason?: string }
  | { readonly kind: 'length'; readonly of: 'string' | 'array'; readonly bound: Bound }
  | { readonly kind: 'range'; readonly of: 'integer' | 'decimal'; readonly bound: Bound }

export interface Bound {
  readonly side: 'min' | 'max'
  readonly value: number
  readonly isInclusive: boolean
}

/** A schema is compiled at its first use, because compiling takes milliseconds. */
const validators = new WeakMap<Schema, Schema>()

/** Checks a value without copying or changing it. */
export function isValid<S extends Schema>(schema: S, value: unknown): value is z.input<S> {
  let compiled = validators.get(schema)
  if (compiled === undefined) {
    compiled = z.compile(schema)
    validators.set(schema, compiled)
  }
  return z.validate(compiled, value)
}

const maxListedItems = 32

/** Returns a copy in which every long list ends with its first invalid item. */
function truncateLongLists(schema: Schema, value: unknown): unknown {
  const inner = unwrap(schema)
  if (inner instanceof z.ZodUnion) {
    const meantOption = (inner.options as Schema[]).find((option) => hasShapeOf(option, value))
    return meantOption === undefined ? value : truncateLongLists(meantOption, value)
  }
  if (inner instanceof z.ZodArray && Array.isArray(value)) {
    const item = inner.element
    const items = value as readonly unknown[]
    const firstInvalid =
      items.length > maxListedItems ? items.findIndex((one) => !isValid(item, one)) : -1
    const kept = firstInvalid === -1 ? items : items.slice(0, firstInvalid + 1)
    return kept.map((one) => truncateLongLists(item, one))
  }
  if (!(inner instanceof z.ZodObject) || !isPlainObject(value)) return value
  const fields = Object.entries(inner.shape as Record<string, Schema>).filter(([name]) =>
    Object.hasOwn(value, name),
  )
  const cut = fields.map(([name, field]) => {
    return [name, truncateLongLists(field, value[name])]
  })
  return { ...value, ...Object.fromEntries(cut) }
}

/** Describes only the first invalid item of a long list, because more would take seconds. */
export const findFirstProblems = (schema: Schema, value: unknown): Problem[] =>
  findProblems(schema, truncateLongLists(schema, value))

export function findProblems(schema: Schema, value: unknown): Problem[] {
  const result = z.safeParse(schema, value)
  if (result.success) return []
  return result.error.issues
    .filter((issue, at, all) => !isDuplicate(issue, all[at + 1]))
    .flatMap((issue) => toProblems(issue, [], schema, value))
}

/** An unsafe integer, for example, causes two issues if it also exceeds its bound. */
const isDuplicate = (issue: Issue, next: Issue | undefined): boolean =>
  'note' in issue && next?.code === issue.code && next.path.join() === issue.path.join()

type Issue = z.core.$ZodIssue

function toProblems(issue: Issue, prefix: Path, root: Schema, value: unknown): Problem[] {
  const path = [...prefix, ...(issue.path as Path)]
  const found = getValueAt(value, path)
  const schema = getSchemaAt(root, path, value)
  const mismatch = { path, expected: describeExpected(schema), isPrivate: isPrivate(schema) }
  if (issue.code === 'unrecognized_keys') {
    const known = schema === undefined ? [] : listKeys(schema, found)
    return issue.keys.map((key) => ({
      kind: 'unknown_key',
      path: [...path, key],
      known,
      nearest: findNearest(key, known),
    }))
  }
  if (issue.code === 'custom') return [{ kind: 'rule', path, message: issue.message }]
  if (issue.code === 'invalid_key') {
    const record = unwrap(getSchemaAt(root, path.slice(0, -1), value))
    const key = record instanceof z.ZodRecord ? record.keyType : undefined
    return [{ kind: 'invalid_key', path, expected: describeExpected(key) }]
  }
  // A value is missing only if the issue is about its type. `found` is also `undefined` for an item
  // of a list that the schema has made from a string.
  const isTyped = issue.code.startsWith('invalid_') && issue.code !== 'invalid_format'
  if (found === undefined && isTyped) return [{ kind: 'missing', path }]
  if (issue.code === 'invalid_union') {
    return toUnionProblems(issue, path, root, value) ?? [{ kind: 'type', ...mismatch }]
  }
  return [{ ...mismatch, ...toMismatch(issue, schema, found) }]
}

type UnionIssue = Extract<Issue, { code: 'invalid_union' }>

function toUnionProblems(
  issue: UnionIssue,
  path: Path,
  root: Schema,
  value: unknown,
): Problem[] | undefined {
  const found = getValueAt(value, path)
  const { discriminator } = issue as { readonly discriminator?: string }
  if (discriminator !== undefined && issue.errors.length === 0) {
    const { options = [] } = issue as { readonly options?: readonly unknown[] }
    const allowed = options.filter((option) => option !== undefined)
    const kind = typeof found === 'string' ? 'choice' : 'type'
    return [{ kind, path, allowed, expected: formatChoices(allowed), isPrivate: false }]
  }
  const union = unwrap(getSchemaAt(root, path, value))
  const options = union instanceof z.ZodUnion ? union.options : []
  const meant = options.findIndex((option) => hasShapeOf(option, found))
  return issue.errors[meant]?.flatMap((inner) => toProblems(inner, path, root, value))
}

function toMismatch(issue: Issue, schema: Schema | undefined, found: unknown): Mismatch {
  if (issue.code === 'invalid_value') {
    const allowed = issue.values
    if (!allowed.some((one) => typeof one === typeof found)) return { kind: 'type' }
    const reason = getNote(schema, 'reason')
    return { kind: 'choice', allowed, ...(reason === undefined ? {} : { reason }) }
  }
  if (issue.code === 'invalid_format') {
    return { kind: 'format', expected: getNote(schema, 'format') ?? describeExpected(schema) }
  }
  if (issue.code !== 'too_small' && issue.code !== 'too_big') return { kind: 'type' }
  const side = issue.code === 'too_small' ? 'min' : 'max'
  const limit = issue.code === 'too_small' ? issue.minimum : issue.maximum
  const bound = { side, value: Number(limit), isInclusive: issue.inclusive !== false } as const
  if (issue.origin === 'string') return { kind: 'length', of: 'string', bound }
  if (issue.origin === 'array') return { kind: 'length', of: 'array', bound }
  return { kind: 'range', of: isInteger(schema) ? 'integer' : 'decimal', bound }
}
