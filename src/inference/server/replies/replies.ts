/** Generates the text for an HTTP request, and sends it as one JSON body or as a stream. */

import type { GenerationDelta, Usage } from '../../generation/inference-engine.ts'
import type {
  GenerationResult,
  ProgressListener,
  PromptRequest,
  TextGenerator,
} from '../../generation/text-generator.ts'
import { errorBody } from '../http-error.ts'
import type { HttpExchange } from '../http-exchange.ts'
import type { TextRequest } from '../requests/text-request.ts'
import type { ReplyShape } from './reply-shape.ts'
import { SseWriter, type SseWriterOptions } from './sse-writer.ts'

/** One prompt request for each choice of the response. A seed is incremented for each choice. */
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
  shape: ReplyShape,
): Promise<void> {
  const results = await generateAll(exchange, request, (prompt) => generator.generate(prompt))
  const body = shape.whole(results, totalUsage(results, request.n))
  exchange.sendJson(200, body, ignoredHeaders(request))
}

/**
 * Replies with a stream. Its head is sent with the first text: a failure before that rejects, so
 * that it gets a status of its own, and a later one is an event of the stream.
 */
export async function sendStreamedReply(
  generator: TextGenerator,
  exchange: HttpExchange,
  request: TextRequest,
  shape: ReplyShape,
  options: Omit<SseWriterOptions, 'headers'>,
): Promise<void> {
  const writer = new SseWriter(exchange, { ...options, headers: ignoredHeaders(request) })
  try {
    const results = await generateAll(exchange, request, async (prompt, index) => {
      const choice = new StreamedChoice(writer, shape, index)
      const result = await generator.generate(prompt, choice)
      choice.finish(result)
      return result
    })
    if (request.includesUsage) void writer.send(shape.usage(totalUsage(results, request.n)))
  } catch (error) {
    if (!exchange.response.headersSent) throw error
    void writer.send(JSON.stringify(errorBody(exchange.explain(error))))
    exchange.closeAfterwards()
  }
  writer.end()
}

/** Writes the events of one choice. */
class StreamedChoice implements ProgressListener {
  readonly #writer: SseWriter
  readonly #shape: ReplyShape
  readonly #index: number
  #isOpen = false
  #hasText = false
  #toolCalls = 0

  constructor(writer: SseWriter, shape: ReplyShape, index: number) {
    this.#writer = writer
    this.#shape = shape
    this.#index = index
  }

  delta(delta: GenerationDelta): Promise<void> | undefined {
    this.#open()
    this.#hasText ||= delta.text !== ''
    this.#toolCalls += delta.toolCalls?.length ?? 0
    return this.#writer.send(this.#shape.delta(this.#index, delta))
  }

  /** Sends what no delta contained, such as a refusal in place of the result, and the end. */
  finish(result: GenerationResult): void {
    const text = this.#hasText ? '' : result.text
    const toolCalls = result.toolCalls.slice(this.#toolCalls)
    if (text !== '' || toolCalls.length > 0) void this.delta({ text, toolCalls })
    this.#open()
    void this.#writer.send(this.#shape.closing(this.#index, result.finishReason))
  }

  #open(): void {
    if (this.#isOpen) return
    this.#isOpen = true
    const opening = this.#shape.opening(this.#index)
    if (opening !== undefined) void this.#writer.send(opening)
  }
}

/** All results, or the first failure, which cancels the other choices. */
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

/** Choices for the same prompt count its tokens once. */
function totalUsage(results: readonly GenerationResult[], n: number): Usage {
  let [promptTokens, completionTokens] = [0, 0]
  for (const [at, { usage }] of results.entries()) {
    if (at % n === 0) promptTokens += usage.promptTokens
    completionTokens += usage.completionTokens
  }
  return { promptTokens, completionTokens }
}

/** `x-tutti-ignored-fields`, encoded so that no field name can break the header. */
export function ignoredHeaders({ ignored }: TextRequest): readonly string[] {
  if (ignored.length === 0) return []
  const most = 32
  const names = ignored
    .slice(0, most)
    .map((name) => encodeURIComponent(name.slice(0, 64).toWellFormed()))
  return ['x-tutti-ignored-fields', names.join(', ')]
}
