/** Validates the options of engines, for callers without type checks. */

import { type Clock, clockMethods } from '../../foundation/clock.ts'
import { ValueError } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import {
  expectFunction,
  expectInteger,
  expectKnownKeys,
  expectMethods,
  expectNumber,
  expectObject,
  expectString,
  invalid,
} from '../../foundation/options.ts'

type Check = (field: string, value: unknown) => unknown

/** A check for each option. */
export type OptionChecks<Options> = { readonly [Name in keyof Options]-?: Check }

/**
 * Throws `ValueError` for the first option that is missing, invalid or unknown. Allows `kind`,
 * because the keys of a configuration section may be passed as options.
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

export const integerFrom =
  (min: number, max?: number): Check =>
  (field, value) =>
    expectInteger(field, value, max === undefined ? { min } : { min, max })

export const secondsAbove0: Check = (field, value) =>
  expectNumber(field, value, { above: 0, max: 86_400 })

export const oneOf =
  (...allowed: readonly unknown[]): Check =>
  (field, value) => {
    if (allowed.includes(value)) return
    throw invalid(field, `one of ${allowed.map((one) => JSON.stringify(one)).join(', ')}`, value)
  }

/** Checks a key or token, without quoting it in the error. */
export const secretText: Check = (field, value) => {
  if (typeof value === 'string' && value !== '') return
  throw invalidSecret(field, 'a non-empty string, or null', value)
}

/** The error for an invalid value. Does not quote the value, which may be a secret. */
function invalidSecret(field: string, expected: string, value: unknown): ValueError {
  const kind = value === '' ? 'an empty string' : `a value of type ${typeof value}`
  return new ValueError(`Expected \`${field}\` to be ${expected}, got ${kind}`, {
    field,
    expected,
  })
}

/** Checks environment variables, without quoting their values, which may be secrets. */
export const variables: Check = (field, value) => {
  for (const [name, text] of Object.entries(expectObject(field, value))) {
    if (text === undefined || typeof text === 'string') continue
    throw invalidSecret(`${field}.${name}`, 'a string', text)
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

export const pathText: Check = (field, value) => {
  if (typeof value === 'string' && /^\/\S*$/.test(value)) return
  throw invalid(field, 'a path that begins with /', value)
}

const clock: Check = (field, value) => expectMethods(field, value as Clock, clockMethods)
const log: Check = (field, value) => expectMethods(field, value as Log, ['warn'])

/** The checks that several engines share. */
export const sharedChecks = {
  clock,
  log,
  modelName: expectString,
  onProgress: optional(expectFunction),
  maxConcurrency: integerFrom(1, 65_536),
  paths: optional(listOf(pathText)),
} satisfies Record<string, Check>
