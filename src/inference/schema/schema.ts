/** The only file that imports the schema library. Schemas of external data are written with `z`. */

import { z } from 'zod'
import { isPlainObject } from '../../foundation/json-value.ts'

export { z }

export type Schema = z.core.$ZodType

export type JsonSchema = z.core.JSONSchema.JSONSchema

/** Returns the JSON Schema of the input, before defaults and transformations are applied. */
export function toJsonSchema(schema: Schema, target: 'draft-7' | 'draft-2020-12'): JsonSchema {
  // Serializing removes the validator that the generator attaches to the document.
  const document = JSON.stringify(z.toJSONSchema(schema, { io: 'input', target }))
  return JSON.parse(document) as JsonSchema
}

export type Path = readonly (string | number)[]

export function formatPath(path: Path): string {
  const text = path.map((step) => (typeof step === 'number' ? `[${step}]` : `.${step}`)).join('')
  return text.startsWith('.') ? text.slice(1) : text
}

/** Notes on a schema that error messages use. The schema library has no place for them. */
interface SchemaNotes {
  /** Completes "expected …". Default: the type, such as `an integer`. */
  readonly expected?: string
  /** Replaces `expected` for a string with the wrong format. */
  readonly format?: string
  /** Why only these values are allowed, such as `This model reads text only`. */
  readonly reason?: string
  /** The value may be a secret, so no message may quote it. */
  readonly isPrivate?: boolean
}

const notes = z.registry<SchemaNotes>()

export function annotate<S extends Schema>(schema: S, about: SchemaNotes): S {
  notes.add(schema, about)
  return schema
}

/** Returns the schema of the value at a path. In a union, `value` selects the alternative. */
export function getSchemaAt(root: Schema, path: Path, value: unknown): Schema | undefined {
  let [schema, found]: [Schema | undefined, unknown] = [root, value]
  for (const step of path) {
    schema = getChildSchema(schema, step, found)
    found = getValueAt(found, [step])
    if (schema === undefined) return undefined
  }
  return schema
}

function getChildSchema(
  parent: Schema | undefined,
  step: string | number,
  value: unknown,
): Schema | undefined {
  if (parent instanceof z.ZodPipe) {
    return getChildSchema(parent.def.in, step, value) ?? getChildSchema(parent.def.out, step, value)
  }
  const below = unwrapOnce(parent)
  if (below !== undefined) return getChildSchema(below, step, value)
  if (parent instanceof z.ZodObject) return parent.shape[step] as Schema | undefined
  if (parent instanceof z.ZodArray) return parent.element
  if (parent instanceof z.ZodRecord) return parent.valueType
  const option = selectOption(parent, value)
  return option === undefined ? undefined : getChildSchema(option, step, value)
}

/** For a union, returns the keys of the alternative that the value resembles. */
export function listKeys(parent: Schema, value: unknown): string[] {
  const schema = unwrap(parent)
  if (schema instanceof z.ZodObject) return Object.keys(schema.shape)
  const option = selectOption(schema, value)
  return option === undefined ? [] : listKeys(option, value)
}

function selectOption(union: Schema | undefined, value: unknown): Schema | undefined {
  const schema = unwrap(union)
  if (schema instanceof z.ZodDiscriminatedUnion) {
    const { discriminator } = schema.def
    const named = getValueAt(value, [discriminator])
    return schema.options.find((option) => {
      const selector = getChildSchema(option, discriminator, value)
      return selector !== undefined && z.validate(selector, named)
    })
  }
  if (!(schema instanceof z.ZodUnion)) return undefined
  return schema.options.find((option) => hasShapeOf(option, value))
}

/** Whether a value has the JSON type that an alternative of a union accepts. */
export function hasShapeOf(option: Schema, value: unknown): boolean {
  const schema = unwrap(option)
  if (schema instanceof z.ZodArray) return Array.isArray(value)
  if (schema instanceof z.ZodObject || schema instanceof z.ZodRecord) return isPlainObject(value)
  if (schema instanceof z.ZodNumber) return typeof value === 'number'
  if (schema instanceof z.ZodBoolean) return typeof value === 'boolean'
  return typeof value === 'string'
}

/** Removes the wrappers that make a value optional, give it a default or transform it. */
export function unwrap(schema: Schema | undefined): Schema | undefined {
  let inner = schema
  for (;;) {
    const next = unwrapOnce(inner)
    if (next === undefined) return inner
    inner = next
  }
}

function unwrapOnce(schema: Schema | undefined): Schema | undefined {
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

/** Returns the note of a schema or of a schema that it wraps. The outermost note wins. */
export function getNote<K extends keyof SchemaNotes>(
  schema: Schema | undefined,
  key: K,
): SchemaNotes[K] | undefined {
  for (let inner = schema; inner !== undefined; inner = unwrapOnce(inner)) {
    const note = notes.get(inner as z.ZodType)?.[key]
    if (note !== undefined) return note
  }
  return undefined
}

export const isPrivate = (schema: Schema | undefined): boolean =>
  getNote(schema, 'isPrivate') === true

export const isNumber = (schema: Schema | undefined): boolean =>
  unwrap(schema) instanceof z.ZodNumber

export const isRecord = (schema: Schema | undefined): boolean =>
  unwrap(schema) instanceof z.ZodRecord

export function isInteger(schema: Schema | undefined): boolean {
  const inner = unwrap(schema)
  return inner instanceof z.ZodNumber && inner.format === 'safeint'
}

export function describeExpected(schema: Schema | undefined): string {
  const noted = getNote(schema, 'expected')
  if (noted !== undefined) return noted
  const inner = unwrap(schema)
  if (inner instanceof z.ZodEnum) return formatChoices(inner.options)
  if (inner instanceof z.ZodLiteral) return formatChoices([...inner.values])
  if (inner instanceof z.ZodNumber) return isInteger(inner) ? 'an integer' : 'a decimal'
  if (inner instanceof z.ZodBoolean) return 'a boolean'
  if (inner instanceof z.ZodArray) return 'an array'
  return inner instanceof z.ZodString ? 'a string' : 'an object'
}

export const formatChoices = (allowed: readonly unknown[]): string =>
  `one of ${allowed.map((one) => `'${String(one)}'`).join(', ')}`

export function getValueAt(value: unknown, path: Path): unknown {
  let found = value
  for (const step of path) {
    if (Array.isArray(found)) found = found[Number(step)]
    else found = isPlainObject(found) && Object.hasOwn(found, step) ? found[step] : undefined
  }
  return found
}
