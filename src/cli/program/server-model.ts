/** What commands need to use an inference server: its key, its model, and its errors. */

import { BackendError, errnoOf, messageOf, ValueError } from '../../foundation/errors.ts'
import { isPlainObject } from '../../foundation/json-value.ts'
import { describeReadProblem, readTextFileSync } from '../../foundation/regular-file.ts'
import { firstLine } from '../../views/readable.ts'

/** Returns the base URL of a server. The address may end with `/v1`, as API clients need it. */
export function toBase(address: string, field: string): URL {
  const url = URL.parse(address)
  if (url === null || !/^https?:$/.test(url.protocol)) {
    const example = 'expected an address such as http://127.0.0.1:8000'
    throw new ValueError(`${field}: ${example}, got "${firstLine(address)}"`, { field })
  }
  url.pathname = `${url.pathname.replace(/\/*(?:v1\/*)?$/, '')}/`
  return url
}

const certificateErrors = /SELF_SIGNED_CERT|UNABLE_TO_(?:GET_ISSUER|VERIFY)/

/** Asks the server for its models, and returns the first. */
export async function findModel(
  base: URL,
  apiKey: string | null,
  signal: AbortSignal,
): Promise<string> {
  const url = new URL('v1/models', base)
  const headers = apiKey === null ? {} : { authorization: `Bearer ${apiKey}` }
  let status: number
  let text: string
  try {
    const response = await fetch(url, { headers, signal })
    status = response.status
    text = await response.text()
  } catch (error) {
    const reason = error instanceof Error && error.cause !== undefined ? error.cause : error
    const details = { code: 'ServerUnusableError', cause: error }
    if (certificateErrors.test(errnoOf(reason) ?? '')) {
      const hint = 'trust the certificate: NODE_EXTRA_CA_CERTS=cert.pem before the command'
      const message = `the certificate of ${base.href} is not trusted (${errnoOf(reason)})`
      throw new BackendError(message, { ...details, hint })
    }
    throw new BackendError(`no server answers at ${base.href}: ${messageOf(reason)}`, details)
  }
  if (status !== 200) {
    const reason = firstLine(readReason(text), 200)
    const ways = '--api-key-file (bench) or --engine.api-key-file (serve)'
    const hint = status === 401 ? `name a file with the key: ${ways}` : undefined
    const details = { code: 'ServerUnusableError', ...(hint === undefined ? {} : { hint }) }
    throw new BackendError(`${url.href} answers with HTTP ${status}: ${reason}`, details)
  }
  const model = firstModel(text)
  if (model !== null) return model
  throw new BackendError(`${url.href} lists no model; the option --model names one`, {
    code: 'ServerUnusableError',
  })
}

function firstModel(text: string): string | null {
  const body = tryParse(text)
  const models = isPlainObject(body) && Array.isArray(body['data']) ? body['data'] : []
  const [first]: readonly unknown[] = models
  const id = isPlainObject(first) ? first['id'] : null
  return typeof id === 'string' ? id : null
}

/** Returns the message of an error in the API's JSON form; the text itself in any other form. */
export function readReason(text: string): string {
  const body = tryParse(text)
  const error = isPlainObject(body) ? (body['error'] ?? body) : body
  const message = isPlainObject(error) ? error['message'] : error
  return typeof message === 'string' ? message : text
}

/** Returns `undefined` for a text that is not JSON. */
export function tryParse(text: string): unknown {
  try {
    return JSON.parse(text) as unknown
  } catch {
    return undefined
  }
}

export function readKeyFile(file: string, field = '--api-key-file'): string {
  let key: string
  try {
    key = readTextFileSync(file).trim()
  } catch (error) {
    throw new ValueError(`${field}: ${describeReadProblem(file, error)}`, { field })
  }
  if (key === '') throw new ValueError(`${field}: ${file} is empty`, { field })
  return key
}

/** Returns the key from the file of `--api-key-file`, else from TUTTI_API_KEY, else `null`. */
export function readApiKey(file: string | undefined): string | null {
  if (file !== undefined) return readKeyFile(file)
  return process.env['TUTTI_API_KEY'] || null
}
