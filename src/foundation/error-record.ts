/**
 * Errors as plain data, to be sent to threads, processes, launchers and other machines. Errors of
 * this library are restored as their class, with their fields; any other as an `Error` with the
 * constructor name, name, message, stack, cause and fields of the original.
 */

import { types } from 'node:util'
import {
  BackendError,
  CheckpointError,
  InferenceError,
  lineageIn,
  messageOf,
  PoisonTaskError,
  reviveError,
  StateError,
  TimeoutError,
  TuttiError,
  ValueError,
  WorkerLostError,
} from './errors.ts'
import { createJsonCopier, type JsonObject, tooLarge } from './json-value.ts'
import {
  ArgumentNotSerializableError,
  CwdNotFoundError,
  errorTypeOf,
  ExecutableFailedError,
  ExecutableNotFoundError,
  ExecutableNotPermittedError,
  OutputFileError,
  ResultNotSerializableError,
  SpawnError,
  TaskCanceledError,
  TaskFailedError,
  TaskImportError,
} from './task-errors.ts'

export type ErrorRecord =
  | { readonly isError: false; readonly value: unknown }
  | {
      readonly isError: true
      /** The constructor's name. */
      readonly type: string
      /** For an error of this library: the names of its class and superclasses. */
      readonly lineage?: readonly string[]
      readonly name: string
      readonly message: string
      readonly stack: string
      readonly fields: JsonObject
      /** Fields that hold errors. */
      readonly errorFields?: Readonly<Record<string, ErrorRecord>>
      readonly cause?: ErrorRecord
      readonly errors?: readonly ErrorRecord[]
    }

const deepestCause = 8
const maxErrors = 100
/** Of an error and those inside of it, looked at and not only kept. */
const maxFields = 10_000
const carriedOtherwise = new Set(['name', 'message', 'stack', 'cause', 'errors', '__proto__'])

/** Never throws. A thrown value that is not an error is kept if it can be cloned. */
export function toErrorRecord(thrown: unknown): ErrorRecord {
  const budget = { left: maxErrors, fieldsLeft: maxFields, copy: createJsonCopier() }
  return attempt(() => recordOf(thrown, { depth: 0, budget })) ?? unreadable
}

const unreadable: ErrorRecord = Object.freeze({
  isError: true,
  type: 'Error',
  name: 'Error',
  message: messageOf(Object.create(null)),
  stack: '',
  fields: {},
})

/** The depth of an error within the outermost one, and how much more may be copied. */
interface RecordLimits {
  readonly depth: number
  readonly budget: {
    /** How many errors may still be copied. */
    left: number
    fieldsLeft: number
    /** Limits all fields together: lists of user code may claim to be endless. */
    readonly copy: (value: unknown) => JsonObject[string]
  }
}

function recordOf(thrown: unknown, { depth, budget }: RecordLimits): ErrorRecord {
  budget.left--
  if (!isError(thrown)) return { isError: false, value: toCloneable(thrown, budget) }
  const part = (key: string): unknown => attempt(() => (thrown as never)[key])
  const text = (key: string): string => {
    const value = part(key)
    return typeof value === 'string' ? value : ''
  }
  const inner = depth < deepestCause ? { depth: depth + 1, budget } : null
  const found = attempt(() => lineageIn(thrown)) ?? null
  const names = found === null ? null : (attempt(() => Array.from(found, String)) ?? null)
  const errors = inner === null ? null : errorsIn(part('errors'), inner)
  return {
    isError: true,
    type: errorTypeOf(thrown),
    ...(names === null ? {} : { lineage: names }),
    name: text('name'),
    message: text('message'),
    stack: text('stack'),
    ...fieldsOf(thrown, { inner, budget }, ownFields(thrown, names)),
    ...(inner === null || attempt(() => 'cause' in thrown) !== true
      ? {}
      : { cause: recordOf(part('cause'), inner) }),
    ...(errors === null ? {} : { errors }),
  }
}

/** Reads the items one by one: a list of user code may be a proxy or override methods. */
function errorsIn(errors: unknown, limits: RecordLimits): readonly ErrorRecord[] | null {
  if (attempt(() => Array.isArray(errors)) !== true) return null
  const list = errors as { readonly length: unknown; readonly [index: number]: unknown }
  const length = attempt(() => list.length)
  const records: ErrorRecord[] = []
  if (typeof length !== 'number') return records
  for (let at = 0; at < length && limits.budget.left > 0; at++) {
    records.push(
      recordOf(
        attempt(() => list[at]),
        limits,
      ),
    )
  }
  return records
}

/** The inverse of `toErrorRecord`; never throws for its results. */
export function fromErrorRecord(record: ErrorRecord): unknown {
  if (!record.isError) return record.value
  const { message } = record
  const own = record.lineage === undefined ? null : ownClass(record.lineage)
  const error = own === null ? createError(record) : reviveError(own, record.lineage ?? [], message)
  const define = (key: string, value: unknown, enumerable = false): void => {
    Object.defineProperty(error, key, { value, enumerable, configurable: true, writable: true })
  }
  if (own !== null) define('name', record.name, true)
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

/** A copy with changed messages and stacks, for instance to replace paths in them. */
export function mapErrorTexts(record: ErrorRecord, map: (text: string) => string): ErrorRecord {
  if (!record.isError) return record
  const changed = { ...record, message: map(record.message), stack: map(record.stack) }
  return mapInnerRecords(changed, (inner) => mapErrorTexts(inner, map))
}

/** A copy in which thrown values that are not errors are changed. */
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
  return {
    ...record,
    ...(cause === undefined ? {} : { cause: inner(cause) }),
    ...(errors === undefined ? {} : { errors: errors.map(inner) }),
    ...(errorFields === undefined
      ? {}
      : {
          errorFields: Object.fromEntries(
            Object.entries(errorFields).map(([key, value]) => [key, inner(value)]),
          ),
        }),
  }
}

function attempt<T>(read: () => T): T | undefined {
  try {
    return read()
  } catch {
    return undefined
  }
}

const isError = (thrown: unknown): thrown is Error =>
  types.isNativeError(thrown) || attempt(() => thrown instanceof Error) === true

function toCloneable(thrown: unknown, { copy }: RecordLimits['budget']): unknown {
  if (typeof thrown === 'function' || typeof thrown === 'symbol') return messageOf(thrown)
  try {
    return structuredClone(thrown)
  } catch {
    return copy(thrown)
  }
}

function fieldsOf(
  error: Error,
  { inner, budget }: { readonly inner: RecordLimits | null } & Pick<RecordLimits, 'budget'>,
  derived: Readonly<Record<string, unknown>>,
): { fields: JsonObject; errorFields?: Readonly<Record<string, ErrorRecord>> } {
  const fields: Record<string, JsonObject[string]> = {}
  const errorFields: Record<string, ErrorRecord> = {}
  for (const key of attempt(() => Object.keys(error)) ?? []) {
    if (budget.fieldsLeft-- <= 0) {
      if (!carriedOtherwise.has(key)) fields[key] = tooLarge
      break
    }
    const value = attempt(() => (error as unknown as Record<string, unknown>)[key])
    const isPlain = value !== undefined && typeof value !== 'function' && typeof value !== 'symbol'
    if (!isPlain || carriedOtherwise.has(key)) continue
    if (!isError(value)) fields[key] = budget.copy(value)
    else if (inner !== null && budget.left > 0) errorFields[key] = recordOf(value, inner)
  }
  for (const [key, value] of Object.entries(derived)) fields[key] = budget.copy(value)
  return Object.keys(errorFields).length === 0 ? { fields } : { fields, errorFields }
}

type ErrorClass = new (message: string) => Error

const builtIn: readonly ErrorClass[] = [
  EvalError,
  RangeError,
  ReferenceError,
  SyntaxError,
  TypeError,
  URIError,
]
const classes = new Map<string, ErrorClass>([
  ['Error', Error],
  ['unknown', Error],
  ...builtIn.map((one) => [one.name, one] as const),
])
const maxClasses = 1000

/** The `code` of a DOMException is derived from its name. */
function createError({ type, message, name }: ErrorRecord & { readonly isError: true }): Error {
  if (type === 'DOMException') return new DOMException(message, name)
  return new (classNamed(type))(message)
}

/** The sender's class may not exist here: a class with the same name replaces it. */
function classNamed(type: string): ErrorClass {
  const known = classes.get(type)
  if (known !== undefined) return known
  const standIn = { [type]: class extends Error {} }[type] ?? Error
  if (classes.size < maxClasses) classes.set(type, standIn)
  return standIn
}

type OwnClass = { readonly prototype: TuttiError }

/** How errors of a class are sent and received. */
interface Registered {
  readonly errorClass: OwnClass
  readonly derivedFields: (error: TuttiError) => Readonly<Record<string, unknown>>
}

const none = Object.freeze({})
const ownClasses = new Map<string, Registered>(
  [
    TuttiError,
    ValueError,
    StateError,
    TimeoutError,
    WorkerLostError,
    PoisonTaskError,
    BackendError,
    InferenceError,
    CheckpointError,
    TaskFailedError,
    ExecutableFailedError,
    TaskCanceledError,
    ExecutableNotFoundError,
    ExecutableNotPermittedError,
    CwdNotFoundError,
    OutputFileError,
    SpawnError,
    ArgumentNotSerializableError,
    ResultNotSerializableError,
    TaskImportError,
  ].map((errorClass) => [errorClass.name, { errorClass, derivedFields: () => none }]),
)

/**
 * Lets errors of a class outside of this layer be restored as that class, in every process that has
 * loaded it. They are created without their constructor, so what getters compute from private
 * fields is sent as `derivedFields`, which become own properties of the restored error.
 */
export function registerErrorClass<T extends TuttiError>(
  errorClass: { readonly name: string; readonly prototype: T },
  derivedFields: (error: T) => Readonly<Record<string, unknown>> = () => none,
): void {
  ownClasses.set(errorClass.name, {
    errorClass,
    derivedFields: (error) =>
      error instanceof (errorClass as never) ? derivedFields(error as T) : none,
  })
}

/** The derived fields of the nearest registered class. */
function ownFields(
  error: Error,
  names: readonly string[] | null,
): Readonly<Record<string, unknown>> {
  const registered = names?.map((one) => ownClasses.get(one)).find((one) => one !== undefined)
  return attempt(() => registered?.derivedFields(error as TuttiError)) ?? none
}

/** The class itself, or a subclass of that name of the nearest class that is registered here. */
function ownClass(names: readonly string[]): OwnClass | null {
  const [name = ''] = names
  const base = names.map((one) => ownClasses.get(one)?.errorClass).find((one) => one !== undefined)
  if (base === undefined) return null
  if (base === ownClasses.get(name)?.errorClass) return base
  const key = names.join('>')
  const known = ownSubclasses.get(key)
  if (known !== undefined) return known
  const parent = base as unknown as new () => TuttiError
  const added = { [name]: class extends parent {} }[name] ?? base
  if (ownSubclasses.size < maxClasses) ownSubclasses.set(key, added)
  return added
}

const ownSubclasses = new Map<string, OwnClass>()
