/** Requests of the page to the server that serves the page. */

import { createParser } from 'eventsource-parser'

export interface Message {
  readonly role: 'system' | 'user' | 'assistant'
  readonly content: string
}

/** The fields of a chat request besides its messages. */
export interface ChatFields {
  readonly model: string
  readonly temperature?: number
  readonly top_p?: number
  readonly max_tokens?: number
  readonly seed?: number
}

/** What one event of a streamed answer adds. */
export interface AnswerPart {
  readonly text: string
  readonly reasoning: string
  readonly finishReason: string | null
  /** The number of tokens of the whole answer, in the last event. */
  readonly tokens: number | null
}

/** A response that is not a success. `status` is 0 for an error within a stream. */
export class ServerError extends Error {
  readonly status: number

  constructor(status: number, message: string) {
    super(message)
    this.status = status
  }
}

/** The path of the page with a slash at the end. A proxy may serve the page below its own path. */
const base = location.pathname.replace(/\/?$/, '/')

const keyName = `tutti-key:${base}`

const getKey = (): string => sessionStorage.getItem(keyName) ?? ''

export const hasKey = (): boolean => getKey() !== ''

export const setKey = (key: string): void => sessionStorage.setItem(keyName, key)

/** Sends a request with the key. Throws a `ServerError` if the response is not a success. */
async function send(path: string, init: RequestInit = {}): Promise<Response> {
  const key = getKey()
  const headers = {
    'content-type': 'application/json',
    ...(key === '' ? {} : { authorization: `Bearer ${key}` }),
  }
  const response = await fetch(base + path, { ...init, headers })
  if (response.ok) return response
  throw new ServerError(response.status, messageOf(await response.text(), response.status))
}

/** The message in the body of an error, or the status if the body has another form. */
function messageOf(body: string, status: number): string {
  try {
    const { error } = JSON.parse(body) as { error?: { message?: unknown } }
    if (typeof error?.message === 'string') return error.message
  } catch {
    // A proxy may answer with a page of its own.
  }
  return `The server answered with status ${status}.`
}

/** The names of the served models. The first is the default. */
export async function listModels(): Promise<readonly string[]> {
  const response = await send('v1/models')
  const { data } = (await response.json()) as { data: readonly { id: string }[] }
  return data.map(({ id }) => id)
}

interface ChatChunk {
  readonly error?: { readonly message?: string }
  readonly usage?: { readonly completion_tokens?: number } | null
  readonly choices?: readonly {
    readonly delta?: {
      readonly content?: string | null
      readonly reasoning_content?: string | null
    }
    readonly finish_reason?: string | null
  }[]
}

/** Streams the answer to a conversation. Rejects if the stream ends before the answer. */
export async function streamAnswer(
  messages: readonly Message[],
  fields: ChatFields,
  signal: AbortSignal,
  onPart: (part: AnswerPart) => void,
): Promise<void> {
  const body = { ...fields, messages, stream: true, stream_options: { include_usage: true } }
  const init = { method: 'POST', body: JSON.stringify(body), signal }
  const response = await send('v1/chat/completions', init)
  if (response.body === null) throw new ServerError(0, 'The server sent no answer.')
  let isDone = false
  const parser = createParser({
    onEvent({ data }) {
      if (data === '[DONE]') isDone = true
      else onPart(toPart(JSON.parse(data) as ChatChunk))
    },
  })
  const decoder = new TextDecoder()
  const reader = response.body.getReader()
  for (;;) {
    const { done, value } = await reader.read()
    if (done) break
    parser.feed(decoder.decode(value, { stream: true }))
  }
  if (!isDone) throw new ServerError(0, 'The connection ended before the answer.')
}

function toPart({ error, choices, usage }: ChatChunk): AnswerPart {
  if (error !== undefined) throw new ServerError(0, error.message ?? 'The answer failed.')
  const { delta, finish_reason: finishReason = null } = choices?.[0] ?? {}
  return {
    text: delta?.content ?? '',
    reasoning: delta?.reasoning_content ?? '',
    finishReason,
    tokens: usage?.completion_tokens ?? null,
  }
}
