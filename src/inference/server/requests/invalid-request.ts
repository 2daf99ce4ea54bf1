/** The errors for invalid bodies and refused fields, worded as in the chat-completions API. */

import { findNearest } from '../../../foundation/options.ts'
import type { Bound, Problem } from '../../schema/problems.ts'
import { formatPath, getValueAt } from '../../schema/schema.ts'
import { HttpError } from '../../../runtime/http/http-error.ts'

export function toRequestError(problem: Problem, body: unknown): HttpError {
  const path = formatPath(problem.path) || 'body'
  const value = getValueAt(body, problem.path)
  switch (problem.kind) {
    case 'missing':
      return missingFieldError(path)
    case 'type':
      return wrongTypeError(path, problem.expected, value)
    case 'choice': {
      const { allowed, reason } = problem
      const supported = allowed.map((one) => `'${String(one)}'`).join(', ')
      const rest = reason === undefined ? 'Supported' : `${reason}; supported`
      const got = truncate(String(value))
      return wrongValueError(path, `Invalid value: '${got}'. ${rest} values are: ${supported}.`)
    }
    case 'range':
      return outOfRangeError(path, problem.of, Number(value), problem.bound)
    case 'length': {
      const { length } = value as string | readonly unknown[]
      return wrongLengthError(path, problem.of, problem.bound, length)
    }
    case 'format':
      return wrongValueError(path, `Invalid '${path}': expected ${problem.expected}.`)
    case 'invalid_key':
      return wrongValueError(path, `Invalid '${path}': expected ${problem.expected} as key.`)
    default:
      return wrongValueError(path, `Invalid '${path}': it does not fit the schema of this request.`)
  }
}

export function missingFieldError(path: string): HttpError {
  return new HttpError(400, `Missing required parameter: '${path}'.`, {
    code: 'missing_required_parameter',
    param: path,
  })
}

export function wrongTypeError(path: string, expected: string, got: unknown): HttpError {
  return new HttpError(
    400,
    `Invalid type for '${path}': expected ${expected}, but got ${describeType(got)} instead.`,
    { code: 'invalid_type', param: path },
  )
}

export function wrongValueError(path: string, message: string): HttpError {
  return new HttpError(400, message, { code: 'invalid_value', param: path })
}

export function outOfRangeError(
  path: string,
  kind: 'integer' | 'decimal',
  value: number,
  { side, value: limit, isInclusive }: Bound,
): HttpError {
  const isAbove = side === 'max'
  const sign = `${isAbove ? '<' : '>'}${isInclusive ? '=' : ''}`
  return new HttpError(
    400,
    `Invalid '${path}': ${kind} ${isAbove ? 'above maximum' : 'below minimum'} value. ` +
      `Expected a value ${sign} ${limit}, but got ${value} instead.`,
    { code: `${kind}_${isAbove ? 'above_max' : 'below_min'}_value`, param: path },
  )
}

export function unknownModelError(requested: string, served: readonly string[]): HttpError {
  const name = requested.length > 128 ? `${requested.slice(0, 125)}...` : requested
  return new HttpError(
    404,
    `The model '${name}' does not exist here. Served: ${served.join(', ')}.`,
    { code: 'model_not_found', param: 'model' },
  )
}

export function wrongLengthError(
  path: string,
  of: 'string' | 'array',
  { side, value: limit }: Bound,
  length: number,
): HttpError {
  const kindText = of === 'string' ? 'a string' : 'an array'
  if (side === 'min') {
    const message =
      `Invalid '${path}': empty ${of}. Expected ${kindText} with minimum length ${limit}, ` +
      `but got an empty ${of} instead.`
    return of === 'string'
      ? new HttpError(400, message, { code: 'empty_string', param: path })
      : new HttpError(400, message, { code: 'empty_array', param: path })
  }
  const message =
    `Invalid '${path}': ${of} too long. Expected ${kindText} with maximum length ${limit}, ` +
    `but got ${kindText} with length ${length} instead.`
  return of === 'string'
    ? new HttpError(400, message, { code: 'string_above_max_length', param: path })
    : new HttpError(400, message, { code: 'array_above_max_length', param: path })
}

const truncate = (text: string): string => (text.length > 64 ? `${text.slice(0, 61)}...` : text)

function describeType(value: unknown): string {
  if (value === null) return 'null'
  if (Array.isArray(value)) return 'an array'
  if (typeof value === 'number') return Number.isInteger(value) ? 'an integer' : 'a decimal'
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`
}

/** `source` does not support the field. `advice` tells the client what to do. */
export interface UnsupportedReason {
  readonly source: string
  readonly advice: string
}

export function unsupportedFieldError(
  path: string,
  { source, advice }: UnsupportedReason,
): HttpError {
  const name = truncate(path)
  const message = `Unsupported parameter: '${name}' is not supported by ${source}. ${advice}`
  return new HttpError(400, message, { code: 'unsupported_parameter', param: name })
}

/** The error of a strict server for a field without effect. May suggest one of `knownNames`. */
export function unreadFieldError(path: string, knownNames: Iterable<string> = []): HttpError {
  const reason = 'It has no effect, and the server refuses such fields (server.strict).'
  return unknownFieldError(path, knownNames, reason)
}

/** The error for a field that must not be ignored. May suggest one of `knownNames`. */
export function unknownFieldError(
  path: string,
  knownNames: Iterable<string>,
  reason: string,
): HttpError {
  const suggestion = findNearest(path.slice(path.lastIndexOf('.') + 1), [...knownNames])
  const hint = suggestion === undefined ? '' : ` Did you mean '${suggestion}'?`
  const message = `Unrecognized request argument supplied: '${truncate(path)}'.${hint} ${reason}`
  return new HttpError(400, message, { code: 'unknown_parameter', param: truncate(path) })
}
