/** Errors that HTTP clients see, and the interface through which a server words them. */

export interface HttpErrorDetails {
  /** `null` only if an upstream server sent an error without a code. */
  readonly code: string | null
  /** The path of the wrong field, such as `messages[0].role`. */
  readonly param?: string | null
  /** Additional headers, as alternating names and values. */
  readonly headers?: readonly string[]
  /** Additional fields of the error. */
  readonly details?: Readonly<Record<string, number>>
}

/** An error whose message may be shown to the client. Never leaves the server. */
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

/** How a server words its errors. */
export interface ErrorReplies {
  /** Converts anything thrown to the client's error. Logs details that the client must not see. */
  toHttpError(thrown: unknown, requestId: string, path: string): HttpError
  /** The body of an error response. The path is empty if the request could not be read. */
  toBody(error: HttpError, path: string): object
  /** The reason with which the work for a request is aborted. */
  toAbortReason(text: string): Error
  /** The error for an address that the server cannot listen on. */
  toListenError(message: string, details: ListenErrorDetails): Error
}

export interface ListenErrorDetails {
  readonly code: 'port_in_use' | 'port_forbidden' | 'host_unknown' | 'listen_failed'
  readonly hint?: string
  readonly cause: Error
}
