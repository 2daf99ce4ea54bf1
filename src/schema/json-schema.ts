/** JSON Schema documents of the schemas, for editors and clients. */

import { type Schema, z } from './schema.ts'

/** A JSON Schema, or a part of one. */
export type JsonSchema = z.core.JSONSchema.JSONSchema

/** Describes a value before defaults and transformations are applied. */
export function toJsonSchema(schema: Schema, target: 'draft-7' | 'draft-2020-12'): JsonSchema {
  // The generator attaches a validator, which is not part of the document.
  const document = JSON.stringify(z.toJSONSchema(schema, { io: 'input', target }))
  return JSON.parse(document) as JsonSchema
}
