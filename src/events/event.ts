/** The base of all events: frozen, flat objects with the same field names as in the file. */

import type { Clock } from '../foundation/clock.ts'
import { newUuid } from '../foundation/ids.ts'
import { emptyAttributes, type JsonObject, type JsonValue } from '../foundation/json-value.ts'

/** The fields that every event has, in the order in which they are written. */
export interface BaseFields {
  /** A UUID4 as hex digits, unique per event. */
  readonly event_id: string
  /** When the event happened, in wall-clock seconds. */
  readonly event_time: number
  /** When the event was put on the bus, in wall-clock seconds. */
  readonly emit_time: number
  readonly session_id: string
  /** The name of the backend; `""` in TaskCreated, which is emitted before routing. */
  readonly backend: string
  /** The uid of the task; `null` for events of the session. */
  readonly task_id: string | null
  /** A host name or the address of a worker; `null` if not applicable. */
  readonly node_id: string | null
  readonly attributes: JsonObject
}

/**
 * The common part of all events. Create instances with `makeEvent`; they are deeply frozen. The
 * fields use `declare`, so that they are written in the order in which the constructor assigns
 * them.
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
    const eventTime = fields.event_time ?? now
    this.event_id = fields.event_id ?? newUuid()
    this.event_type = eventType
    this.event_time = eventTime
    this.emit_time = now < eventTime ? eventTime : now
    this.session_id = fields.session_id
    this.backend = fields.backend
    this.task_id = fields.task_id ?? null
    this.node_id = fields.node_id ?? null
    this.attributes = fields.attributes ?? emptyAttributes
  }
}

/** Whether the value is an event; `false` for a revoked proxy, for which `instanceof` throws. */
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
  /** The minimum of a number. */
  readonly min?: number
  readonly max?: number
}

/** The fields of an event class by name, without the common fields. */
export type EventSchema = { readonly [field: string]: FieldSpec }

/** A class of events. Its name is the `event_type`; its schema lists all but the common fields. */
export interface EventClass<Name extends string = string, Fields extends object = object> {
  new (
    fields: TrustedFields & Fields,
    now: number,
  ): BaseEvent & { readonly event_type: Name } & Readonly<Fields>
  readonly name: string
  readonly eventType: Name
  readonly schema: EventSchema
}

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

/** The common fields of an event that the library creates. They are not checked. */
export interface TrustedFields {
  /** Default: a new random id. */
  readonly event_id?: string
  readonly session_id: string
  readonly backend: string
  readonly event_time?: number
  readonly task_id?: string | null
  readonly node_id?: string | null
  readonly attributes?: JsonObject
}

/** Creates an event of the library without the checks and copies of `makeEvent`. */
export function stampEvent<Name extends string, Fields extends object>(
  eventClass: EventClass<Name, Fields>,
  clock: Clock,
  fields: TrustedFields & Fields,
): InstanceType<EventClass<Name, Fields>> {
  return new eventClass(fields, clock.now())
}
