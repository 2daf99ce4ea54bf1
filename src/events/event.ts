/** The base of all events: frozen, flat objects with the same field names as in the file. */

import type { Clock } from '../foundation/clock.ts'
import { newUuid } from '../foundation/ids.ts'
import { emptyAttributes, type JsonObject, type JsonValue } from '../foundation/json-value.ts'

/** The fields that every event has, in the order in which they are written. */
export interface BaseFields {
  /** UUID4 hex, unique per event. */
  readonly event_id: string
  /** When the event happened, in wall-clock seconds. */
  readonly event_time: number
  /** When the event was put on the bus, in wall-clock seconds. */
  readonly emit_time: number
  readonly session_id: string
  /** The backend's name; `""` on TaskCreated, which precedes routing. */
  readonly backend: string
  /** `null` for session-level events. */
  readonly task_id: string | null
  /** Host name or worker address; `null` if not applicable. */
  readonly node_id: string | null
  readonly attributes: JsonObject
}

/**
 * The common part of all events. Create instances with `makeEvent`; they are deeply frozen. The
 * fields use `declare`, so that the order of assignment in the constructor is the order in which
 * they are written.
 */
export abstract class BaseEvent implements BaseFields {
  declare readonly event_id: string
  declare readonly event_type: string
  declare readonly event_time: number
  declare readonly emit_time: number
  declare readonly session_id: string
  declare readonly backend: string
  declare readonly task_id: string | null
  declare readonly node_id: string | null
  declare readonly attributes: JsonObject

  constructor(eventType: string, fields: TrustedFields, now: number) {
    const happened = fields.event_time ?? now
    this.event_id = newUuid()
    this.event_type = eventType
    this.event_time = happened
    this.emit_time = now < happened ? happened : now
    this.session_id = fields.session_id
    this.backend = fields.backend
    this.task_id = fields.task_id ?? null
    this.node_id = fields.node_id ?? null
    this.attributes = fields.attributes ?? emptyAttributes
  }
}

/** `false` also for a revoked proxy, for which `instanceof` throws. */
export function isEvent(value: unknown): value is BaseEvent {
  try {
    return value instanceof BaseEvent
  } catch {
    return false
  }
}

export const baseFieldNames = [
  'event_id',
  'event_type',
  'event_time',
  'emit_time',
  'session_id',
  'backend',
  'task_id',
  'node_id',
  'attributes',
] as const

/** The type of a field; `any` accepts every JSON value. */
export type FieldType = 'float' | 'int' | 'str' | 'bool' | 'any'

/** The declaration of a field that is not one of the common fields. */
export interface FieldSpec {
  readonly type: FieldType
  readonly nullable: boolean
  readonly fallback: JsonValue
  /** The range of a number. */
  readonly min?: number
  readonly max?: number
}

/** The fields of an event class by name, without the common fields. */
export type EventSchema = { readonly [field: string]: FieldSpec }

/**
 * A class of events. Its name is the `event_type`; its schema lists all fields but the common ones.
 */
export interface EventClass<Name extends string = string, Fields extends object = object> {
  new (
    fields: TrustedFields & Fields,
    now: number,
  ): BaseEvent & { readonly event_type: Name } & Readonly<Fields>
  readonly name: string
  readonly eventType: Name
  readonly schema: EventSchema
}

/** Creates the class for an event type. `schema` lists the fields besides the common ones. */
export function createEventClass<const Name extends string, Fields extends object = object>(
  name: Name,
  schema: EventSchema = {},
): EventClass<Name, Fields> {
  const extras = Object.keys(schema)
  class DefinedEvent extends BaseEvent {
    static readonly eventType = name
    static readonly schema = Object.freeze(schema)
    declare readonly event_type: Name

    constructor(fields: TrustedFields & Fields, now: number) {
      super(name, fields, now)
      const target = this as Record<string, unknown>
      for (const key of extras) target[key] = (fields as Record<string, unknown>)[key]
      Object.freeze(this)
    }
  }
  Object.defineProperty(DefinedEvent, 'name', { value: name })
  return DefinedEvent as unknown as EventClass<Name, Fields>
}

/** The common fields of an event that the library creates. Unlike `makeEvent`, not checked. */
export interface TrustedFields {
  readonly session_id: string
  readonly backend: string
  readonly event_time?: number
  readonly task_id?: string | null
  readonly node_id?: string | null
  readonly attributes?: JsonObject
}

/** The fast path of `makeEvent` for the library's own events: nothing is checked or copied. */
export function stampEvent<Name extends string, Fields extends object>(
  eventClass: EventClass<Name, Fields>,
  clock: Clock,
  fields: TrustedFields & Fields,
): InstanceType<EventClass<Name, Fields>> {
  return new eventClass(fields, clock.now())
}
