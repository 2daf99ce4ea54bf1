/** Reads the parts of a schema without `$ref`, `allOf`, `anyOf` and `oneOf`. Pure. */

import type { NumberBounds } from './number-grammar.ts'
import {
  impossibleSchema,
  invalidSchema,
  definedKeys,
  type Schema,
  SchemaError,
  unenforceable,
} from './schema-keywords.ts'
import { storageFormats } from './string-grammar.ts'

export const noMatchError = (): SchemaError => impossibleSchema('no value fits all of the schema')

export function memberSchema(schema: Schema, name: string): unknown {
  const properties = (schema['properties'] ?? {}) as Schema
  if (Object.hasOwn(properties, name)) return properties[name]
  return schema['additionalProperties'] ?? true
}

export const memberNames = (schema: Schema): readonly string[] =>
  Object.keys(schema['properties'] ?? {})

export const requiredNames = (schema: Schema): ReadonlySet<string> =>
  new Set((schema['required'] ?? []) as readonly string[])

export function requiredMember(schema: Schema, name: string): unknown {
  const value = memberSchema(schema, name)
  if (value !== false || memberNames(schema).includes(name)) return value
  throw impossibleSchema(`\`${name}\` is required, but not among the \`properties\``)
}

/** The schema of members that are not named; `false` if such members are not allowed. */
export const additionalSchema = (schema: Schema): unknown =>
  schema['additionalProperties'] ?? memberNames(schema).length === 0

/**
 * Returns the minimum number of members, and the maximum number of members that are not required.
 * Throws if a grammar cannot enforce the limits: unnamed members may have equal names, so they
 * count as one member.
 */
export function readMemberLimits(schema: Schema, optional: number, isOpen: boolean) {
  const { minProperties = 0, maxProperties = Infinity } = schema
  const [min, max] = [Number(minProperties), Number(maxProperties)]
  const requiredCount = requiredNames(schema).size
  const isReached = min <= requiredCount || (min === 1 && (isOpen || optional > 0))
  if (!isReached) throw unenforceable('minProperties')
  const isCounted = isOpen ? optional === 0 || max === Infinity : requiredCount + optional <= max
  if (!isCounted) throw unenforceable('maxProperties')
  if (requiredCount > max)
    throw impossibleSchema('`maxProperties` is less than the `required` members')
  return { min, max: max - requiredCount }
}

export function enumValues(schema: Schema): readonly unknown[] | null {
  const values = schema['enum']
  if (!Array.isArray(values)) return null
  if (values.length === 0) throw impossibleSchema('an empty choice allows nothing')
  const listed = values.filter((value) => matchesSchema(value, schema))
  if (listed.length === 0) throw noMatchError()
  return listed
}

/** Returns the types of a schema. Without `type`, returns those that other keywords restrict. */
export function schemaTypes(schema: Schema): readonly string[] {
  const { type, format } = schema
  if (Array.isArray(type)) return [...new Set(type.map(String))]
  const isFree = typeof format === 'string' && storageFormats.has(format)
  const keys = new Set(definedKeys(schema).filter((key) => key !== 'format' || !isFree))
  const restricted = Object.entries(typeKeys).filter(([, of]) => of.some((key) => keys.has(key)))
  return restricted.length === 0 ? ['value'] : restricted.map(([name]) => name)
}

/** Whether a value of `enum` matches the other keywords. Throws if that cannot be decided. */
function matchesSchema(value: unknown, schema: Schema): boolean {
  const types = schema['type']
  if (Array.isArray(types) && !types.some((type) => hasType(value, String(type)))) return false
  if (typeof value === 'number') return isWithinBounds(value, schema)
  const unchecked = definedKeys(schema).find((key) => uncheckedKeys(value).includes(key))
  if (unchecked !== undefined) throw unenforceable(unchecked, 'enum')
  if (typeof value !== 'string') return true
  const { minLength = 0, maxLength = Infinity } = schema
  const { length } = Array.from(value)
  return length >= Number(minLength) && length <= Number(maxLength)
}

function isWithinBounds(value: number, schema: Schema): boolean {
  const { minimum = -Infinity, maximum = Infinity } = schema
  const { exclusiveMinimum: over = -Infinity, exclusiveMaximum: under = Infinity } = schema
  const isOver = value >= Number(minimum) && value > Number(over)
  return isOver && value <= Number(maximum) && value < Number(under)
}

const typeKeys: Readonly<Record<'object' | 'array' | 'string' | 'number', readonly string[]>> = {
  object:
    'properties required additionalProperties propertyNames minProperties maxProperties'.split(' '),
  array: ['items', 'prefixItems', 'minItems', 'maxItems', 'uniqueItems'],
  string: ['minLength', 'maxLength', 'pattern', 'format'],
  number: ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'],
}

function uncheckedKeys(value: unknown): readonly string[] {
  if (typeof value === 'string') return ['pattern', 'format']
  if (Array.isArray(value)) return typeKeys.array
  return typeof value === 'object' && value !== null ? typeKeys.object : []
}

function hasType(value: unknown, type: string): boolean {
  if (type === 'integer') return Number.isInteger(value)
  if (type === 'null') return value === null
  if (type === 'array') return Array.isArray(value)
  if (type === 'object') return typeof value === 'object' && value !== null && !Array.isArray(value)
  if (['string', 'number', 'boolean'].includes(type)) return typeof value === type
  throw invalidSchema(`there is no type \`${type}\``)
}

export function numberBounds(schema: Schema): NumberBounds {
  const bound = (key: string): number | null => {
    const value = schema[key]
    return typeof value === 'number' && Number.isFinite(value) ? value : null
  }
  const [min, over] = [bound('minimum'), bound('exclusiveMinimum')]
  const [max, under] = [bound('maximum'), bound('exclusiveMaximum')]
  const isMinExclusive = over !== null && (min === null || over >= min)
  const isMaxExclusive = under !== null && (max === null || under <= max)
  // Ignores large bounds, such as those that zod writes for safe integers: a grammar cannot express
  // them.
  const limit = (value: number | null): number | null =>
    value === null || Math.abs(value) >= Number.MAX_SAFE_INTEGER ? null : value
  return {
    min: limit(isMinExclusive ? over : min),
    max: limit(isMaxExclusive ? under : max),
    isMinExclusive,
    isMaxExclusive,
  }
}

/** The number of values in a schema is limited, so that other requests are not delayed for long. */
const maxValues = 30_000

export function expectSchemaSize(schema: unknown): void {
  const waiting = [schema]
  for (let count = 0; waiting.length > 0; count++) {
    const value = waiting.pop()
    if (typeof value !== 'object' || value === null) continue
    const inside = Object.values(value)
    if (count + waiting.length + inside.length > maxValues) {
      throw new SchemaError('the schema has too many parts')
    }
    for (const one of inside) waiting.push(one)
  }
}

export function memberAt(schema: unknown, part: string): unknown {
  const key = part.replaceAll('~1', '/').replaceAll('~0', '~')
  const hasMember = typeof schema === 'object' && schema !== null && Object.hasOwn(schema, key)
  return hasMember ? (schema as Schema)[key] : undefined
}
