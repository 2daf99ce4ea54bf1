/** Reads the keywords of a JSON schema that restrict values, in one form for all drafts. Pure. */

import { messageOf } from '../../../../foundation/errors.ts'

export type Schema = Readonly<Record<string, unknown>>

export class SchemaError extends Error {
  override readonly name = 'SchemaError'
  /** Whether no value can match the schema. A choice between schemas omits such a schema. */
  readonly isImpossible: boolean
  /** Whether the schema violates JSON Schema. If `false`, the schema is only unsupported. */
  readonly isInvalid: boolean
  /** The location in the schema, such as `#/properties/a`. `withPath` prepends its parts. */
  readonly path: string
  /** The index of the tool whose parameters have the problem; `null` for other schemas. */
  readonly tool: number | null

  constructor(message: string, details: SchemaErrorDetails = {}) {
    super(message)
    const { isImpossible = false, isInvalid = false, path = '', tool = null } = details
    this.isImpossible = isImpossible
    this.isInvalid = isInvalid
    this.path = path
    this.tool = tool
  }
}

type SchemaErrorDetails = Partial<Pick<SchemaError, 'isImpossible' | 'isInvalid' | 'path' | 'tool'>>

export const impossibleSchema = (message: string): SchemaError =>
  new SchemaError(message, { isImpossible: true })

export const invalidSchema = (message: string): SchemaError =>
  new SchemaError(message, { isInvalid: true })

export const unenforceable = (key: string, beside?: string): SchemaError =>
  new SchemaError(
    `\`${key}\` ${beside === undefined ? '' : `beside \`${beside}\` `}cannot be enforced`,
  )

/** Prepends `place` to the path of errors that `action` throws. */
export function withPath<T>(place: string, action: () => T): T {
  try {
    return action()
  } catch (error) {
    const fault = error instanceof SchemaError ? error : new SchemaError('')
    const { path, isImpossible, isInvalid } = fault
    const whole = path.startsWith('#') ? path : `${place}${path}`
    throw new SchemaError(messageOf(error), { isImpossible, isInvalid, path: whole })
  }
}

type Shape = readonly [expected: string, isValid: (value: unknown) => boolean]

const isObject = (value: unknown): value is Schema =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
const isTextList = (value: unknown): boolean =>
  Array.isArray(value) && value.every((one) => typeof one === 'string')

const textShape: Shape = ['a text', (value) => typeof value === 'string']
const numberShape: Shape = ['a number', (value) => Number.isFinite(value)]
const countShape: Shape = ['a count', (value) => Number.isSafeInteger(value) && Number(value) >= 0]
const listShape: Shape = ['a list', Array.isArray]
const objectShape: Shape = ['an object', isObject]
const schemaShape: Shape = ['a schema', (value) => typeof value === 'boolean' || isObject(value)]

const keywordShapes: Readonly<Record<string, Shape>> = {
  $ref: textShape,
  type: ['a type', (value) => typeof value === 'string' || isTextList(value)],
  /** A keyword of OpenAPI 3.0. Allows `null` in addition to the type. */
  nullable: ['true or false', (value) => typeof value === 'boolean'],
  enum: listShape,
  const: ['a value', () => true],
  allOf: listShape,
  anyOf: listShape,
  oneOf: listShape,
  minimum: numberShape,
  maximum: numberShape,
  exclusiveMinimum: ['a number', (value) => typeof value === 'boolean' || Number.isFinite(value)],
  exclusiveMaximum: ['a number', (value) => typeof value === 'boolean' || Number.isFinite(value)],
  minLength: countShape,
  maxLength: countShape,
  pattern: textShape,
  format: textShape,
  items: ['a schema', (value) => Array.isArray(value) || schemaShape[1](value)],
  prefixItems: listShape,
  additionalItems: schemaShape,
  unevaluatedItems: schemaShape,
  minItems: countShape,
  maxItems: countShape,
  uniqueItems: ['true or false', (value) => typeof value === 'boolean'],
  properties: objectShape,
  required: ['a list of names', isTextList],
  additionalProperties: schemaShape,
  unevaluatedProperties: schemaShape,
  propertyNames: schemaShape,
  minProperties: countShape,
  maxProperties: countShape,
  dependentRequired: objectShape,
  dependentSchemas: objectShape,
  dependencies: objectShape,
}

const inexpressible = new Set(
  (
    'not if then else patternProperties contains minContains maxContains multipleOf ' +
    '$dynamicRef $recursiveRef'
  ).split(' '),
)

/** Omits keywords that are `null`. Throws for keywords that cannot be enforced. */
export function readKeywords(schema: unknown): Schema {
  if (schema === true) return {}
  if (schema === false) throw impossibleSchema('false allows nothing')
  if (!isObject(schema)) throw invalidSchema('a schema is an object, true or false')
  const found: Record<string, unknown> = {}
  for (const [key, value] of Object.entries(schema)) {
    if (inexpressible.has(key)) throw unenforceable(key)
    const shape = Object.hasOwn(keywordShapes, key) ? keywordShapes[key] : undefined
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
    ...('const' in found ? { enum: constToEnum(only, rest['enum']) } : {}),
    ...(Array.isArray(items) ? { prefixItems: items, items: additionalItems } : {}),
    ...toExclusiveBound(found, 'exclusiveMinimum', 'minimum'),
    ...toExclusiveBound(found, 'exclusiveMaximum', 'maximum'),
    ...(isObject(dependencies) ? splitDependencies(rest, dependencies) : {}),
  }
}

function constToEnum(value: unknown, listed: unknown): readonly unknown[] {
  const isListed = !Array.isArray(listed) || listed.some((one) => isEqualJson(one, value))
  return isListed ? [value] : []
}

/** In draft 4, the exclusive keywords are booleans that apply to `minimum` and `maximum`. */
function toExclusiveBound(found: Schema, key: string, bound: string): Schema {
  if (typeof found[key] !== 'boolean') return {}
  return { [key]: found[key] ? found[bound] : undefined }
}

function splitDependencies(rest: Schema, dependencies: Schema): Schema {
  const entries = Object.entries(dependencies)
  const lists = entries.filter(([, value]) => Array.isArray(value))
  const schemas = entries.filter(([, value]) => !Array.isArray(value))
  return {
    dependentRequired: { ...Object.fromEntries(lists), ...(rest['dependentRequired'] as Schema) },
    dependentSchemas: { ...Object.fromEntries(schemas), ...(rest['dependentSchemas'] as Schema) },
  }
}

export const definedKeys = (schema: Schema): readonly string[] =>
  Object.keys(schema).filter((key) => schema[key] !== undefined)

export function isEqualJson(one: unknown, other: unknown): boolean {
  if (one === other) return true
  if (Array.isArray(one) && Array.isArray(other)) {
    return one.length === other.length && one.every((item, at) => isEqualJson(item, other[at]))
  }
  if (!isObject(one) || !isObject(other)) return false
  const keys = Object.keys(one)
  const isEqual = (key: string): boolean =>
    Object.hasOwn(other, key) && isEqualJson(one[key], other[key])
  return keys.length === Object.keys(other).length && keys.every(isEqual)
}
