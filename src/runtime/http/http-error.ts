/** Errors for HTTP clients, and the interface by which a server creates their responses. */

import type { IncomingHttpHeaders } from 'node:http'

export interface HttpErrorDetails {
  /** The error code; `null` only if an upstream server sent an error without a code. */
  readonly code: string | null
  /** The path of the wrong field, such as `messages[0].role`. */
  readonly param?: string | null
  /** Additional headers, as alternating names and values. */
  readonly headers?: readonly string[]
  readonly details?: Readonly<Record<string, number>>
}

/** An error whose message is safe to send to the client. */
export class HttpError extends Error {
  readonly code: string | null
  readonly status: number
  readonly param: string | null
  readonly headers: readonly string[]
  readonly details: Readonly<Record<string, number>>

  constructor(status: number, message: string, details: HttpErrorDetails) {
    super(message)
    this.code = details.code
    this.status = status
    this.param = details.param ?? null
    this.headers = details.headers ?? []
    this.details = details.details ?? {}
  }
}

/** Creates the errors of a server. */
export interface ErrorReplies {
  /** Converts anything thrown to an error for the client. Logs what the client must not see. */
  toHttpError(thrown: unknown, requestId: string, path: string): HttpError
  /** Returns the body of an error response. The path is empty if the request could not be read. */
  toBody(error: HttpError, path: string, headers: IncomingHttpHeaders): object
  toAbortReason(text: string): Error
  toListenError(message: string, details: ListenErrorDetails): Error
}

export interface ListenErrorDetails {
  readonly code: 'port_in_use' | 'port_forbidden' | 'host_unknown' | 'listen_failed'
  readonly hint?: string
  readonly cause: Error
}
