/** Generates the text for an HTTP request, and sends it as one JSON body or as a stream. */

import { sumUsageDetails } from '../../generation/fields/answer-fields.ts'
import { ignoredFieldsHeader } from '../../generation/fields/request-fields.ts'
import type { Usage } from '../../generation/inference-engine.ts'
import type { ForwardedAnswer, WireFields } from '../../generation/pass-through.ts'
import type {
  GenerationResult,
  PromptRequest,
  TextGenerator,
} from '../../generation/text-generator.ts'
import type { HttpExchange } from '../../../runtime/http/http-exchange.ts'
import type { TextRequest } from '../requests/request-reader.ts'
import type { ReplyFormat, Results } from '../surfaces/surface.ts'
import { StreamWriter, type StreamWriterOptions } from './stream-writer.ts'

/** Creates a request per choice. Further choices of a prompt have consecutive seeds. */
export function toPromptRequests(
  request: TextRequest,
  exchange: HttpExchange,
): readonly PromptRequest[] {
  const { signal, client, route, key } = exchange
  const name = key?.name ?? null
  const spanAttributes = { 'http.route': route, ...(name === null ? {} : { 'tutti.key': name }) }
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
      client,
      spanAttributes,
      taskId: null,
      onUsed({ promptTokens, completionTokens, text }) {
        exchange.addTokens(promptTokens, completionTokens)
        exchange.answers.push(text)
      },
    })),
  )
}

export async function sendWholeReply(
  generator: TextGenerator,
  exchange: HttpExchange,
  request: TextRequest,
  format: Pick<ReplyFormat, 'toBody'>,
): Promise<void> {
  const { n, bestOf = n } = request
  const all = { ...request, n: bestOf }
  const results = await generateAll(exchange, all, (prompt) => generator.generate(prompt))
  const body = format.toBody(selectBest(results, bestOf, n), sumUsage(results, bestOf))
  const ignored = results.flatMap((result) => result.ignored ?? [])
  const json = typeof body === 'string' ? body : JSON.stringify(body)
  const headers = ['content-type', 'application/json', ...createIgnoredHeaders(request, ignored)]
  exchange.sendText(200, json, headers)
}

/** The headers are sent with the first text. A later failure is sent as an event. */
export async function sendStreamedReply(
  generator: TextGenerator,
  exchange: HttpExchange,
  request: TextRequest,
  format: ReplyFormat,
  options: Pick<StreamWriterOptions, 'clock' | 'bufferBytes'>,
): Promise<void> {
  const headers = (ignored: readonly string[]): readonly string[] =>
    createIgnoredHeaders(request, ignored)
  const contentType = format.streamType
  const writer = new StreamWriter(exchange, { ...options, contentType, headers })
  const stream = format.createStream(writer)
  try {
    const results = await generateAll(exchange, request, async (prompt, index) => {
      const choice = stream.createChoice(index)
      const result = await generator.generate(prompt, choice)
      choice.finish(result)
      return result
    })
    stream.end(sumUsage(results, request.n))
  } catch (error) {
    if (!exchange.response.headersSent) throw error
    const problem = exchange.toHttpError(error)
    stream.fail(problem, exchange.errorBody(problem))
  }
  writer.end()
}

/** Returns all results. If a choice fails, cancels the other choices and throws its error. */
async function generateAll(
  exchange: HttpExchange,
  request: TextRequest,
  generate: (prompt: PromptRequest, index: number) => Promise<GenerationResult>,
): Promise<Results> {
  const prompts = toPromptRequests(request, exchange)
  try {
    const results = prompts.map(async (prompt, index) => generate(prompt, index))
    return (await Promise.all(results)) as unknown as Results
  } catch (error) {
    if (prompts.length > 1) exchange.abort('another choice of the request failed')
    throw error
  }
}

/** From the `bestOf` answers to each prompt, returns the `n` answers with the likeliest tokens. */
function selectBest(results: Results, bestOf: number, n: number): Results {
  if (bestOf === n) return results
  const prompts = Array.from({ length: results.length / bestOf }, (_, at) =>
    results
      .slice(at * bestOf, (at + 1) * bestOf)
      .toSorted((one, other) => meanLogprob(other) - meanLogprob(one))
      .slice(0, n),
  )
  return prompts.flat() as unknown as Results
}

/** Returns the mean per token, so that long answers are not at a disadvantage. */
const meanLogprob = ({ logprobs }: GenerationResult): number =>
  logprobs.reduce((sum, { logprob }) => sum + logprob, 0) / Math.max(1, logprobs.length)

/** The tokens of a prompt count once, even if it has several choices. */
function sumUsage(results: readonly GenerationResult[], n: number): Usage {
  const [first] = results
  if (results.length === 1 && first !== undefined) return first.usage
  let [promptTokens, completionTokens] = [0, 0]
  let details: WireFields | undefined
  for (const [at, { usage }] of results.entries()) {
    if (at % n === 0) promptTokens += usage.promptTokens
    completionTokens += usage.completionTokens
    const { prompt_tokens_details: _, ...rest } = usage.details ?? {}
    const countedDetails = at % n === 0 ? usage.details : rest
    if (countedDetails !== undefined) details = sumUsageDetails(details ?? {}, countedDetails)
  }
  return details === undefined
    ? { promptTokens, completionTokens }
    : { promptTokens, completionTokens, details }
}

/** Lists the ignored request fields. Encodes the names: they may contain any characters. */
export function createIgnoredHeaders(
  { ignored }: Pick<TextRequest, 'ignored'>,
  more: readonly string[] = [],
): readonly string[] {
  if (ignored.length + more.length === 0) return []
  const max = 32
  const names = [...new Set([...ignored, ...more])]
    .slice(0, max)
    .map((name) => encodeURIComponent(name.slice(0, 64).toWellFormed()))
    .map((name) => name.replaceAll('%5B', '[').replaceAll('%5D', ']'))
  return [ignoredFieldsHeader, names.join(', ')]
}

/** Closes the connection if the answer breaks off after the headers were sent. */
export async function sendForwarded(
  exchange: HttpExchange,
  { status, contentType, bytes, ignored = [] }: ForwardedAnswer,
): Promise<void> {
  const { response } = exchange
  const headers = ['content-type', contentType, ...createIgnoredHeaders({ ignored })]
  try {
    for await (const chunk of bytes) {
      if (exchange.isGone) return
      if (!response.headersSent) exchange.writeHead(status, headers)
      if (!response.write(chunk)) await waitForReader(exchange)
    }
  } catch (error) {
    if (exchange.isGone) return
    if (!response.headersSent) throw error
    exchange.toHttpError(error)
    return exchange.destroyConnection()
  }
  if (exchange.isGone) return
  if (!response.headersSent) exchange.writeHead(status, headers)
  exchange.end()
}

/** Waits until the client has caught up. Disconnects a client that reads nothing. */
async function waitForReader(exchange: HttpExchange): Promise<void> {
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
