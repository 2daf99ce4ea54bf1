/** The echo engine's JSON: a small value that fits a schema. Not a validator. */

import { inferenceError } from '../inference-errors.ts'

type Schema = Readonly<Record<string, unknown>>

/** Deeper schemas are refused; a recursive one would have no end. */
const deepest = 32

/**
 * A value that fits a schema of `type`, `properties`, `required`, `items`, `enum`, `const`,
 * `anyOf`, `oneOf` and plain limits; free strings get `text`. Throws `unsupported` for the rest.
 */
export function sampleJson(schema: unknown, text: string, depth = 0): unknown {
  if (schema === undefined || schema === true) return text
  if (!isSchema(schema) || depth > deepest) throw unsupported('such a schema')
  for (const key of ['$ref', 'allOf', 'not', 'pattern', 'if']) {
    if (key in schema) throw unsupported(`a schema with "${key}"`)
  }
  const { const: only, enum: choices, anyOf, oneOf } = schema
  if ('const' in schema) return only
  if (Array.isArray(choices)) return choices[0]
  const variants = anyOf ?? oneOf
  if (Array.isArray(variants)) return sampleJson(variants[0], text, depth + 1)
  return sampleOf(typeOf(schema), schema, text, depth)
}

function sampleOf(type: unknown, schema: Schema, text: string, depth: number): unknown {
  switch (type) {
    case 'object':
      return sampleObject(schema, text, depth)
    case 'array': {
      const length = Math.min(limit(schema, 'minItems', 0), 1024)
      return Array.from({ length }, () => sampleJson(schema['items'], text, depth + 1))
    }
    case 'string':
      return text
        .slice(0, limit(schema, 'maxLength', Infinity))
        .padEnd(limit(schema, 'minLength', 0), '.')
    case 'integer':
    case 'number':
      return sampleNumber(schema)
    case 'boolean':
      return true
    case 'null':
      return null
    default:
      throw unsupported(`the type ${JSON.stringify(type)}`)
  }
}

function sampleObject(schema: Schema, text: string, depth: number): Record<string, unknown> {
  const { properties, required } = schema
  const known = isSchema(properties) ? properties : {}
  const names = new Set(Object.keys(known))
  if (Array.isArray(required)) for (const name of required) names.add(String(name))
  return Object.fromEntries(
    Array.from(names, (name) => [name, sampleJson(known[name], text, depth + 1)]),
  )
}

/** The number nearest to zero within the limits, as far as whole numbers reach. */
function sampleNumber(schema: Schema): number {
  const low = Math.max(
    Math.ceil(limit(schema, 'minimum', -Infinity)),
    Math.floor(limit(schema, 'exclusiveMinimum', -Infinity)) + 1,
  )
  const high = Math.min(
    Math.floor(limit(schema, 'maximum', Infinity)),
    Math.ceil(limit(schema, 'exclusiveMaximum', Infinity)) - 1,
  )
  return Math.min(Math.max(0, low), high)
}

function typeOf(schema: Schema): unknown {
  const { type } = schema
  if (Array.isArray(type)) return type[0]
  if (type !== undefined) return type
  if ('properties' in schema || 'required' in schema) return 'object'
  return 'items' in schema ? 'array' : 'string'
}

function limit(schema: Schema, key: string, otherwise: number): number {
  const value = schema[key]
  return typeof value === 'number' ? value : otherwise
}

function isSchema(value: unknown): value is Schema {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function unsupported(what: string): Error {
  return inferenceError('unsupported', `the echo engine cannot answer to ${what}`)
}
