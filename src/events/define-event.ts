/** Event types that applications define at run time, with inferred field types. */

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

type FieldValue<T extends FieldType> = {
  float: number
  int: number
  str: string
  bool: boolean
  any: JsonValue
}[T]

/** The type of a field, or `[type, default]`. */
export type FieldDeclaration = {
  [T in FieldType]: T | readonly [T, FieldValue<T>]
}[FieldType]

/** An event type's own fields, by name. */
export type FieldDeclarations = { readonly [name: string]: FieldDeclaration }

type DeclaredType<D> = D extends FieldType
  ? D
  : D extends readonly [infer T extends FieldType, unknown]
    ? T
    : never

/** The types of the fields, as inferred from their declarations. */
export type DeclaredFields<D extends FieldDeclarations> = {
  -readonly [K in keyof D]: FieldValue<DeclaredType<D[K]>>
}

const defaultValues: Record<FieldType, JsonValue> = {
  float: 0,
  int: 0,
  str: '',
  bool: false,
  any: null,
}
const namePattern = /^[\w-]+(?:\.[\w-]+)+$/
const maxNameLength = 200
const fieldPattern = /^[A-Za-z_]\w*$/
/** Names that fields cannot have: the common fields, keys of checkpoint lines, and `__proto__`. */
const reservedNames: ReadonlySet<string> = new Set([
  ...baseFieldNames,
  'section',
  'name',
  'trace_id',
  'span_id',
  '__proto__',
])

const definedEvents = new Map<string, { eventClass: unknown; schema: EventSchema; shape: string }>()

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
  expectEventName(name)
  const schema = toSchema(name, fields)
  const shape = schemaKey(schema)
  const known = definedEvents.get(name)
  if (known === undefined) {
    const eventClass = createEventClass<Name, DeclaredFields<D>>(name, schema)
    definedEvents.set(name, { eventClass, schema, shape })
    return eventClass
  }
  if (known.shape === shape) return known.eventClass as EventClass<Name, DeclaredFields<D>>
  const [expected, got] = [printSchema(known.schema), printSchema(schema)]
  throw new ValueError(`Event "${name}" is already defined with ${expected}, not with ${got}`, {
    code: 'EventRedefinitionError',
    field: 'name',
    expected,
    got,
    hint: 'Use another name, or the same fields.',
  })
}

/** Returns a key that does not depend on the order of the fields. */
function schemaKey(schema: EventSchema): string {
  const byName = ([a]: [string, FieldSpec], [b]: [string, FieldSpec]): number => (a < b ? -1 : 1)
  return JSON.stringify(Object.entries(schema).toSorted(byName))
}

/** Prints a schema as a declaration, such as `{ label: 'str', step: ['int', -1] }`. */
function printSchema(schema: EventSchema): string {
  const fields = Object.entries(schema).map(([field, { type, fallback }]) => {
    const isDefault = JSON.stringify(fallback) === JSON.stringify(defaultValues[type])
    return `${field}: ${isDefault ? `'${type}'` : `['${type}', ${JSON.stringify(fallback)}]`}`
  })
  return fields.length === 0 ? '{}' : `{ ${fields.join(', ')} }`
}

function expectEventName(name: unknown): void {
  if (typeof name === 'string' && name.length <= maxNameLength && namePattern.test(name)) return
  throw invalid('name', 'a namespaced name such as "myapp.LineTimer"', name)
}

function toSchema(name: string, fields: unknown): EventSchema {
  const schema: Record<string, FieldSpec> = {}
  for (const [field, declaration] of Object.entries(expectObject('fields', fields))) {
    if (reservedNames.has(field)) {
      throw invalid(field, `a name that no event already has (in "${name}")`, field)
    }
    if (!fieldPattern.test(field)) throw invalid(field, 'a field name of letters and digits', field)
    schema[field] = toFieldSpec(field, declaration)
  }
  return schema
}

function toFieldSpec(field: string, declaration: unknown): FieldSpec {
  const parts: unknown[] = Array.isArray(declaration) ? declaration : [declaration]
  if (parts.length > 2) throw invalid(field, 'a type or [type, default]', declaration)
  const [type, fallback] = parts
  if (typeof type !== 'string' || !Object.hasOwn(defaultValues, type)) {
    throw invalid(field, 'one of "float", "int", "str", "bool", "any"', type)
  }
  const spec: FieldSpec = {
    type: type as FieldType,
    nullable: false,
    fallback: defaultValues[type as FieldType],
  }
  if (fallback === undefined) return spec
  return { ...spec, fallback: checkField(`${field}'s default`, spec, fallback) as JsonValue }
}

/** An event as plain data, which another thread or process can turn into an event again. */
export interface EventRecord {
  readonly eventType: string
  readonly schema: EventSchema
  /** The fields of the schema, `event_time` and `attributes`. */
  readonly fields: Readonly<Record<string, unknown>>
}

/**
 * Converts an event to plain data. Throws a `ValueError` for a value that is not an event of a
 * namespaced class.
 */
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

/** Returns the class of a received event, or creates it if only the sender has defined it. */
export function resolveEventClass({
  eventType,
  schema,
}: Pick<EventRecord, 'eventType' | 'schema'>): EventClass {
  const known = definedEvents.get(eventType)
  if (known !== undefined && known.shape === schemaKey(schema))
    return known.eventClass as EventClass
  return createEventClass(eventType, schema)
}
