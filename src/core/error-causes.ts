/** Converts the errors within an error (`cause`, `errors`) to an event attribute, and back. */

import { type ErrorRecord, toErrorRecord } from '../foundation/error-record.ts'
import { messageOf, tryRead, TuttiError } from '../foundation/errors.ts'
import { type JsonObject, toJsonValue } from '../foundation/json-value.ts'
import { maskSecrets } from '../foundation/secrets.ts'

const maxCauses = 10
const maxStackLength = 2048

/**
 * Lists the inner errors, outer ones first, each with its path: `cause`, `errors[0]`,
 * `errors[0].cause`. Empty for errors of tutti, whose messages include their causes.
 */
export function describeCauses(error: unknown): { 'tutti.error_causes'?: readonly JsonObject[] } {
  if (!hasInnerErrors(error) || TuttiError.isInstance(error)) return {}
  const found: JsonObject[] = []
  const waiting = listInnerErrors(toErrorRecord(error), '')
  for (const { path, record } of waiting) {
    if (found.length === maxCauses) break
    found.push(toCause(path, record))
    waiting.push(...listInnerErrors(record, `${path}.`))
  }
  return found.length === 0 ? {} : { 'tutti.error_causes': Object.freeze(found) }
}

const hasInnerErrors = (error: unknown): boolean =>
  tryRead(() => error instanceof Error && ('cause' in error || 'errors' in error)) === true

interface InnerError {
  readonly path: string
  readonly record: ErrorRecord
}

function listInnerErrors(record: ErrorRecord, pathPrefix: string): InnerError[] {
  if (!record.isError) return []
  const { cause, errors = [] } = record
  const hasCause = cause !== undefined && (cause.isError || cause.value !== undefined)
  return [
    ...(hasCause ? [{ path: `${pathPrefix}cause`, record: cause }] : []),
    ...errors.map((one, at) => ({ path: `${pathPrefix}errors[${at}]`, record: one })),
  ]
}

function toCause(path: string, record: ErrorRecord): JsonObject {
  if (!record.isError) {
    const error_message = toAttributeText(messageOf(record.value))
    return Object.freeze({ path, error_type: 'unknown', error_message })
  }
  const { type, message, stack } = record
  return Object.freeze({
    path,
    error_type: toAttributeText(type),
    error_message: toAttributeText(message),
    ...(stack === '' ? {} : { error_stack: toAttributeText(stack).slice(0, maxStackLength) }),
  })
}

/** Masks secrets and cuts the text to the length of an attribute. */
export const toAttributeText = (text: string): string => String(toJsonValue(maskSecrets(text)))

/** Adds causes to the record of an error. They have the form that `describeCauses` returns. */
export function withCauses(
  outer: ErrorRecord & { readonly isError: true },
  causes: unknown,
): ErrorRecord {
  const known = (Array.isArray(causes) ? causes : []).flatMap(parseInnerError)
  const addCauses = (record: ErrorRecord, pathPrefix: string): ErrorRecord => {
    if (!record.isError) return record
    const part = (name: string): ErrorRecord | undefined => {
      const path = `${pathPrefix}${name}`
      const found = known.find((one) => one.path === path)
      return found === undefined ? undefined : addCauses(found.record, `${path}.`)
    }
    const cause = part('cause')
    const errors: ErrorRecord[] = []
    for (let one = part('errors[0]'); one !== undefined; one = part(`errors[${errors.length}]`)) {
      errors.push(one)
    }
    return {
      ...record,
      ...(cause === undefined ? {} : { cause }),
      ...(errors.length === 0 ? {} : { errors }),
    }
  }
  return addCauses(outer, '')
}

function parseInnerError(given: unknown): InnerError[] {
  if (typeof given !== 'object' || given === null) return []
  const text = (key: string): string => {
    const value = (given as Record<string, unknown>)[key]
    return typeof value === 'string' ? value : ''
  }
  const [type, message, stack] = [text('error_type'), text('error_message'), text('error_stack')]
  const isError = type !== 'unknown' || stack !== ''
  const error = { isError: true as const, type, name: type, message, stack, fields: {} }
  const record = isError ? error : { isError: false as const, value: message }
  return [{ path: text('path'), record }]
}
