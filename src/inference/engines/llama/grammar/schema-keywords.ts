/** Reads the keywords of a JSON schema that restrict values, in one form for all drafts. Pure. */

import { messageOf } from '../../../../foundation/errors.ts'

export type Schema = Readonly<Record<string, unknown>>

/**
 * A problem in a schema or regular expression: it cannot be enforced, matches no value, or is
 * invalid.
 */
export class SchemaFault extends Error {
  override readonly name = 'SchemaFault'
  /** Whether no value can match, so that a choice between schemas omits this schema. */
  readonly isImpossible: boolean
  /** Whether the schema is invalid according to JSON Schema, rather than unsupported. */
  readonly isInvalid: boolean
  /** A path as in references, such as `#/properties/a`, or the last part of such a path. */
  readonly path: string
  /** The index of the tool whose parameters have the problem; `null` for other schemas. */
  readonly tool: number | null

  constructor(message: string, facts: FaultFacts = {}) {
    super(message)
    const { isImpossible = false, isInvalid = false, path = '', tool = null } = facts
    this.isImpossible = isImpossible
    this.isInvalid = isInvalid
    this.path = path
    this.tool = tool
  }
}

type FaultFacts = Partial<Pick<SchemaFault, 'isImpossible' | 'isInvalid' | 'path' | 'tool'>>

export const impossible = (message: string): SchemaFault =>
  new SchemaFault(message, { isImpossible: true })

export const invalidSchema = (message: string): SchemaFault =>
  new SchemaFault(message, { isInvalid: true })

export const unenforceable = (key: string, beside?: string): SchemaFault =>
  new SchemaFault(
    `\`${key}\` ${beside === undefined ? '' : `beside \`${beside}\` `}cannot be enforced`,
  )

/** Adds the place to the path of problems that `action` throws. */
export function located<T>(place: string, action: () => T): T {
  try {
    return action()
  } catch (error) {
    const fault = error instanceof SchemaFault ? error : new SchemaFault('')
    const { path, isImpossible, isInvalid } = fault
    const whole = path.startsWith('#') ? path : `${place}${path}`
    throw new SchemaFault(messageOf(error), { isImpossible, isInvalid, path: whole })
  }
}

type Shape = readonly [expected: string, isValid: (value: unknown) => boolean]

const isObject = (value: unknown): value is Schema =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
const isTexts = (value: unknown): boolean =>
  Array.isArray(value) && value.every((one) => typeof one === 'string')

const aText: Shape = ['a text', (value) => typeof value === 'string']
const aNumber: Shape = ['a number', (value) => Number.isFinite(value)]
const aCount: Shape = ['a count', (value) => Number.isSafeInteger(value) && Number(value) >= 0]
const aList: Shape = ['a list', Array.isArray]
const anObject: Shape = ['an object', isObject]
const aSchema: Shape = ['a schema', (value) => typeof value === 'boolean' || isObject(value)]

/** The supported keywords, with the values that they must have. */
const shapes: Readonly<Record<string, Shape>> = {
  $ref: aText,
  type: ['a type', (value) => typeof value === 'string' || isTexts(value)],
  /** A keyword of OpenAPI 3.0 that allows `null` in addition to the type. */
  nullable: ['true or false', (value) => typeof value === 'boolean'],
  enum: aList,
  const: ['a value', () => true],
  allOf: aList,
  anyOf: aList,
  oneOf: aList,
  minimum: aNumber,
  maximum: aNumber,
  exclusiveMinimum: ['a number', (value) => typeof value === 'boolean' || Number.isFinite(value)],
  exclusiveMaximum: ['a number', (value) => typeof value === 'boolean' || Number.isFinite(value)],
  minLength: aCount,
  maxLength: aCount,
  pattern: aText,
  format: aText,
  items: ['a schema', (value) => Array.isArray(value) || aSchema[1](value)],
  prefixItems: aList,
  additionalItems: aSchema,
  unevaluatedItems: aSchema,
  minItems: aCount,
  maxItems: aCount,
  uniqueItems: ['true or false', (value) => typeof value === 'boolean'],
  properties: anObject,
  required: ['a list of names', isTexts],
  additionalProperties: aSchema,
  unevaluatedProperties: aSchema,
  propertyNames: aSchema,
  minProperties: aCount,
  maxProperties: aCount,
  dependentRequired: anObject,
  dependentSchemas: anObject,
  dependencies: anObject,
}

/** Keywords that restrict values but cannot be expressed by a grammar. */
const inexpressible = new Set([
  'not',
  'if',
  'then',
  'else',
  'patternProperties',
  'contains',
  'minContains',
  'maxContains',
  'multipleOf',
  '$dynamicRef',
  '$recursiveRef',
])

/**
 * The keywords that restrict values. A value of `null` counts as absent. Throws for what cannot be
 * enforced.
 */
export function keywordsOf(schema: unknown): Schema {
  if (schema === true) return {}
  if (schema === false) throw impossible('false allows nothing')
  if (!isObject(schema)) throw invalidSchema('a schema is an object, true or false')
  const found: Record<string, unknown> = {}
  for (const [key, value] of Object.entries(schema)) {
    if (inexpressible.has(key)) throw unenforceable(key)
    const shape = Object.hasOwn(shapes, key) ? shapes[key] : undefined
    if (shape === undefined || (value === null && key !== 'const')) continue
    const [expected, isValid] = shape
    if (!isValid(value)) throw invalidSchema(`\`${key}\` must be ${expected}`)
    found[key] = value
  }
  return toLatestDraft(found)
}

/** Converts older keywords to draft 2020-12. `type` and `enum` become lists. */
function toLatestDraft(found: Schema): Schema {
  const { const: only, additionalItems, dependencies, nullable, ...rest } = found
  const { type, items } = rest
  return {
    ...rest,
    ...(type === undefined ? {} : { type: [type, nullable === true ? 'null' : []].flat(2) }),
    ...('const' in found ? { enum: onlyOf(only, rest['enum']) } : {}),
    ...(Array.isArray(items) ? { prefixItems: items, items: additionalItems } : {}),
    ...exclusive(found, 'exclusiveMinimum', 'minimum'),
    ...exclusive(found, 'exclusiveMaximum', 'maximum'),
    ...(isObject(dependencies) ? dependentOf(rest, dependencies) : {}),
  }
}

function onlyOf(value: unknown, listed: unknown): readonly unknown[] {
  const isListed = !Array.isArray(listed) || listed.some((one) => isSame(one, value))
  return isListed ? [value] : []
}

/** In draft 4, the exclusive keywords are booleans that apply to `minimum` and `maximum`. */
function exclusive(found: Schema, key: string, bound: string): Schema {
  if (typeof found[key] !== 'boolean') return {}
  return { [key]: found[key] ? found[bound] : undefined }
}

function dependentOf(rest: Schema, dependencies: Schema): Schema {
  const entries = Object.entries(dependencies)
  const lists = entries.filter(([, value]) => Array.isArray(value))
  const schemas = entries.filter(([, value]) => !Array.isArray(value))
  return {
    dependentRequired: { ...Object.fromEntries(lists), ...(rest['dependentRequired'] as Schema) },
    dependentSchemas: { ...Object.fromEntries(schemas), ...(rest['dependentSchemas'] as Schema) },
  }
}

/** The keywords whose value is not `undefined`. */
export const keysOf = (schema: Schema): readonly string[] =>
  Object.keys(schema).filter((key) => schema[key] !== undefined)

/** Whether two JSON values are equal; the order of members does not matter. */
export function isSame(one: unknown, other: unknown): boolean {
  if (one === other) return true
  if (Array.isArray(one) && Array.isArray(other)) {
    return one.length === other.length && one.every((item, at) => isSame(item, other[at]))
  }
  if (!isObject(one) || !isObject(other)) return false
  const keys = Object.keys(one)
  const isEqual = (key: string): boolean =>
    Object.hasOwn(other, key) && isSame(one[key], other[key])
  return keys.length === Object.keys(other).length && keys.every(isEqual)
}
