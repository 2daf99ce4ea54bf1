/**
 * Event types that applications define at run time, with namespaced names and inferred field
 * types.
 */

import { ValueError } from '../foundation/errors.ts'
import { expectObject, invalid } from '../foundation/options.ts'
import {
  isEvent,
  baseFieldNames,
  createEventClass,
  type EventClass,
  type EventSchema,
  type FieldSpec,
  type FieldType,
} from './event.ts'
import type { JsonValue } from '../foundation/json-value.ts'
import { checkField } from './make-event.ts'

type ValueOf<T extends FieldType> = {
  float: number
  int: number
  str: string
  bool: boolean
  any: JsonValue
}[T]

/** The type of a field, or `[type, default]`. */
export type FieldDeclaration = {
  [T in FieldType]: T | readonly [T, ValueOf<T>]
}[FieldType]

/** An event type's own fields, by name. */
export type FieldDeclarations = { readonly [name: string]: FieldDeclaration }

type TypeOf<D> = D extends FieldType
  ? D
  : D extends readonly [infer T extends FieldType, unknown]
    ? T
    : never

/** The fields' types, as inferred from their declarations. */
export type DeclaredFields<D extends FieldDeclarations> = {
  -readonly [K in keyof D]: ValueOf<TypeOf<D[K]>>
}

const fallbacks: Record<FieldType, JsonValue> = {
  float: 0,
  int: 0,
  str: '',
  bool: false,
  any: null,
}
const namePattern = /^[\w-]+(?:\.[\w-]+)+$/
const maxNameLength = 200
const fieldPattern = /^[A-Za-z_]\w*$/
/** Names of common fields, keys that the checkpoint adds to a line, and `__proto__`. */
const reserved: ReadonlySet<string> = new Set([
  ...baseFieldNames,
  'section',
  'name',
  'trace_id',
  'span_id',
  '__proto__',
])

const defined = new Map<string, { eventClass: unknown; schema: EventSchema; shape: string }>()

/**
 * Defines a custom event type, and returns its class. Repeating a definition returns the same
 * class. Defining the same name with other fields throws a `ValueError`.
 *
 * @example
 * const LineTimer = defineEvent('myapp.LineTimer', { label: 'str', ms: ['float', 0] })
 * const fields = { session_id: session.id, backend: 'myapp', label: 'load', ms: 12.5 }
 * telemetry.emit(makeEvent(LineTimer, fields))
 */
export function defineEvent<const D extends FieldDeclarations, const Name extends string>(
  name: Name,
  fields: D,
): EventClass<Name, DeclaredFields<D>> {
  checkName(name)
  const schema = toSchema(name, fields)
  const shape = shapeOf(schema)
  const known = defined.get(name)
  if (known === undefined) {
    const eventClass = createEventClass<Name, DeclaredFields<D>>(name, schema)
    defined.set(name, { eventClass, schema, shape })
    return eventClass
  }
  if (known.shape === shape) return known.eventClass as EventClass<Name, DeclaredFields<D>>
  const [expected, got] = [toDeclaration(known.schema), toDeclaration(schema)]
  throw new ValueError(`Event "${name}" is already defined with ${expected}, not with ${got}`, {
    code: 'EventRedefinitionError',
    field: 'name',
    expected,
    got,
    hint: 'Use another name, or the same fields.',
  })
}

/** Equal for schemas that differ only in the order of their fields. */
function shapeOf(schema: EventSchema): string {
  return JSON.stringify(Object.fromEntries(Object.entries(schema).toSorted(byName)))
}

/** Prints a schema as a declaration, such as `{ label: 'str', step: ['int', -1] }`. */
function toDeclaration(schema: EventSchema): string {
  const fields = Object.entries(schema).map(([field, { type, fallback }]) => {
    const isUsual = JSON.stringify(fallback) === JSON.stringify(fallbacks[type])
    return `${field}: ${isUsual ? `'${type}'` : `['${type}', ${JSON.stringify(fallback)}]`}`
  })
  return fields.length === 0 ? '{}' : `{ ${fields.join(', ')} }`
}

const byName = ([a]: [string, FieldSpec], [b]: [string, FieldSpec]): number => (a < b ? -1 : 1)

function checkName(name: unknown): void {
  if (typeof name === 'string' && name.length <= maxNameLength && namePattern.test(name)) return
  throw invalid('name', 'a namespaced name such as "myapp.LineTimer"', name)
}

function toSchema(name: string, fields: unknown): EventSchema {
  const schema: Record<string, FieldSpec> = {}
  for (const [field, declaration] of Object.entries(expectObject('fields', fields))) {
    if (reserved.has(field)) {
      throw invalid(field, `a name that no event already has (in "${name}")`, field)
    }
    if (!fieldPattern.test(field)) throw invalid(field, 'a field name of letters and digits', field)
    schema[field] = toSpec(field, declaration)
  }
  return schema
}

function toSpec(field: string, declaration: unknown): FieldSpec {
  const parts: unknown[] = Array.isArray(declaration) ? declaration : [declaration]
  if (parts.length > 2) throw invalid(field, 'a type or [type, default]', declaration)
  const [type, fallback] = parts
  if (typeof type !== 'string' || !Object.hasOwn(fallbacks, type)) {
    throw invalid(field, 'one of "float", "int", "str", "bool", "any"', type)
  }
  const spec: FieldSpec = {
    type: type as FieldType,
    nullable: false,
    fallback: fallbacks[type as FieldType],
  }
  if (fallback === undefined) return spec
  return { ...spec, fallback: checkField(`${field}'s default`, spec, fallback) as JsonValue }
}

/** An event as plain data, from which another thread or process can recreate it. */
export interface EventRecord {
  readonly eventType: string
  readonly schema: EventSchema
  /** The event's own fields, `event_time` and `attributes`. */
  readonly fields: Readonly<Record<string, unknown>>
}

/** Throws a `ValueError` for a value that is not an event of a namespaced class. */
export function toEventRecord(event: unknown): EventRecord {
  const eventClass = isEvent(event) ? (event.constructor as unknown as EventClass) : null
  if (eventClass === null || !namePattern.test(eventClass.eventType)) {
    throw invalid('event', 'an event of `makeEvent`, of a class of `defineEvent`', event)
  }
  const { eventType, schema } = eventClass
  const names = [...Object.keys(schema), 'event_time', 'attributes']
  const values = event as Readonly<Record<string, unknown>>
  return {
    eventType,
    schema,
    fields: Object.fromEntries(names.map((name) => [name, values[name]])),
  }
}

/** The class of a received event. Created from the schema if only the sender has defined it. */
export function eventClassOf({
  eventType,
  schema,
}: Pick<EventRecord, 'eventType' | 'schema'>): EventClass {
  const known = defined.get(eventType)
  if (known !== undefined && known.shape === shapeOf(schema)) return known.eventClass as EventClass
  return createEventClass(eventType, schema)
}
