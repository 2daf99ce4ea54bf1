/** Validates the options of engines, for callers without type checks. */

import { type Clock, clockMethods } from '../../foundation/clock.ts'
import type { Log } from '../../foundation/log.ts'
import {
  expectFunction,
  expectInteger,
  expectKnownKeys,
  expectMethods,
  expectNumber,
  expectObject,
  expectSecret,
  expectString,
  invalid,
} from '../../foundation/options.ts'

type Check = (field: string, value: unknown) => unknown

export type OptionChecks<Options> = { readonly [Name in keyof Options]-?: Check }

/**
 * Throws for the first wrong option. Allows `kind`, so that a section of a configuration may be
 * passed as options.
 */
export function expectOptions<Options extends object>(
  engine: string,
  options: Options,
  checks: OptionChecks<Options>,
): void {
  const given = expectObject('options', options)
  expectKnownKeys(engine, given, [...Object.keys(checks), 'kind'])
  for (const [field, check] of Object.entries<Check>(checks)) check(field, given[field])
}

export const optional =
  (check: Check): Check =>
  (field, value) =>
    value === undefined || check(field, value)

export const nullable =
  (check: Check): Check =>
  (field, value) =>
    value === null || check(field, value)

export const integerAtLeast =
  (min: number, max?: number): Check =>
  (field, value) =>
    expectInteger(field, value, max === undefined ? { min } : { min, max })

export const positiveSeconds: Check = (field, value) =>
  expectNumber(field, value, { above: 0, max: 86_400 })

export const oneOf =
  (...allowed: readonly unknown[]): Check =>
  (field, value) => {
    if (allowed.includes(value)) return
    throw invalid(field, `one of ${allowed.map((one) => JSON.stringify(one)).join(', ')}`, value)
  }

/** Checks environment variables. Errors do not quote the values, which may be secrets. */
export const environmentVariables: Check = (field, value) => {
  for (const [name, text] of Object.entries(expectObject(field, value))) {
    if (text !== undefined && text !== '') expectSecret(`${field}.${name}`, text)
  }
}

export const plainText: Check = (field, value) => {
  if (typeof value !== 'string') throw invalid(field, 'a string', value)
}

export const listOf =
  (check: Check): Check =>
  (field, value) => {
    if (!Array.isArray(value)) throw invalid(field, 'a list', value)
    for (const [at, item] of value.entries()) check(`${field}[${at}]`, item)
  }

export const urlPathSchema: Check = (field, value) => {
  if (typeof value === 'string' && /^\/\S*$/.test(value)) return
  throw invalid(field, 'a path that begins with /', value)
}

export const sharedChecks = {
  clock: (field, value) => expectMethods(field, value as Clock, clockMethods),
  log: (field, value) => expectMethods(field, value as Log, ['warn']),
  modelName: expectString,
  onProgress: optional(expectFunction),
  maxConcurrency: integerAtLeast(1, 65_536),
  paths: optional(listOf(urlPathSchema)),
} satisfies Record<string, Check>
