/** The error for an address that this server does not have. */

import type { HttpError } from '../../runtime/http/http-error.ts'
import { notFoundError } from '../../runtime/http/http-server.ts'

/** Paths of other servers, and what clients should know about them. */
const advice: readonly (readonly [RegExp, string])[] = [
  [/^(?:\/v1)?\/embeddings$|^\/api\/embed/, 'Embeddings need an embedding model.'],
  [
    /^\/api\/(?:pull|push|create|copy|delete|blobs)/,
    'The configuration of the server decides which models it serves.',
  ],
]

const openApiHint = 'GET /openapi.json lists the addresses of this server.'
const addPathHint = "'engine.paths' of its configuration adds those of the server behind it."
const enginesHint = "The engines 'openai' and 'process' pass others on to the server behind them."

/** `isPassedOn`: whether there is a server behind the engine. */
export function unknownPathError(path: string, isPassedOn: boolean): HttpError {
  const [, text] = advice.find(([pattern]) => pattern.test(path)) ?? []
  return notFoundError(`${openApiHint} ${isPassedOn ? addPathHint : (text ?? enginesHint)}`)
}
