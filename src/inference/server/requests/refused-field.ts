/** Words the errors for refused fields, with advice on what to use instead. */

import { nearest } from '../../../foundation/options.ts'
import { HttpError } from '../../../runtime/http/http-error.ts'

/** The part that does not support a field, and advice for the client. */
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

/** The error of a strict server for an unread field; `read` has the fields that are read there. */
export function unreadField(path: string, read: Iterable<string> = []): HttpError {
  const reason = 'It has no effect, and the server refuses such fields (server.strict).'
  return unknownField(path, read, reason)
}

/** The error for an unknown field that must not be ignored. */
export function unknownField(path: string, read: Iterable<string>, reason: string): HttpError {
  const near = nearest(path.slice(path.lastIndexOf('.') + 1), [...read])
  const hint = near === undefined ? '' : ` Did you mean '${near}'?`
  const message = `Unrecognized request argument supplied: '${shorten(path)}'.${hint} ${reason}`
  return new HttpError(400, message, { code: 'unknown_parameter', param: shorten(path) })
}

const shorten = (path: string): string => (path.length > 64 ? `${path.slice(0, 61)}...` : path)
