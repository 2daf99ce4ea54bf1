/** Asks the generator what a request asks for, and tells the client, whole or as a stream. */

import type {
  GenerationResult,
  TextGenerator,
  PromptRequest,
} from '../../generation/text-generator.ts'
import type { GenerationDelta, Usage } from '../../generation/inference-engine.ts'
import { SseWriter, eventStreamHeaders, type SseWriterOptions } from './sse-writer.ts'
import type { HttpExchange } from '../http-exchange.ts'
import { errorBody } from '../http-error.ts'
import type { ReplyShape } from './reply-shape.ts'
import type { TextRequest } from '../requests/text-request.ts'

/** One question for each choice of the response. With a seed, each has its own. */
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

/** Answers with one JSON body. */
export async function answerWhole(
  generator: TextGenerator,
  exchange: HttpExchange,
  request: TextRequest,
  shape: ReplyShape,
): Promise<void> {
  const answers = await askAll(exchange, request, (question) => generator.generate(question))
  const body = shape.whole(answers, totalUsage(answers, request.n))
  exchange.sendJson(200, body, ignoredHeaders(request))
}

/** What of a choice was told. */
interface Progress {
  hasText: boolean
  toolCalls: number
}

/**
 * Answers with a stream. Its head goes out with the first text, so that whatever fails before has a
 * status of its own.
 */
export class StreamedReply {
  readonly #exchange: HttpExchange
  readonly #request: TextRequest
  readonly #shape: ReplyShape
  readonly #stream: SseWriter
  readonly #sent: Progress[] = []

  constructor(
    exchange: HttpExchange,
    request: TextRequest,
    shape: ReplyShape,
    options: SseWriterOptions,
  ) {
    this.#exchange = exchange
    this.#request = request
    this.#shape = shape
    this.#stream = new SseWriter(exchange, options)
  }

  /** Rejects only when nothing was sent; later errors are told in the stream. */
  async run(generator: TextGenerator): Promise<void> {
    try {
      await this.#ask(generator)
    } catch (error) {
      if (!this.#exchange.response.headersSent) throw error
      this.#fail(error)
    }
  }

  async #ask(generator: TextGenerator): Promise<void> {
    const answers = await askAll(this.#exchange, this.#request, async (question, index) => {
      const answer = await generator.generate(question, {
        delta: (delta) => this.#delta(index, delta),
      })
      this.#close(index, answer)
      return answer
    })
    if (this.#request.includesUsage) {
      void this.#send(this.#shape.usage(totalUsage(answers, this.#request.n)))
    }
    this.#stream.end()
  }

  #fail(error: unknown): void {
    void this.#send(JSON.stringify(errorBody(this.#exchange.explain(error))))
    this.#exchange.closeAfterwards()
    this.#stream.end()
  }

  #delta(index: number, delta: GenerationDelta): Promise<void> | undefined {
    const sent = this.#open(index)
    sent.hasText ||= delta.text !== ''
    sent.toolCalls += delta.toolCalls?.length ?? 0
    return this.#send(this.#shape.delta(index, delta))
  }

  #open(index: number): Progress {
    const known = this.#sent[index]
    if (known !== undefined) return known
    const opening = this.#shape.opening(index)
    if (opening !== undefined) void this.#send(opening)
    return (this.#sent[index] = { hasText: false, toolCalls: 0 })
  }

  /** What was not told on the way, such as a refusal in the answer's place, is told now. */
  #close(index: number, answer: GenerationResult): void {
    const sent = this.#open(index)
    const text = sent.hasText ? '' : answer.text
    const toolCalls = answer.toolCalls.slice(sent.toolCalls)
    if (text !== '' || toolCalls.length > 0) void this.#delta(index, { text, toolCalls })
    void this.#send(this.#shape.closing(index, answer.finishReason))
  }

  #send(data: string): Promise<void> | undefined {
    const { response, isGone } = this.#exchange
    // A choice may go on for a moment after another has failed and ended the stream.
    if (isGone || response.writableEnded) return undefined
    if (!response.headersSent) {
      const headers = [...eventStreamHeaders, ...ignoredHeaders(this.#request)]
      this.#exchange.writeHead(200, headers)
    }
    return this.#stream.send(data)
  }
}

/** All answers, or the first failure: then the other choices are given up. */
async function askAll(
  exchange: HttpExchange,
  request: TextRequest,
  ask: (question: PromptRequest, index: number) => Promise<GenerationResult>,
): Promise<readonly GenerationResult[]> {
  const questions = toPromptRequests(request, exchange.signal)
  try {
    return await Promise.all(questions.map(async (question, index) => ask(question, index)))
  } catch (error) {
    if (questions.length > 1) exchange.abort('another choice of the request failed')
    throw error
  }
}

/** The answers to one prompt have read it once. */
function totalUsage(answers: readonly GenerationResult[], n: number): Usage {
  let [promptTokens, completionTokens] = [0, 0]
  for (const [at, { usage }] of answers.entries()) {
    if (at % n === 0) promptTokens += usage.promptTokens
    completionTokens += usage.completionTokens
  }
  return { promptTokens, completionTokens }
}

/** `x-tutti-ignored-fields`, spelled so that no field name can break a header. */
export function ignoredHeaders({ ignored }: TextRequest): readonly string[] {
  if (ignored.length === 0) return []
  const most = 32
  const names = ignored
    .slice(0, most)
    .map((name) => encodeURIComponent(name.slice(0, 64).toWellFormed()))
  return ['x-tutti-ignored-fields', names.join(', ')]
}
