/** Sends requests to an inference server from many clients at once, and measures the answers. */

import { createParser } from 'eventsource-parser'
import { Pool } from 'undici'
import { systemClock } from '../../foundation/clock.ts'
import { messageOf } from '../../foundation/errors.ts'
import { isPlainObject } from '../../foundation/json-value.ts'
import { firstLine } from '../../views/readable.ts'
import { readReason, tryParse } from '../program/server-model.ts'
import { type Surface, type SurfaceName, surfaces } from './surfaces.ts'

export interface LoadOptions {
  /** The address of the server, without `v1`. Ends with a slash. */
  readonly base: URL
  readonly surface: SurfaceName
  readonly model: string
  readonly clients: number
  readonly requests: number
  readonly maxTokens: number
  readonly apiKey: string | null
  /** The maximum time of a request, up to the end of its answer. */
  readonly timeoutSeconds: number
  readonly toPrompt: (request: number) => string
  /** Added to the body of each request. */
  readonly fields?: Readonly<Record<string, unknown>>
  /** Ends the measurement early. Requests without an answer are then not counted. */
  readonly signal?: AbortSignal
  readonly onEnd?: (load: Load) => void
}

/** The measurements. All times are in seconds. */
export interface Load {
  answered: number
  failed: number
  seconds: number
  promptTokens: number
  answerTokens: number
  /** The times from a request to the first part of its answer that carries text. */
  readonly firstToken: number[]
  /** The times between two successive parts of an answer that carry text. */
  readonly betweenTokens: number[]
  readonly wholeAnswer: number[]
  /** Why requests failed, and how often. */
  readonly errors: Map<string, number>
}

/** Each client sends its next request when the previous one has ended. */
export async function runLoad(options: LoadOptions): Promise<Load> {
  const { base, clients, requests, signal, onEnd } = options
  const load: Load = {
    answered: 0,
    failed: 0,
    seconds: 0,
    promptTokens: 0,
    answerTokens: 0,
    firstToken: [],
    betweenTokens: [],
    wholeAnswer: [],
    errors: new Map(),
  }
  // The connections have no time-outs, because each request has its own time limit.
  const pool = new Pool(base.origin, { connections: clients, headersTimeout: 0, bodyTimeout: 0 })
  const begin = systemClock.monotonicMs()
  const isStopped = (): boolean => signal?.aborted === true
  let next = 0
  const runClient = async (): Promise<void> => {
    while (next < requests && !isStopped()) {
      try {
        await askInTime(pool, options, options.toPrompt(next++), load)
        load.answered++
      } catch (error) {
        if (isStopped()) return
        load.failed++
        countError(load.errors, firstLine(messageOf(error), maxReason))
      }
      load.seconds = (systemClock.monotonicMs() - begin) / 1000
      onEnd?.(load)
    }
  }
  await Promise.all(Array.from({ length: Math.min(clients, requests) }, runClient))
  await pool.destroy()
  return load
}

const maxReason = 200
/**
 * The maximum number of distinct reasons. The limit is needed for servers whose messages contain a
 * request id.
 */
const maxReasons = 20

function countError(errors: Load['errors'], reason: string): void {
  const key = errors.has(reason) || errors.size < maxReasons ? reason : 'other reasons'
  errors.set(key, (errors.get(key) ?? 0) + 1)
}

async function askInTime(pool: Pool, options: LoadOptions, prompt: string, load: Load) {
  const { timeoutSeconds, signal } = options
  const over = new AbortController()
  const late = new Error(`no complete answer within ${timeoutSeconds} s`)
  const cancel = systemClock.after(timeoutSeconds * 1000, () => over.abort(late))
  const signals = signal === undefined ? [over.signal] : [over.signal, signal]
  try {
    await ask(pool, { ...options, signal: AbortSignal.any(signals) }, prompt, load)
  } finally {
    cancel()
  }
}

/** Sends one request. Adds its answer to `load` once it is complete. */
async function ask(pool: Pool, options: LoadOptions, prompt: string, load: Load): Promise<void> {
  const { base, model, maxTokens, apiKey, fields, signal } = options
  const surface: Surface = surfaces[options.surface]
  const sentMs = systemClock.monotonicMs()
  const { statusCode, headers, body } = await pool.request({
    method: 'POST',
    path: base.pathname + surface.path,
    headers: {
      'content-type': 'application/json',
      ...(apiKey === null ? {} : { authorization: `Bearer ${apiKey}` }),
    },
    body: JSON.stringify({ ...surface.toBody({ model, prompt, maxTokens }), ...fields }),
    ...(signal === undefined ? {} : { signal }),
  })
  if (statusCode !== 200) throw new Error(`HTTP ${statusCode}: ${readReason(await readText(body))}`)
  const type = String(headers['content-type'])
  const isLines = type.startsWith('application/x-ndjson')
  const answer = new AnswerReader(surface, isLines)
  if (isLines || type.startsWith('text/event-stream')) {
    // Leaving the loop closes the connection if the server has not ended its answer.
    for await (const chunk of body) if (answer.read(chunk as Buffer)) break
  } else {
    body.on('error', () => undefined).destroy()
    throw new Error(`expected a stream of events, got ${type}`)
  }
  const times = answer.end()
  const [first] = times
  const [promptName, answerName] = surface.usageNames
  const cached = surface.cachedName === undefined ? 0 : toCount(answer.usage[surface.cachedName])
  load.promptTokens += (toCount(answer.usage[promptName]) ?? 0) + (cached ?? 0)
  load.answerTokens += toCount(answer.usage[answerName]) ?? times.length
  if (first !== undefined) load.firstToken.push((first - sentMs) / 1000)
  for (const [at, time] of times.entries()) {
    const before = times[at - 1]
    if (before !== undefined) load.betweenTokens.push((time - before) / 1000)
  }
  load.wholeAnswer.push((systemClock.monotonicMs() - sentMs) / 1000)
}

const toCount = (value: unknown): number | null =>
  typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : null

const maxErrorBytes = 65_536
const maxEventLength = 2 ** 20

/** Reads a body up to about `maxErrorBytes`. */
async function readText(body: AsyncIterable<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = []
  let bytes = 0
  for await (const chunk of body) {
    chunks.push(chunk)
    bytes += chunk.length
    if (bytes > maxErrorBytes) break
  }
  return Buffer.concat(chunks).toString()
}

/** Reads the stream of one answer, which consists of events or of lines. */
class AnswerReader {
  /** The numbers of tokens so far, by their names in the API. */
  usage: Readonly<Record<string, unknown>> = {}
  readonly #decoder = new TextDecoder()
  readonly #parser = createParser({
    maxBufferSize: maxEventLength,
    onEvent: ({ data }) => this.#readPart(data),
    onError: ({ message }) => (this.#error ??= message),
  })
  readonly #surface: Surface
  readonly #isLines: boolean
  #line = ''
  /** When each part with text arrived, in milliseconds. */
  readonly #times: number[] = []
  #error: string | undefined
  #isComplete = false

  constructor(surface: Surface, isLines: boolean) {
    this.#surface = surface
    this.#isLines = isLines
  }

  /** Returns whether the answer has ended, or failed. */
  read(chunk: Uint8Array): boolean {
    const text = this.#decoder.decode(chunk, { stream: true })
    if (this.#isLines) this.#readLines(text)
    else this.#parser.feed(text)
    return this.#isComplete || this.#error !== undefined
  }

  /** Returns when the parts arrived. Throws unless the answer is complete. */
  end(): readonly number[] {
    if (this.#error !== undefined) throw new Error(this.#error)
    if (!this.#isComplete) throw new Error('the answer ended before its last event')
    return this.#times
  }

  #readLines(text: string): void {
    const lines = (this.#line + text).split('\n')
    this.#line = lines.pop() ?? ''
    if (this.#line.length > maxEventLength) this.#error ??= 'a line is too long'
    for (const line of lines) this.#readPart(line)
  }

  #readPart(data: string): void {
    if (data === '[DONE]') {
      this.#isComplete = true
      return
    }
    const part = tryParse(data)
    if (!isPlainObject(part)) this.#error ??= `an event is not a JSON object: ${data}`
    else if (isFailure(part)) this.#error ??= readReason(data)
    else {
      const surface = this.#surface
      const usage = surface.readUsage === undefined ? part['usage'] : surface.readUsage(part)
      if (isPlainObject(usage)) this.usage = { ...this.usage, ...usage }
      if (surface.hasText(part)) this.#times.push(systemClock.monotonicMs())
      this.#isComplete ||= surface.isLast?.(part) === true
    }
  }
}

const isFailure = ({ type, error }: Readonly<Record<string, unknown>>): boolean =>
  type === 'error' || (error !== undefined && error !== null)
