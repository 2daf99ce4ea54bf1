/** The errors for invalid bodies and refused fields, worded as in the chat-completions API. */

import { nearest } from '../../../foundation/options.ts'
import type { Bound, Problem } from '../../schema/problems.ts'
import { type Path, valueAt } from '../../schema/schema.ts'
import { HttpError } from '../../../runtime/http/http-error.ts'

/** The error for the first problem of a body. */
export function invalidRequest(problem: Problem, body: unknown): HttpError {
  const path = pathText(problem.path)
  const value = valueAt(body, problem.path)
  switch (problem.kind) {
    case 'missing':
      return missingField(path)
    case 'type':
      return wrongType(path, problem.expected, value)
    case 'choice': {
      const { allowed, reason } = problem
      const supported = allowed.map((one) => `'${String(one)}'`).join(', ')
      const rest = reason === undefined ? 'Supported' : `${reason}; supported`
      const got = shorten(String(value))
      return wrongValue(path, `Invalid value: '${got}'. ${rest} values are: ${supported}.`)
    }
    case 'range':
      return outOfRange(path, problem.of, Number(value), problem.bound)
    case 'length': {
      const { length } = value as string | readonly unknown[]
      return wrongLength(path, problem.of, problem.bound, length)
    }
    case 'format':
      return wrongValue(path, `Invalid '${path}': expected ${problem.expected}.`)
    case 'invalid_key':
      return wrongValue(path, `Invalid '${path}': expected ${problem.expected} as key.`)
    default:
      return wrongValue(path, `Invalid '${path}': it does not fit the schema of this request.`)
  }
}

/** The error for a field that must be given. */
export function missingField(path: string): HttpError {
  return new HttpError(400, `Missing required parameter: '${path}'.`, {
    code: 'missing_required_parameter',
    param: path,
  })
}

export function wrongType(path: string, expected: string, got: unknown): HttpError {
  return new HttpError(
    400,
    `Invalid type for '${path}': expected ${expected}, but got ${kindOf(got)} instead.`,
    { code: 'invalid_type', param: path },
  )
}

export function wrongValue(path: string, message: string): HttpError {
  return new HttpError(400, message, { code: 'invalid_value', param: path })
}

/** The error for a number outside its bounds. */
export function outOfRange(
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

/** The error for a model that is not served; it names the served models. */
export function unknownModel(asked: string, served: readonly string[]): HttpError {
  const name = asked.length > 128 ? `${asked.slice(0, 125)}...` : asked
  return new HttpError(
    404,
    `The model '${name}' does not exist here. Served: ${served.join(', ')}.`,
    { code: 'model_not_found', param: 'model' },
  )
}

/** The error for a text or a list that is empty or too long. */
export function wrongLength(
  path: string,
  of: 'string' | 'array',
  { side, value: limit }: Bound,
  length: number,
): HttpError {
  const some = of === 'string' ? 'a string' : 'an array'
  if (side === 'min') {
    const message =
      `Invalid '${path}': empty ${of}. Expected ${some} with minimum length ${limit}, ` +
      `but got an empty ${of} instead.`
    return of === 'string'
      ? new HttpError(400, message, { code: 'empty_string', param: path })
      : new HttpError(400, message, { code: 'empty_array', param: path })
  }
  const message =
    `Invalid '${path}': ${of} too long. Expected ${some} with maximum length ${limit}, ` +
    `but got ${some} with length ${length} instead.`
  return of === 'string'
    ? new HttpError(400, message, { code: 'string_above_max_length', param: path })
    : new HttpError(400, message, { code: 'array_above_max_length', param: path })
}

/** Formats a path, such as `messages[0].role`. The body itself is `body`. */
function pathText(path: Path): string {
  const text = path.map((step) => (typeof step === 'number' ? `[${step}]` : `.${step}`)).join('')
  return text === '' ? 'body' : text.slice(1)
}

const shorten = (text: string): string => (text.length > 64 ? `${text.slice(0, 61)}...` : text)

function kindOf(value: unknown): string {
  if (value === null) return 'null'
  if (Array.isArray(value)) return 'an array'
  if (typeof value === 'number') return Number.isInteger(value) ? 'an integer' : 'a decimal'
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`
}

/** What does not support a field, such as the engine, and advice for the client. */
export interface Limit {
  readonly by: string
  readonly advice: string
}

/** The error for a field that the engine of the model, or this path, does not support. */
export function unsupportedField(path: string, { by, advice }: Limit): HttpError {
  const name = shorten(path)
  const message = `Unsupported parameter: '${name}' is not supported by ${by}. ${advice}`
  return new HttpError(400, message, { code: 'unsupported_parameter', param: name })
}

/** The error of a strict server for an unread field. `read` has the names to suggest. */
export function unreadField(path: string, read: Iterable<string> = []): HttpError {
  const reason = 'It has no effect, and the server refuses such fields (server.strict).'
  return unknownField(path, read, reason)
}

/** The error for an unknown field that must not be ignored. `read` has the names to suggest. */
export function unknownField(path: string, read: Iterable<string>, reason: string): HttpError {
  const near = nearest(path.slice(path.lastIndexOf('.') + 1), [...read])
  const hint = near === undefined ? '' : ` Did you mean '${near}'?`
  const message = `Unrecognized request argument supplied: '${shorten(path)}'.${hint} ${reason}`
  return new HttpError(400, message, { code: 'unknown_parameter', param: shorten(path) })
}
