/** The only file that imports the schema library. Schemas of external data are written with `z`. */

import { z } from 'zod'

export { z }

/** Any schema of the library. */
export type Schema = z.core.$ZodType

/** A JSON Schema, or a part of one. */
export type JsonSchema = z.core.JSONSchema.JSONSchema

/** The JSON Schema of the input, before defaults and transformations are applied. */
export function toJsonSchema(schema: Schema, target: 'draft-7' | 'draft-2020-12'): JsonSchema {
  // Serializing removes the validator that the generator attaches to the document.
  const document = JSON.stringify(z.toJSONSchema(schema, { io: 'input', target }))
  return JSON.parse(document) as JsonSchema
}

/** The position of a value inside a document: keys and list indexes. */
export type Path = readonly (string | number)[]

/** Notes for error messages, which the library cannot attach to a schema itself. */
interface Notes {
  /** Completes "expected …". Default: the type, such as `an integer`. */
  readonly expected?: string
  /** Replaces `expected` for a string with the wrong format. */
  readonly format?: string
  /** Why only these values are allowed, such as `This model reads text only`. */
  readonly reason?: string
  /** The value may be a secret, so no message may quote it. */
  readonly isPrivate?: boolean
}

const notes = z.registry<Notes>()

/** Attaches notes to a schema and returns it. */
export function annotate<S extends Schema>(schema: S, about: Notes): S {
  notes.add(schema, about)
  return schema
}

/** The schema of the value at a path. The actual value selects the alternative of a union. */
export function schemaAt(root: Schema, path: Path, value: unknown): Schema | undefined {
  let [schema, found]: [Schema | undefined, unknown] = [root, value]
  for (const step of path) {
    schema = childOf(schema, step, found)
    found = valueAt(found, [step])
    if (schema === undefined) return undefined
  }
  return schema
}

function childOf(
  parent: Schema | undefined,
  step: string | number,
  value: unknown,
): Schema | undefined {
  if (parent instanceof z.ZodPipe) {
    return childOf(parent.def.in, step, value) ?? childOf(parent.def.out, step, value)
  }
  const below = layerBelow(parent)
  if (below !== undefined) return childOf(below, step, value)
  if (parent instanceof z.ZodObject) return parent.shape[step] as Schema | undefined
  if (parent instanceof z.ZodArray) return parent.element
  if (parent instanceof z.ZodRecord) return parent.valueType
  const option = optionFor(parent, value)
  return option === undefined ? undefined : childOf(option, step, value)
}

/** The keys of an object schema, or of the alternative of a union that the value resembles. */
export function keysOf(parent: Schema, value: unknown): string[] {
  const schema = unwrapped(parent)
  if (schema instanceof z.ZodObject) return Object.keys(schema.shape)
  const option = optionFor(schema, value)
  return option === undefined ? [] : keysOf(option, value)
}

/** The alternative of a union that the value resembles; `undefined` if there is none. */
function optionFor(union: Schema | undefined, value: unknown): Schema | undefined {
  const schema = unwrapped(union)
  if (schema instanceof z.ZodDiscriminatedUnion) {
    const { discriminator } = schema.def
    const named = valueAt(value, [discriminator])
    return schema.options.find((option) => {
      const selector = childOf(option, discriminator, value)
      return selector !== undefined && z.validate(selector, named)
    })
  }
  if (!(schema instanceof z.ZodUnion)) return undefined
  return schema.options.find((option) => hasShapeOf(option, value))
}

/** Whether a value has the JSON type that a schema describes. Its content is not checked. */
export function hasShapeOf(option: Schema, value: unknown): boolean {
  const schema = unwrapped(option)
  if (schema instanceof z.ZodArray) return Array.isArray(value)
  if (schema instanceof z.ZodObject || schema instanceof z.ZodRecord) return isObject(value)
  if (schema instanceof z.ZodNumber) return typeof value === 'number'
  if (schema instanceof z.ZodBoolean) return typeof value === 'boolean'
  return typeof value === 'string'
}

/** Removes wrappers that make a value optional, give it a default or transform it. */
export function unwrapped(schema: Schema | undefined): Schema | undefined {
  let inner = schema
  for (;;) {
    const next = layerBelow(inner)
    if (next === undefined) return inner
    inner = next
  }
}

function layerBelow(schema: Schema | undefined): Schema | undefined {
  if (
    schema instanceof z.ZodOptional ||
    schema instanceof z.ZodNullable ||
    schema instanceof z.ZodDefault ||
    schema instanceof z.ZodPrefault
  ) {
    return schema.def.innerType
  }
  return schema instanceof z.ZodPipe ? schema.def.in : undefined
}

/** The note of a schema or of a schema that it wraps; the outermost note wins. */
export function noteOf<K extends keyof Notes>(
  schema: Schema | undefined,
  key: K,
): Notes[K] | undefined {
  for (let inner = schema; inner !== undefined; inner = layerBelow(inner)) {
    const note = notes.get(inner as z.ZodType)?.[key]
    if (note !== undefined) return note
  }
  return undefined
}

export const isPrivate = (schema: Schema | undefined): boolean =>
  noteOf(schema, 'isPrivate') === true

/** Whether a schema describes a number, possibly inside wrappers such as a default. */
export const isNumber = (schema: Schema | undefined): boolean =>
  unwrapped(schema) instanceof z.ZodNumber

/** Whether a schema describes a map with arbitrary keys. */
export const isRecord = (schema: Schema | undefined): boolean =>
  unwrapped(schema) instanceof z.ZodRecord

export function isInteger(schema: Schema | undefined): boolean {
  const inner = unwrapped(schema)
  return inner instanceof z.ZodNumber && inner.format === 'safeint'
}

/** Completes "expected …" for a schema. */
export function expectationOf(schema: Schema | undefined): string {
  const noted = noteOf(schema, 'expected')
  if (noted !== undefined) return noted
  const inner = unwrapped(schema)
  if (inner instanceof z.ZodEnum) return oneOf(inner.options)
  if (inner instanceof z.ZodLiteral) return oneOf([...inner.values])
  if (inner instanceof z.ZodNumber) return isInteger(inner) ? 'an integer' : 'a decimal'
  if (inner instanceof z.ZodBoolean) return 'a boolean'
  if (inner instanceof z.ZodArray) return 'an array'
  return inner instanceof z.ZodString ? 'a string' : 'an object'
}

export const oneOf = (allowed: readonly unknown[]): string =>
  `one of ${allowed.map((one) => `'${String(one)}'`).join(', ')}`

const isObject = (value: unknown): value is Readonly<Record<string | number, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** The value at a path; `undefined` if there is none. */
export function valueAt(value: unknown, path: Path): unknown {
  let found = value
  for (const step of path) {
    if (Array.isArray(found)) found = found[Number(step)]
    else found = isObject(found) && Object.hasOwn(found, step) ? found[step] : undefined
  }
  return found
}
