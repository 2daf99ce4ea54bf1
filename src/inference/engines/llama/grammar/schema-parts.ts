/** Reads the parts of a schema without `$ref`, `allOf`, `anyOf` and `oneOf`. Pure. */

import type { NumberBounds } from './number-grammar.ts'
import {
  impossible,
  invalidSchema,
  keysOf,
  type Schema,
  SchemaFault,
  unenforceable,
} from './schema-keywords.ts'
import { freeFormats } from './string-grammar.ts'

export const nothingFits = (): SchemaFault => impossible('no value fits all of the schema')

/** The schema of the member with this name. */
export function memberOf(schema: Schema, name: string): unknown {
  const properties = (schema['properties'] ?? {}) as Schema
  if (Object.hasOwn(properties, name)) return properties[name]
  return schema['additionalProperties'] ?? true
}

export const namesOf = (schema: Schema): readonly string[] =>
  Object.keys(schema['properties'] ?? {})

export const requiredOf = (schema: Schema): ReadonlySet<string> =>
  new Set((schema['required'] ?? []) as readonly string[])

export function valueOf(schema: Schema, name: string): unknown {
  const value = memberOf(schema, name)
  if (value !== false || namesOf(schema).includes(name)) return value
  throw impossible(`\`${name}\` is required, but not among the \`properties\``)
}

/** The schema of unnamed members; `false` if there are none. */
export const othersOf = (schema: Schema): unknown =>
  schema['additionalProperties'] ?? namesOf(schema).length === 0

/**
 * The minimum number of members, and the maximum number of unnamed members. Throws for limits that
 * neither names nor a repetition can enforce. Unnamed members may have equal names, so any number
 * of them counts as one.
 */
export function countsOf(schema: Schema, optional: number, isOpen: boolean) {
  const { minProperties = 0, maxProperties = Infinity } = schema
  const [min, max] = [Number(minProperties), Number(maxProperties)]
  const always = requiredOf(schema).size
  const isReached = min <= always || (min === 1 && (isOpen || optional > 0))
  if (!isReached) throw unenforceable('minProperties')
  const isCounted = isOpen ? optional === 0 || max === Infinity : always + optional <= max
  if (!isCounted) throw unenforceable('maxProperties')
  if (always > max) throw impossible('`maxProperties` is less than the `required` members')
  return { min, max: max - always }
}

/** The values of `enum` that match the keywords next to it; `null` without `enum`. */
export function listedIn(schema: Schema): readonly unknown[] | null {
  const values = schema['enum']
  if (!Array.isArray(values)) return null
  if (values.length === 0) throw impossible('an empty choice allows nothing')
  const listed = values.filter((value) => isListed(value, schema))
  if (listed.length === 0) throw nothingFits()
  return listed
}

/**
 * The types in `type`. Without `type`, the types that other keywords restrict, because values of
 * all other types would be unrestricted.
 */
export function typesOf(schema: Schema): readonly string[] {
  const { type, format } = schema
  if (Array.isArray(type)) return [...new Set(type.map(String))]
  const isFree = typeof format === 'string' && freeFormats.has(format)
  const keys = new Set(keysOf(schema).filter((key) => key !== 'format' || !isFree))
  const restricted = Object.entries(typeKeys).filter(([, of]) => of.some((key) => keys.has(key)))
  return restricted.length === 0 ? ['value'] : restricted.map(([name]) => name)
}

/** Whether a listed value matches the keywords next to the list. Throws if that is undecidable. */
function isListed(value: unknown, schema: Schema): boolean {
  const types = schema['type']
  if (Array.isArray(types) && !types.some((type) => isOfType(value, String(type)))) return false
  if (typeof value === 'number') return isWithin(value, schema)
  const unchecked = keysOf(schema).find((key) => keysOfType(value).includes(key))
  if (unchecked !== undefined) throw unenforceable(unchecked, 'enum')
  if (typeof value !== 'string') return true
  const { minLength = 0, maxLength = Infinity } = schema
  const { length } = Array.from(value)
  return length >= Number(minLength) && length <= Number(maxLength)
}

function isWithin(value: number, schema: Schema): boolean {
  const { minimum = -Infinity, maximum = Infinity } = schema
  const { exclusiveMinimum: over = -Infinity, exclusiveMaximum: under = Infinity } = schema
  const isOver = value >= Number(minimum) && value > Number(over)
  return isOver && value <= Number(maximum) && value < Number(under)
}

const typeKeys: Readonly<Record<'object' | 'array' | 'string' | 'number', readonly string[]>> = {
  object: [
    'properties',
    'required',
    'additionalProperties',
    'propertyNames',
    'minProperties',
    'maxProperties',
  ],
  array: ['items', 'prefixItems', 'minItems', 'maxItems', 'uniqueItems'],
  string: ['minLength', 'maxLength', 'pattern', 'format'],
  number: ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'],
}

/** Keywords that cannot be checked for a listed value. */
function keysOfType(value: unknown): readonly string[] {
  if (typeof value === 'string') return ['pattern', 'format']
  if (Array.isArray(value)) return typeKeys.array
  return typeof value === 'object' && value !== null ? typeKeys.object : []
}

function isOfType(value: unknown, type: string): boolean {
  if (type === 'integer') return Number.isInteger(value)
  if (type === 'null') return value === null
  if (type === 'array') return Array.isArray(value)
  if (type === 'object') return typeof value === 'object' && value !== null && !Array.isArray(value)
  if (['string', 'number', 'boolean'].includes(type)) return typeof value === type
  throw invalidSchema(`there is no type \`${type}\``)
}

export function boundsOf(schema: Schema): NumberBounds {
  const bound = (key: string): number | null => {
    const value = schema[key]
    return typeof value === 'number' && Number.isFinite(value) ? value : null
  }
  const [min, over] = [bound('minimum'), bound('exclusiveMinimum')]
  const [max, under] = [bound('maximum'), bound('exclusiveMaximum')]
  const isMinExclusive = over !== null && (min === null || over >= min)
  const isMaxExclusive = under !== null && (max === null || under <= max)
  return toBounds({
    min: isMinExclusive ? over : min,
    max: isMaxExclusive ? under : max,
    isMinExclusive,
    isMaxExclusive,
  })
}

/**
 * Ignores bounds that a grammar cannot express, such as the safe-integer bounds that zod writes.
 */
function toBounds(bounds: NumberBounds): NumberBounds {
  const limit = (value: number | null): number | null =>
    value === null || Math.abs(value) >= Number.MAX_SAFE_INTEGER ? null : value
  return { ...bounds, min: limit(bounds.min), max: limit(bounds.max) }
}

/** The maximum number of values in a schema, so that other requests are not delayed for long. */
const maxValues = 30_000

/** Throws for a schema that is too large. */
export function expectFewValues(schema: unknown): void {
  const waiting = [schema]
  for (let count = 0; waiting.length > 0; count++) {
    const value = waiting.pop()
    if (typeof value !== 'object' || value === null) continue
    const inside = Object.values(value)
    if (count + waiting.length + inside.length > maxValues) {
      throw new SchemaFault('the schema has too many parts')
    }
    for (const one of inside) waiting.push(one)
  }
}

/** The member of a schema that one step of a `$ref` path names; `undefined` if there is none. */
export function namedPart(schema: unknown, part: string): unknown {
  const key = part.replaceAll('~1', '/').replaceAll('~0', '~')
  const isThere = typeof schema === 'object' && schema !== null && Object.hasOwn(schema, key)
  return isThere ? (schema as Schema)[key] : undefined
}

/** Decodes one step of a `$ref` path, because references are URIs with encoded characters. */
export function decodedPart(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}
