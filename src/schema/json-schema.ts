/** JSON Schema documents of our schemas, for editors and clients. */

import { type Schema, z } from './schema.ts'

/** A JSON Schema, or a part of one. */
export type JsonSchema = z.core.JSONSchema.JSONSchema

/** What a value must look like before defaults and transformations. */
export function toJsonSchema(schema: Schema, target: 'draft-7' | 'draft-2020-12'): JsonSchema {
  // The generator attaches a validator of its own, which is no part of the document.
  const document = JSON.stringify(z.toJSONSchema(schema, { io: 'input', target }))
  return JSON.parse(document) as JsonSchema
}
