/**
 * Combines schemas that apply together into alternatives without `$ref`, `allOf`, `anyOf` and
 * `oneOf`: keywords next to these apply to each of their choices. Pure.
 */

import {
  isSame,
  keysOf,
  keywordsOf,
  located,
  type Schema,
  SchemaFault,
  unenforceable,
} from './schema-keywords.ts'
import { memberOf } from './schema-parts.ts'

/** The maximum number of alternatives of an expanded schema. */
const maxChoices = 64
const maxDepth = 32

export interface SchemaReader {
  /** The schema of a reference. Throws if it does not exist. */
  find(reference: string): unknown
  /** Counts steps. Throws if the schema is too large. */
  spend(steps: number): void
}

/**
 * Alternatives without `$ref`, `allOf`, `anyOf`, `oneOf` and dependencies; empty if no value
 * matches.
 */
export function choicesOf(schema: unknown, reader: SchemaReader, depth = 0): readonly Schema[] {
  if (schema === false) return []
  if (depth > maxDepth) throw new SchemaFault(`\`$ref\` and \`allOf\` are nested too deep`)
  const { $ref, allOf, anyOf, oneOf, dependentRequired, dependentSchemas, ...rest } =
    keywordsOf(schema)
  const { unevaluatedProperties, unevaluatedItems, ...own } = rest
  let found: readonly Schema[] = [own]
  const read = (part: unknown, place: string): readonly Schema[] =>
    located(place, () => choicesOf(part, reader, depth + 1))
  const restrict = (choices: readonly Schema[]): void => {
    found = limited(found.flatMap((one) => choices.flatMap((other) => merged(one, other, reader))))
  }
  if (typeof $ref === 'string') restrict(read(reader.find($ref), $ref))
  for (const [at, part] of listOf(allOf).entries()) restrict(read(part, `/allOf/${at}`))
  for (const [key, parts] of Object.entries({ anyOf, oneOf })) {
    if (parts === undefined) continue
    restrict(limited(listOf(parts).flatMap((part, at) => read(part, `/${key}/${at}`))))
  }
  for (const [name, required] of Object.entries((dependentRequired ?? {}) as Schema)) {
    const needed = keywordsOf({ required })
    found = limited(found.flatMap((one) => dependent(one, name, [needed], reader)))
  }
  for (const [name, part] of Object.entries((dependentSchemas ?? {}) as Schema)) {
    const needed = read(part, `/dependentSchemas/${name}`)
    found = limited(found.flatMap((one) => dependent(one, name, needed, reader)))
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

function limited(choices: readonly Schema[]): readonly Schema[] {
  if (choices.length <= maxChoices) return choices
  throw new SchemaFault(`the schema has more than ${maxChoices} choices that have to be combined`)
}

/** The alternatives: without the member, or with the member and all that it requires. */
function dependent(
  schema: Schema,
  name: string,
  needed: readonly Schema[],
  reader: SchemaReader,
): readonly Schema[] {
  const without = merged(schema, { properties: { [name]: false } }, reader)
  const present = merged(schema, { required: [name] }, reader)
  return [
    ...without,
    ...present.flatMap((one) => needed.flatMap((other) => merged(one, other, reader))),
  ]
}

type Combine = (one: unknown, other: unknown) => unknown

const greater: Combine = (one, other) => Math.max(Number(one), Number(other))
const smaller: Combine = (one, other) => Math.min(Number(one), Number(other))

/** Combines two values of a keyword, for keywords that do not depend on others. */
const combined: Readonly<Record<string, Combine>> = {
  minimum: greater,
  exclusiveMinimum: greater,
  minLength: greater,
  minItems: greater,
  minProperties: greater,
  maximum: smaller,
  exclusiveMaximum: smaller,
  maxLength: smaller,
  maxItems: smaller,
  maxProperties: smaller,
  type: (one, other) => sharedTypes(listOf(one), listOf(other)),
  enum: (one, other) =>
    listOf(one).filter((value) => listOf(other).some((same) => isSame(value, same))),
  required: (one, other) => [...new Set([...listOf(one), ...listOf(other)])],
  uniqueItems: (one, other) => one === true || other === true,
  propertyNames: bothOf,
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

/**
 * The combination of two schemas; empty if no value matches. Throws for two patterns or formats.
 */
function merged(one: Schema, other: Schema, reader: SchemaReader): readonly Schema[] {
  const both: Record<string, unknown> = { ...one, ...objectOf(one, other), ...arrayOf(one, other) }
  reader.spend(1 + Object.keys(both['properties'] ?? {}).length)
  for (const key of keysOf(other)) {
    if (key in structural) continue
    const combine = combined[key]
    if (one[key] === undefined) both[key] = other[key]
    else if (combine !== undefined) both[key] = combine(one[key], other[key])
    else if (one[key] !== other[key]) throw unenforceable(`allOf\` of several \`${key}`)
  }
  const isEmpty = (key: string): boolean =>
    both[key] !== undefined && listOf(both[key]).length === 0
  return isEmpty('type') || isEmpty('enum') || !hasRequired(both) ? [] : [both]
}

/** Keywords for members or items that other keywords do not name. They are combined separately. */
const structural = {
  properties: true,
  additionalProperties: true,
  prefixItems: true,
  items: true,
}

function hasRequired(schema: Schema): boolean {
  return listOf(schema['required']).every((name) => memberOf(schema, String(name)) !== false)
}

function objectOf(one: Schema, other: Schema): Schema {
  const names = [one, other].flatMap(({ properties }) => Object.keys((properties ?? {}) as Schema))
  const others = bothOf(one['additionalProperties'], other['additionalProperties'])
  const members = names.map((name) => [name, bothOf(memberOf(one, name), memberOf(other, name))])
  const isNamed = one['properties'] !== undefined || other['properties'] !== undefined
  return {
    ...(isNamed ? { properties: Object.fromEntries(members) as Schema } : {}),
    ...(others === undefined ? {} : { additionalProperties: others }),
  }
}

function arrayOf(one: Schema, other: Schema): Schema {
  const [some, more] = [listOf(one['prefixItems']), listOf(other['prefixItems'])]
  const items = bothOf(one['items'], other['items'])
  const longest = some.length > more.length ? some : more
  const prefix = longest.map((_, at) =>
    bothOf(some[at] ?? one['items'] ?? true, more[at] ?? other['items'] ?? true),
  )
  const isTuple = one['prefixItems'] !== undefined || other['prefixItems'] !== undefined
  return {
    ...(isTuple ? { prefixItems: prefix } : {}),
    ...(items === undefined ? {} : { items }),
  }
}

function bothOf(one: unknown, other: unknown): unknown {
  if (one === undefined || one === true) return other ?? one
  if (other === undefined || other === true || isSame(one, other)) return one
  return one === false || other === false ? false : { allOf: [one, other] }
}
