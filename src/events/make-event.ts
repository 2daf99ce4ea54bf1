/** Creates an event from a caller's fields, which are checked against the class and copied. */

import { systemClock } from '../foundation/clock.ts'
import { ValueError } from '../foundation/errors.ts'
import { expectKnownKeys, expectObject, invalid } from '../foundation/options.ts'
import { type BaseEvent, type EventClass, type FieldSpec, stampEvent } from './event.ts'
import { maskSecretsIn } from '../foundation/secrets.ts'
import {
  emptyAttributes,
  type JsonValue,
  toJsonObject,
  toJsonValue,
} from '../foundation/json-value.ts'

/** The fields that a caller may set. All other fields are set by `makeEvent`. */
export type EventInput<Fields extends object> = {
  readonly session_id: string
  readonly backend: string
  /** When the event happened, in wall-clock seconds. Default: now. */
  readonly event_time?: number
  readonly task_id?: string | null
  readonly node_id?: string | null
  readonly attributes?: object
} & Partial<Fields>

const inputFields = ['session_id', 'backend', 'event_time', 'task_id', 'node_id', 'attributes']

/**
 * Creates an instance of `eventClass` with a new `event_id` and `emit_time`. Copies the
 * attributes. Throws a `ValueError` that names the wrong field.
 */
export function makeEvent<Name extends string, Fields extends object, Made extends BaseEvent>(
  eventClass: EventClass<Name, Fields> & (abstract new (...args: never[]) => Made),
  input: EventInput<NoInfer<Fields>>,
): Made {
  if (typeof eventClass !== 'function' || typeof eventClass.schema !== 'object') {
    throw invalid('eventClass', 'an event class', eventClass)
  }
  const given = expectObject('fields', input)
  const { schema, eventType } = eventClass
  expectKnownKeys(eventType, given, [...inputFields, ...Object.keys(schema)])
  const extras: Record<string, unknown> = {}
  for (const [name, spec] of Object.entries(schema)) {
    // Reads only own properties, because a field may be called `toString`.
    const value = Object.hasOwn(given, name) ? given[name] : undefined
    extras[name] = value === undefined ? spec.fallback : maskField(checkField(name, spec, value))
  }
  const event: BaseEvent = stampEvent<Name, Fields>(eventClass, systemClock, {
    ...(extras as Fields),
    session_id: expectText('session_id', given['session_id']),
    backend: expectText('backend', given['backend']),
    ...(given['event_time'] === undefined ? {} : { event_time: expectTime(given['event_time']) }),
    task_id: expectTextOrNull('task_id', given['task_id']),
    node_id: expectTextOrNull('node_id', given['node_id']),
    attributes:
      given['attributes'] === undefined
        ? emptyAttributes
        : maskSecretsIn(toJsonObject(expectObject('attributes', given['attributes']))),
  })
  return event as Made
}

const maskField = (value: unknown): unknown =>
  typeof value === 'string' || typeof value === 'object' ? maskSecretsIn(value as JsonValue) : value

const jsTypes = { float: 'number', int: 'number', str: 'string', bool: 'boolean' } as const

/** Returns the value in its stored form. Throws a `ValueError` that names the field. */
export function checkField(name: string, spec: FieldSpec, value: unknown): unknown {
  if (spec.type === 'any') return toJsonValue(value)
  if (value === null && spec.nullable) return null
  const fits = typeof value === jsTypes[spec.type]
  if (!fits || (typeof value === 'number' && !isInRange(value, spec))) {
    const { type, nullable, min, max } = spec
    const hasNoRange = type === 'float' && min === undefined && max === undefined
    const from = min === undefined ? '' : ` from ${min}`
    const to = max === undefined ? '' : ` to ${max}`
    const expected = `of type ${hasNoRange ? 'finite ' : ''}${type}${from}${to}`
    throw invalid(name, `${expected}${nullable ? ' or null' : ''}`, value)
  }
  return spec.type === 'str' ? toJsonValue(value) : value
}

/**
 * Whether the number has the type and range of the field. Rejects NaN and infinity, which JSON
 * cannot represent.
 */
function isInRange(value: number, { type, min = -Infinity, max = Infinity }: FieldSpec): boolean {
  const isNumber = type === 'int' ? Number.isInteger(value) : Number.isFinite(value)
  return isNumber && value >= min && value <= max
}

function expectText(name: string, value: unknown): string {
  if (typeof value === 'string') return value
  throw invalid(name, 'a string', value)
}

const expectTextOrNull = (name: string, value: unknown): string | null =>
  value === undefined || value === null ? null : expectText(name, value)

function expectTime(value: unknown): number {
  // Rejects a time that a `Date` cannot represent, because readers of the record would reject it.
  if (typeof value === 'number' && Math.abs(value) <= 8.64e12) return value
  throw new ValueError('Expected `event_time` to be seconds that a date can have', {
    field: 'event_time',
    expected: 'a number of seconds from -8.64e12 to 8.64e12',
    got: value,
  })
}
