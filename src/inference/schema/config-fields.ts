/** Schemas for single values of a configuration, with texts for their error messages. */

import { annotate, z } from './schema.ts'

export type Environment = Readonly<Record<string, string | undefined>>

export const settingRanges = {
  numNodes: { min: 1, max: 65_536 },
  numGpus: { min: 0, max: 1024 },
  tpSize: { min: 1, max: 1024 },
  offset: { min: 0, max: 65_535 },
  maxBatchSize: { min: 1, max: 65_536 },
  maxBatchWaitMs: { min: 0, max: 3_600_000 },
} as const

export const integer = (min: number, max: number) =>
  annotate(z.int().min(min).max(max), { expected: `an integer from ${min} to ${max}` })

export const numberBetween = (min: number, max: number) =>
  annotate(z.number().min(min).max(max), { expected: `a number from ${min} to ${max}` })

export const numberAbove = (above: number, max: number) =>
  annotate(z.number().gt(above).max(max), {
    expected: `a number above ${above} and at most ${max}`,
  })

export const toggle = () => annotate(z.boolean(), { expected: 'true or false' })

export const oneOf = <const T extends string>(...allowed: readonly T[]) =>
  annotate(z.enum(allowed), { expected: `one of ${allowed.join(', ')}` })

/** A map with known keys. The message about an unknown key suggests the nearest one. */
export const section = <S extends z.core.$ZodLooseShape>(shape: S) =>
  annotate(z.strictObject(shape), { expected: 'keys and values', isPrivate: true })

export interface TextSchemaOptions {
  readonly isPrivate?: boolean
  readonly maxLength?: number
  readonly pattern?: RegExp
  readonly expected?: string
}

/** Creates a function that returns schemas of texts in which `${env:NAME}` is replaced. */
export function createTextSchema(env: Environment) {
  return (options: TextSchemaOptions = {}) => {
    const { isPrivate = false, maxLength = 65_536, pattern = /^/ } = options
    const { expected = 'a non-empty text' } = options
    const schema = z.string().transform((written, context) => {
      const value = expandVariables(written, env, context)
      if (value.length > maxLength) {
        addIssue(context, `expected at most ${maxLength} characters, got ${value.length}`)
      } else if (context.issues.length === 0 && (value === '' || !pattern.test(value))) {
        addFormatIssue(context, value)
      }
      return value
    })
    return annotate(schema.meta({ minLength: 1 }), { expected, isPrivate })
  }
}

/** Accepts one value or a list of values; the result is always a list. */
export const listOf = <S extends z.ZodType>(
  item: S,
  { max = 1000, ...about }: { max?: number; expected: string; isPrivate?: boolean },
) =>
  annotate(
    z.union([item, z.array(item).max(max)]).transform((value) => [value].flat() as z.output<S>[]),
    about,
  )

export const orNull = <S extends z.ZodType>(schema: S) =>
  schema.optional().transform((value) => value ?? null)

type Context = z.core.$RefinementCtx

export function addIssue(context: Context, message: string): void {
  context.issues.push({ code: 'custom', message, input: context.value })
}

export function addFormatIssue(context: Context, input: string): void {
  context.issues.push({ code: 'invalid_format', format: 'text', input })
}

const envReference = /\$\{env:([^}]*)\}/g

function expandVariables(text: string, env: Environment, context: Context): string {
  return text.replaceAll(envReference, (_, name: string) => {
    const isKnown = /^[A-Za-z_]\w*$/.test(name) && Object.hasOwn(env, name)
    const value = isKnown ? env[name] : undefined
    if (value === undefined) {
      addIssue(context, `the environment variable ${name === '' ? '(no name)' : name} is not set`)
    }
    return value ?? ''
  })
}

export const toCamelCase = (text: string): string =>
  text.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())
