/**
 * Errors as plain data for other threads, processes and machines. Errors of this library are
 * restored as instances of their class, others as an `Error` with the same names and fields.
 */

import { types } from 'node:util'
import { findErrorClass, listErrorClasses, messageOf, tryRead, withoutStack } from './errors.ts'
import { createJsonCopier, type JsonObject, tooLarge } from './json-value.ts'
import { errorTypeOf } from './task-errors.ts'

export type ErrorRecord =
  | { readonly isError: false; readonly value: unknown }
  | {
      readonly isError: true
      /** The constructor's name. */
      readonly type: string
      /** The classes of this library that the error belongs to, the most specific one first. */
      readonly lineage?: readonly string[]
      readonly name: string
      readonly message: string
      readonly stack: string
      readonly fields: JsonObject
      readonly errorFields?: Readonly<Record<string, ErrorRecord>>
      readonly cause?: ErrorRecord
      readonly errors?: readonly ErrorRecord[]
    }

const maxCauseDepth = 8
const maxErrors = 100
/** The maximum number of fields that are read from an error and its inner errors together. */
const maxFields = 10_000
const reservedFields = new Set(['name', 'message', 'stack', 'cause', 'errors', '__proto__'])

/** Converts any thrown value. Never throws. A value that is not an error is copied. */
export function toErrorRecord(thrown: unknown): ErrorRecord {
  const budget = { left: maxErrors, fieldsLeft: maxFields, copy: createJsonCopier() }
  return tryRead(() => createRecord(thrown, { depth: 0, budget })) ?? unreadable
}

const unreadable: ErrorRecord = Object.freeze({
  isError: true,
  type: 'Error',
  name: 'Error',
  message: messageOf(Object.create(null)),
  stack: '',
  fields: {},
})

interface RecordLimits {
  readonly depth: number
  readonly budget: {
    left: number
    fieldsLeft: number
    /** Shared by all fields, so that its limits hold for all of them together. */
    readonly copy: (value: unknown) => JsonObject[string]
  }
}

function createRecord(thrown: unknown, { depth, budget }: RecordLimits): ErrorRecord {
  budget.left--
  if (!isError(thrown)) return { isError: false, value: toCloneable(thrown, budget) }
  const part = (key: string): unknown => tryRead(() => (thrown as never)[key])
  const text = (key: string): string => {
    const value = part(key)
    return typeof value === 'string' ? value : ''
  }
  const inner = depth < maxCauseDepth ? { depth: depth + 1, budget } : null
  const lineage = tryRead(() => listErrorClasses(thrown)) ?? []
  const errors = inner === null ? null : recordErrors(part('errors'), inner)
  return {
    isError: true,
    type: errorTypeOf(thrown),
    ...(lineage.length === 0 ? {} : { lineage }),
    name: text('name'),
    message: text('message'),
    stack: text('stack'),
    ...copyFields(thrown, { inner, budget }, getterNames(lineage)),
    ...(inner === null || tryRead(() => 'cause' in thrown) !== true
      ? {}
      : { cause: createRecord(part('cause'), inner) }),
    ...(errors === null ? {} : { errors }),
  }
}

/** Reads the items one by one, because the list may be a proxy or override array methods. */
function recordErrors(errors: unknown, limits: RecordLimits): readonly ErrorRecord[] | null {
  if (tryRead(() => Array.isArray(errors)) !== true) return null
  const list = errors as { readonly length: unknown; readonly [index: number]: unknown }
  const length = tryRead(() => list.length)
  const records: ErrorRecord[] = []
  if (typeof length !== 'number') return records
  for (let at = 0; at < length && limits.budget.left > 0; at++) {
    const item = tryRead(() => list[at])
    records.push(createRecord(item, limits))
  }
  return records
}

/** The inverse of `toErrorRecord`. Never throws for a record that `toErrorRecord` returned. */
export function fromErrorRecord(record: ErrorRecord): unknown {
  if (!record.isError) return record.value
  const className = record.lineage?.find((name) => findErrorClass(name) !== undefined)
  const error =
    className === undefined ? createError(record) : createLibraryError(record, className)
  const define = (key: string, value: unknown, enumerable = false): void => {
    Object.defineProperty(error, key, { value, enumerable, configurable: true, writable: true })
  }
  if (className !== undefined) define('name', record.name, true)
  else if (record.name !== error.name) define('name', record.name)
  for (const [key, value] of Object.entries(record.fields)) define(key, value, true)
  for (const [key, value] of Object.entries(record.errorFields ?? {})) {
    define(key, fromErrorRecord(value), true)
  }
  define('stack', record.stack)
  if (record.cause !== undefined) define('cause', fromErrorRecord(record.cause))
  if (record.errors !== undefined) define('errors', record.errors.map(fromErrorRecord))
  return error
}

/** Returns a copy with changed messages and stacks, for example to replace paths in them. */
export function mapErrorTexts(record: ErrorRecord, map: (text: string) => string): ErrorRecord {
  if (!record.isError) return record
  const mapped = { ...record, message: map(record.message), stack: map(record.stack) }
  return mapInnerRecords(mapped, (inner) => mapErrorTexts(inner, map))
}

/** Returns a copy in which `map` has replaced all thrown values that are not errors. */
export function mapThrownValues(
  record: ErrorRecord,
  map: (value: unknown) => unknown,
): ErrorRecord {
  if (!record.isError) return { isError: false, value: map(record.value) }
  return mapInnerRecords(record, (inner) => mapThrownValues(inner, map))
}

function mapInnerRecords(
  record: ErrorRecord & { readonly isError: true },
  inner: (record: ErrorRecord) => ErrorRecord,
): ErrorRecord {
  const { cause, errors, errorFields } = record
  const fields = Object.entries(errorFields ?? {}).map(([key, value]) => [key, inner(value)])
  return {
    ...record,
    ...(cause === undefined ? {} : { cause: inner(cause) }),
    ...(errors === undefined ? {} : { errors: errors.map(inner) }),
    ...(errorFields === undefined ? {} : { errorFields: Object.fromEntries(fields) }),
  }
}

const isError = (thrown: unknown): thrown is Error =>
  types.isNativeError(thrown) || tryRead(() => thrown instanceof Error) === true

function toCloneable(thrown: unknown, { copy }: RecordLimits['budget']): unknown {
  if (typeof thrown === 'function' || typeof thrown === 'symbol') return messageOf(thrown)
  try {
    return structuredClone(thrown)
  } catch {
    return copy(thrown)
  }
}

function copyFields(
  error: Error,
  { inner, budget }: { readonly inner: RecordLimits | null } & Pick<RecordLimits, 'budget'>,
  computed: readonly string[],
): { fields: JsonObject; errorFields?: Readonly<Record<string, ErrorRecord>> } {
  const fields: Record<string, JsonObject[string]> = {}
  const errorFields: Record<string, ErrorRecord> = {}
  for (const key of [...(tryRead(() => Object.keys(error)) ?? []), ...computed]) {
    if (budget.fieldsLeft-- <= 0) {
      if (!reservedFields.has(key)) fields[key] = tooLarge
      break
    }
    const value = tryRead(() => (error as unknown as Record<string, unknown>)[key])
    const isPlain = value !== undefined && typeof value !== 'function' && typeof value !== 'symbol'
    if (!isPlain || reservedFields.has(key)) continue
    if (!isError(value)) fields[key] = budget.copy(value)
    else if (inner !== null && budget.left > 0) errorFields[key] = createRecord(value, inner)
  }
  return Object.keys(errorFields).length === 0 ? { fields } : { fields, errorFields }
}

type ErrorClass = new (message: string) => Error

const builtInErrors = new Map<string, ErrorClass>([
  ['unknown', Error],
  ...[Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError].map(
    (one) => [one.name, one] as const,
  ),
])

/** A DOMException is created with its name, from which its `code` is derived. */
function createError({ type, message, name }: ErrorRecord & { readonly isError: true }): Error {
  if (type === 'DOMException') return new DOMException(message, name)
  return new (builtInErrors.get(type) ?? createSubclass(type, Error))(message)
}

/** Does not call the constructor of the class `own`, which may need other arguments. */
function createLibraryError(
  { type, message }: { type: string; message: string },
  own: string,
): Error {
  const known = findErrorClass(own) as unknown as ErrorClass
  const { prototype } = own === type ? known : createSubclass(type, known)
  return Object.setPrototypeOf(
    withoutStack(() => new Error(message)),
    prototype as Error,
  ) as Error
}

const maxSubclasses = 1000
const subclasses = new Map<string, ErrorClass>()

/** Creates a class with the name of the sender's class, which may not exist in this process. */
function createSubclass(type: string, base: ErrorClass): ErrorClass {
  const key = `${base.name} ${type}`
  const known = subclasses.get(key)
  if (known !== undefined) return known
  const added = { [type]: class extends base {} }[type] ?? base
  if (subclasses.size < maxSubclasses) subclasses.set(key, added)
  return added
}

/** The names of the class's getters. A restored error has their values as properties. */
function getterNames([name = '']: readonly string[]): readonly string[] {
  const members = Object.getOwnPropertyDescriptors(findErrorClass(name)?.prototype ?? {})
  return Object.entries(members).flatMap(([key, member]) => ('value' in member ? [] : [key]))
}
