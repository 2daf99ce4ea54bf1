/** Reads a request's body, up to a limit. */

import type { IncomingMessage } from 'node:http'
import { HttpError } from '../http-error.ts'

/** Refuses by the headers alone a body that is too large or not plain JSON. */
export function checkBodyHead(request: IncomingMessage, limitBytes: number): void {
  const { headers } = request
  const encoding = headers['content-encoding']
  if (encoding !== undefined && encoding !== 'identity') {
    throw unsupportedMedia('Send the body without Content-Encoding.')
  }
  if (!jsonType.test(headers['content-type'] ?? '')) {
    throw unsupportedMedia('Send the body as Content-Type: application/json.')
  }
  if (Number(headers['content-length'] ?? 0) > limitBytes) throw tooLarge(limitBytes)
}

/** Whether the client sends its body only after `100 Continue`. */
export const waitsForContinue = ({ headers }: Pick<IncomingMessage, 'headers'>): boolean =>
  continueExpectation.test(headers.expect ?? '')

/**
 * The whole body. Rejects with 413 at the first byte beyond the limit, with the request's error
 * when the client disconnects, and with the signal's reason when it is aborted before the end.
 */
export function readBody(
  request: IncomingMessage,
  limitBytes: number,
  signal?: AbortSignal,
): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = []
    let size = 0
    const take = (chunk: Buffer): void => {
      size += chunk.length
      if (size <= limitBytes) {
        chunks.push(chunk)
        return
      }
      stop(tooLarge(limitBytes))
    }
    const stop = (reason: unknown): void => {
      request.off('data', take)
      signal?.removeEventListener('abort', abort)
      chunks.length = 0
      reject(reason)
    }
    const abort = (): void => stop(signal?.reason)
    if (signal?.aborted === true) return abort()
    signal?.addEventListener('abort', abort)
    request.on('data', take)
    request.once('end', () => {
      signal?.removeEventListener('abort', abort)
      const [first] = chunks
      resolve(chunks.length === 1 && first !== undefined ? first : Buffer.concat(chunks, size))
    })
    request.once('error', stop)
  })
}

/** The same expression as in Node. */
const continueExpectation = /(?:^|\W)100-continue(?:$|\W)/i
const jsonType = /^application\/json[ \t]*(?:;[ \t]*charset="?utf-?8"?[ \t]*)?$/i

const unsupportedMedia = (message: string): HttpError =>
  new HttpError(415, message, { code: 'unsupported_media_type' })

const tooLarge = (limitBytes: number): HttpError =>
  new HttpError(413, `The body is larger than ${limitBytes} bytes.`, {
    code: 'request_too_large',
    param: 'body',
  })
