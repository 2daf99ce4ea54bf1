/** Generates the text for an HTTP request, and sends it as one JSON body or as a stream. */

import { addDetails } from '../../generation/fields/answer-fields.ts'
import { ignoredHeader } from '../../generation/fields/request-fields.ts'
import type { Usage } from '../../generation/inference-engine.ts'
import type { ForwardedAnswer, WireFields } from '../../generation/pass-through.ts'
import type {
  GenerationResult,
  PromptRequest,
  TextGenerator,
} from '../../generation/text-generator.ts'
import type { HttpExchange } from '../../../runtime/http/http-exchange.ts'
import type { TextRequest } from '../requests/request-reader.ts'
import {
  type ChoiceStream,
  type ReplyFormat,
  SseWriter,
  type SseWriterOptions,
} from './choice-stream.ts'

/** One prompt request per choice of the response. Each further choice has the next seed. */
export function toPromptRequests(
  request: TextRequest,
  signal: AbortSignal,
): readonly PromptRequest[] {
  const { inputs, n, sampling, priority, timeoutSeconds } = request
  const { seed } = sampling
  return inputs.flatMap((input) =>
    Array.from({ length: n }, (_, at) => ({
      input,
      sampling: typeof seed === 'number' && at > 0 ? { ...sampling, seed: seed + at } : sampling,
      priority,
      timeoutSeconds,
      signal,
      isBounded: true,
      taskId: null,
    })),
  )
}

/** Replies with one JSON body. */
export async function sendWholeReply(
  generator: TextGenerator,
  exchange: HttpExchange,
  request: TextRequest,
  format: ReplyFormat,
): Promise<void> {
  const results = await generateAll(exchange, request, (prompt) => generator.generate(prompt))
  const body = format.whole(results, totalUsage(results, request.n))
  const ignored = results.flatMap((result) => result.ignored ?? [])
  exchange.sendJson(200, body, ignoredHeaders(request, ignored))
}

/**
 * Replies with a stream. The headers are sent with the first text. An earlier failure rejects, so
 * that the response has an error status; a later failure becomes an event of the stream.
 */
export async function sendStreamedReply(
  generator: TextGenerator,
  exchange: HttpExchange,
  request: TextRequest,
  format: ReplyFormat,
  options: Omit<SseWriterOptions, 'headers'>,
): Promise<void> {
  const headers = (ignored: readonly string[]): readonly string[] =>
    ignoredHeaders(request, ignored)
  const writer = new SseWriter(exchange, { ...options, headers })
  try {
    const choices: ChoiceStream[] = []
    const results = await generateAll(exchange, request, async (prompt, index) => {
      const choice = format.stream(index, writer)
      choices.push(choice)
      const result = await generator.generate(prompt, choice)
      choice.finish(result)
      return result
    })
    if (request.includesUsage) choices[0]?.sendUsage(totalUsage(results, request.n))
  } catch (error) {
    if (!exchange.response.headersSent) throw error
    void writer.send(JSON.stringify(exchange.errorBody(exchange.explain(error))))
  }
  writer.end()
}

/** Returns all results, or throws the first failure, which cancels the other choices. */
async function generateAll(
  exchange: HttpExchange,
  request: TextRequest,
  generate: (prompt: PromptRequest, index: number) => Promise<GenerationResult>,
): Promise<readonly GenerationResult[]> {
  const prompts = toPromptRequests(request, exchange.signal)
  try {
    return await Promise.all(prompts.map(async (prompt, index) => generate(prompt, index)))
  } catch (error) {
    if (prompts.length > 1) exchange.abort('another choice of the request failed')
    throw error
  }
}

/** If a prompt has several choices, its tokens are counted once. */
function totalUsage(results: readonly GenerationResult[], n: number): Usage {
  const [first] = results
  if (results.length === 1 && first !== undefined) return first.usage
  let [promptTokens, completionTokens] = [0, 0]
  let details: WireFields | undefined
  for (const [at, { usage }] of results.entries()) {
    if (at % n === 0) promptTokens += usage.promptTokens
    completionTokens += usage.completionTokens
    const { prompt_tokens_details: _, ...rest } = usage.details ?? {}
    const counted = at % n === 0 ? usage.details : rest
    if (counted !== undefined) details = addDetails(details ?? {}, counted)
  }
  return details === undefined
    ? { promptTokens, completionTokens }
    : { promptTokens, completionTokens, details }
}

/**
 * The header `x-tutti-ignored-fields`, with encoded names so that none can break the header. `more`
 * has the fields that the server behind the engine ignored.
 */
export function ignoredHeaders(
  { ignored }: Pick<TextRequest, 'ignored'>,
  more: readonly string[] = [],
): readonly string[] {
  if (ignored.length + more.length === 0) return []
  const max = 32
  const names = [...new Set([...ignored, ...more])]
    .slice(0, max)
    .map((name) => encodeURIComponent(name.slice(0, 64).toWellFormed()))
    .map((name) => name.replaceAll('%5B', '[').replaceAll('%5D', ']'))
  return [ignoredHeader, names.join(', ')]
}

/**
 * Sends the answer of the server behind the engine chunk by chunk, as fast as the client reads. If
 * the answer breaks off after the headers were sent, the connection is closed.
 */
export async function sendForwarded(
  exchange: HttpExchange,
  { status, contentType, bytes, ignored = [] }: ForwardedAnswer,
): Promise<void> {
  const { response } = exchange
  const headers = ['content-type', contentType, ...ignoredHeaders({ ignored })]
  try {
    for await (const chunk of bytes) {
      if (exchange.isGone) return
      if (!response.headersSent) exchange.writeHead(status, headers)
      if (!response.write(chunk)) await untilRead(exchange)
    }
  } catch (error) {
    if (exchange.isGone) return
    if (!response.headersSent) throw error
    exchange.explain(error)
    return exchange.cut()
  }
  if (exchange.isGone) return
  if (!response.headersSent) exchange.writeHead(status, headers)
  exchange.end()
}

/**
 * Resolves when the client has caught up or disconnected. Disconnects a client that reads nothing.
 */
async function untilRead(exchange: HttpExchange): Promise<void> {
  const { response } = exchange
  const endWatch = exchange.watchReader()
  const { promise, resolve } = Promise.withResolvers<void>()
  response.once('drain', resolve)
  response.once('close', resolve)
  await promise
  response.off('drain', resolve)
  response.off('close', resolve)
  endWatch()
}
