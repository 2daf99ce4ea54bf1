/** The JSON Schema of configuration files: editors read it from `docs/config.schema.json`. */

import { type JsonSchema, toJsonSchema } from '../../../schema/json-schema.ts'
import { createConfigSchema } from './config-schema.ts'

export function configJsonSchema(): JsonSchema {
  const schema = toJsonSchema(createConfigSchema({}), 'draft-7')
  const title = 'Configuration of a tutti inference backend'
  return { ...(withNulls(schema) as JsonSchema), title }
}

/** The same schema, in which every key that may be left out may also have no value. */
function withNulls(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(withNulls)
  if (typeof schema !== 'object' || schema === null) return schema
  const entries = Object.entries(schema).map(([key, value]) => [key, withNulls(value)])
  const copy = Object.fromEntries(entries) as JsonSchema
  const { properties, required = [] } = copy
  if (properties === undefined) return copy
  const names = Object.keys(properties)
  const optional = names.map((name) => {
    const property = properties[name] as JsonSchema
    return [name, required.includes(name) ? property : orNull(property)]
  })
  return { ...copy, properties: Object.fromEntries(optional) }
}

function orNull(schema: JsonSchema): JsonSchema {
  const { type, const: only, enum: choices, anyOf, oneOf, ...rest } = schema
  if (only !== undefined) return { ...rest, enum: [only, null] }
  if (choices !== undefined) return { ...rest, enum: [...choices, null] }
  if (anyOf !== undefined) return { ...rest, anyOf: [...anyOf, { type: 'null' }] }
  if (oneOf !== undefined) return { ...rest, oneOf: [...oneOf, { type: 'null' }] }
  return { ...rest, type: [type, 'null'] } as unknown as JsonSchema
}
