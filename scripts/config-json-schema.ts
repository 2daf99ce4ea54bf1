/** The JSON Schema of the configuration file, for editors. */

import { createConfigSchema } from '../src/inference/config/config-schema.ts'
import { type JsonSchema, toJsonSchema } from '../src/inference/schema/schema.ts'

export function configJsonSchema(): JsonSchema {
  const schema = toJsonSchema(createConfigSchema({}), 'draft-7')
  const title = 'Configuration of a tutti inference backend'
  return { ...(allowNulls(schema) as JsonSchema), title }
}

/** Returns a copy of the schema in which every optional key may also be null, as in `key:`. */
function allowNulls(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(allowNulls)
  if (typeof schema !== 'object' || schema === null) return schema
  const entries = Object.entries(schema).map(([key, value]) => [key, allowNulls(value)])
  const copy = Object.fromEntries(entries) as JsonSchema
  const { properties, required = [] } = copy
  if (properties === undefined) return copy
  const names = Object.keys(properties)
  const optional = names.map((name) => {
    const property = properties[name] as JsonSchema
    return [name, required.includes(name) ? property : allowNull(property)]
  })
  return { ...copy, properties: Object.fromEntries(optional) }
}

function allowNull(schema: JsonSchema): JsonSchema {
  const { type, const: only, enum: choices, anyOf, oneOf: kinds, ...rest } = schema
  if (only !== undefined) return { ...rest, enum: [only, null] }
  if (choices !== undefined) return { ...rest, enum: [...choices, null] }
  if (anyOf !== undefined) return { ...rest, anyOf: [...anyOf, { type: 'null' }] }
  if (kinds !== undefined) return { ...rest, oneOf: [...kinds, { type: 'null' }] }
  return { ...rest, type: [type, 'null'] } as unknown as JsonSchema
}
