/**
 * Combines schemas that apply together into alternatives without `$ref`, `allOf`, `anyOf` and
 * `oneOf`. Each alternative includes the keywords that were next to these. Pure.
 */

import {
  isEqualJson,
  definedKeys,
  readKeywords,
  withPath,
  type Schema,
  SchemaError,
  unenforceable,
} from './schema-keywords.ts'
import { memberSchema } from './schema-parts.ts'

const maxChoices = 64
const maxDepth = 32

export interface SchemaReader {
  resolveReference(reference: string): unknown
  spend(steps: number): void
}

/**
 * Returns the alternatives of a schema. They have no `$ref`, `allOf`, `anyOf`, `oneOf` or
 * dependencies.
 */
export function expandSchema(schema: unknown, reader: SchemaReader, depth = 0): readonly Schema[] {
  if (schema === false) return []
  if (depth > maxDepth) throw new SchemaError(`\`$ref\` and \`allOf\` are nested too deep`)
  const { $ref, allOf, anyOf, oneOf, dependentRequired, dependentSchemas, ...rest } =
    readKeywords(schema)
  const { unevaluatedProperties, unevaluatedItems, ...own } = rest
  let found: readonly Schema[] = [own]
  const read = (part: unknown, place: string): readonly Schema[] =>
    withPath(place, () => expandSchema(part, reader, depth + 1))
  const restrict = (choices: readonly Schema[]): void => {
    found = expectFewChoices(
      found.flatMap((one) => choices.flatMap((other) => mergeSchemas(one, other, reader))),
    )
  }
  if (typeof $ref === 'string') restrict(read(reader.resolveReference($ref), $ref))
  for (const [at, part] of listOf(allOf).entries()) restrict(read(part, `/allOf/${at}`))
  for (const [key, parts] of Object.entries({ anyOf, oneOf })) {
    if (parts === undefined) continue
    restrict(expectFewChoices(listOf(parts).flatMap((part, at) => read(part, `/${key}/${at}`))))
  }
  for (const [name, required] of Object.entries((dependentRequired ?? {}) as Schema)) {
    const needed = readKeywords({ required })
    found = expectFewChoices(found.flatMap((one) => applyDependency(one, name, [needed], reader)))
  }
  for (const [name, part] of Object.entries((dependentSchemas ?? {}) as Schema)) {
    const needed = read(part, `/dependentSchemas/${name}`)
    found = expectFewChoices(found.flatMap((one) => applyDependency(one, name, needed, reader)))
  }
  return found.map((one) => ({
    ...one,
    ...withDefault(one, 'additionalProperties', unevaluatedProperties),
    ...withDefault(one, 'items', unevaluatedItems),
  }))
}

const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : [])

const withDefault = (schema: Schema, key: string, value: unknown): Schema =>
  value === undefined || schema[key] !== undefined ? {} : { [key]: value }

function expectFewChoices(choices: readonly Schema[]): readonly Schema[] {
  if (choices.length <= maxChoices) return choices
  throw new SchemaError(`the schema has more than ${maxChoices} choices that have to be combined`)
}

/**
 * Returns alternatives without the member, and alternatives with the member and what it requires.
 */
function applyDependency(
  schema: Schema,
  name: string,
  needed: readonly Schema[],
  reader: SchemaReader,
): readonly Schema[] {
  const without = mergeSchemas(schema, { properties: { [name]: false } }, reader)
  const present = mergeSchemas(schema, { required: [name] }, reader)
  return [
    ...without,
    ...present.flatMap((one) => needed.flatMap((other) => mergeSchemas(one, other, reader))),
  ]
}

type Combine = (one: unknown, other: unknown) => unknown

const larger: Combine = (one, other) => Math.max(Number(one), Number(other))
const smaller: Combine = (one, other) => Math.min(Number(one), Number(other))

const combiners: Readonly<Record<string, Combine>> = {
  minimum: larger,
  exclusiveMinimum: larger,
  minLength: larger,
  minItems: larger,
  minProperties: larger,
  maximum: smaller,
  exclusiveMaximum: smaller,
  maxLength: smaller,
  maxItems: smaller,
  maxProperties: smaller,
  type: (one, other) => sharedTypes(listOf(one), listOf(other)),
  enum: (one, other) =>
    listOf(one).filter((value) => listOf(other).some((same) => isEqualJson(value, same))),
  required: (one, other) => [...new Set([...listOf(one), ...listOf(other)])],
  uniqueItems: (one, other) => one === true || other === true,
  propertyNames: mergeSubschemas,
}

const sharedTypes = (some: readonly unknown[], others: readonly unknown[]): readonly unknown[] => {
  const isIn = (type: unknown, types: readonly unknown[]): boolean =>
    types.includes(type) || (type === 'integer' && types.includes('number'))
  const shared = [
    ...some.filter((type) => isIn(type, others)),
    ...others.filter((type) => isIn(type, some)),
  ]
  return [...new Set(shared)].filter((type) => type !== 'integer' || !shared.includes('number'))
}

/** Returns an empty list if no value matches both schemas. Throws for two different patterns. */
function mergeSchemas(one: Schema, other: Schema, reader: SchemaReader): readonly Schema[] {
  const merged: Record<string, unknown> = {
    ...one,
    ...mergeObject(one, other),
    ...mergeArray(one, other),
  }
  reader.spend(1 + Object.keys(merged['properties'] ?? {}).length)
  for (const key of definedKeys(other)) {
    if (key in structuralKeys) continue
    const combine = combiners[key]
    if (one[key] === undefined) merged[key] = other[key]
    else if (combine !== undefined) merged[key] = combine(one[key], other[key])
    else if (one[key] !== other[key]) throw unenforceable(`allOf\` of several \`${key}`)
  }
  const isEmpty = (key: string): boolean =>
    merged[key] !== undefined && listOf(merged[key]).length === 0
  return isEmpty('type') || isEmpty('enum') || !hasRequired(merged) ? [] : [merged]
}

/** Keywords for members and items, which `mergeObject` and `mergeArray` merge. */
const structuralKeys = {
  properties: true,
  additionalProperties: true,
  prefixItems: true,
  items: true,
}

function hasRequired(schema: Schema): boolean {
  return listOf(schema['required']).every((name) => memberSchema(schema, String(name)) !== false)
}

function mergeObject(one: Schema, other: Schema): Schema {
  const names = [one, other].flatMap(({ properties }) => Object.keys((properties ?? {}) as Schema))
  const others = mergeSubschemas(one['additionalProperties'], other['additionalProperties'])
  const members = names.map((name) => [
    name,
    mergeSubschemas(memberSchema(one, name), memberSchema(other, name)),
  ])
  const isNamed = one['properties'] !== undefined || other['properties'] !== undefined
  return {
    ...(isNamed ? { properties: Object.fromEntries(members) as Schema } : {}),
    ...(others === undefined ? {} : { additionalProperties: others }),
  }
}

function mergeArray(one: Schema, other: Schema): Schema {
  const [some, more] = [listOf(one['prefixItems']), listOf(other['prefixItems'])]
  const items = mergeSubschemas(one['items'], other['items'])
  const longest = some.length > more.length ? some : more
  const prefix = longest.map((_, at) =>
    mergeSubschemas(some[at] ?? one['items'] ?? true, more[at] ?? other['items'] ?? true),
  )
  const isTuple = one['prefixItems'] !== undefined || other['prefixItems'] !== undefined
  return {
    ...(isTuple ? { prefixItems: prefix } : {}),
    ...(items === undefined ? {} : { items }),
  }
}

function mergeSubschemas(one: unknown, other: unknown): unknown {
  if (one === undefined || one === true) return other ?? one
  if (other === undefined || other === true || isEqualJson(one, other)) return one
  return one === false || other === false ? false : { allOf: [one, other] }
}
