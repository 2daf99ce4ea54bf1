/** The connections to one server: kept alive, never redirected, closed with everything on them. */

import { type Dispatcher, Pool } from 'undici'

/** The head of an answer. Its body is to be read to the end, or discarded. */
export interface UpstreamAnswer {
  readonly status: number
  readonly retryAfter: string | null
  readonly bytes: AsyncIterable<Uint8Array>
  /** The beginning of the body; the rest is discarded. */
  text(): Promise<string>
  discard(): void
}

export interface UpstreamLinkOptions {
  /** Such as `http://127.0.0.1:8000`. */
  readonly origin: string
  readonly apiKey: string | null
  readonly connections: number
}

/** Enough for a list of models or a page of tokens. */
const longestText = 16 << 20

export class UpstreamLink {
  readonly #pool: Pool
  readonly #headers: Readonly<Record<string, string>>

  constructor({ origin, apiKey, connections }: UpstreamLinkOptions) {
    // Whoever waits has a deadline and a signal of their own: a long prompt may take its time.
    const limits = { headersTimeout: 0, bodyTimeout: 0, allowH2: false }
    this.#pool = new Pool(origin, { connections, ...limits })
    this.#headers = apiKey === null ? {} : { authorization: `Bearer ${apiKey}` }
  }

  get(path: string, signal: AbortSignal): Promise<UpstreamAnswer> {
    return this.#send({ method: 'GET', path, headers: this.#headers, signal })
  }

  /** Posts what is JSON already. The signal also ends the body. */
  post(path: string, json: string, signal: AbortSignal): Promise<UpstreamAnswer> {
    const headers = { ...this.#headers, 'content-type': 'application/json' }
    return this.#send({ method: 'POST', path, headers, body: json, signal })
  }

  /** Breaks off whatever is under way. */
  close(): Promise<void> {
    return this.#pool.destroy()
  }

  async #send(options: Dispatcher.RequestOptions): Promise<UpstreamAnswer> {
    const { statusCode, headers, body } = await this.#pool.request(options)
    // A body that breaks while nobody reads it is told to the next reader, not to the process.
    body.on('error', () => {})
    const retryAfter = headers['retry-after']
    return {
      status: statusCode,
      retryAfter: typeof retryAfter === 'string' ? retryAfter : null,
      bytes: body as AsyncIterable<Uint8Array>,
      text: () => readText(body as AsyncIterable<Uint8Array>),
      discard: () => void body.destroy(),
    }
  }
}

/** Leaving the loop early destroys the body. */
async function readText(bytes: AsyncIterable<Uint8Array>): Promise<string> {
  const decoder = new TextDecoder()
  let text = ''
  for await (const chunk of bytes) {
    text += decoder.decode(chunk, { stream: true })
    if (text.length > longestText) break
  }
  return text
}
