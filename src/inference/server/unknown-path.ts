/** The error for an address that this server does not have. */

import { HttpError } from '../../runtime/http/http-error.ts'
import { notFoundError } from '../../runtime/http/http-server.ts'

/** Paths of other servers, and what clients should know about them. */
const advice: readonly (readonly [RegExp, string])[] = [
  [/^(?:\/v1)?\/embeddings$|^\/api\/embed/, 'Embeddings need an embedding model.'],
  [
    /^\/api\/(?:pull|push|create|copy|delete|blobs)/,
    'The configuration of the server decides which models it serves.',
  ],
]

const addPathHint = "'engine.paths' of its configuration adds those of the server behind it."
const enginesHint = "The engines 'openai' and 'process' pass others on to the server behind them."

interface UnknownPathOptions {
  /** The first part of all paths of the server. Default none. */
  readonly basePath?: string | undefined
  /** Whether there is a server behind the engine. Default: false. */
  readonly isPassedOn?: boolean
}

export function unknownPathError(
  path: string,
  { basePath = '', isPassedOn = false }: UnknownPathOptions = {},
): HttpError {
  const hint = `GET ${basePath}/openapi.json lists the addresses of this server.`
  return notFoundError(`${hint} ${isPassedOn ? addPathHint : (findAdvice(path) ?? enginesHint)}`)
}

/** The error for an address that the requested model of several does not have. */
export function otherModelError(path: string, model: string): HttpError {
  const message = `The model '${model}' has nothing at this address.`
  const details = { param: 'model', code: 'unknown_url' }
  return new HttpError(404, [message, findAdvice(path) ?? []].flat().join(' '), details)
}

const findAdvice = (path: string): string | undefined =>
  advice.find(([pattern]) => pattern.test(path))?.[1]
