/** The routes that generate text: chat completions, completions and `POST /generate`. */

import type { Clock } from '../../foundation/clock.ts'
import { newUuid } from '../../foundation/ids.ts'
import type { GenerationResult, TextGenerator } from '../generation/text-generator.ts'
import {
  ignoredHeaders,
  sendStreamedReply,
  sendWholeReply,
  toPromptRequests,
} from './replies/replies.ts'
import { ChatReply, CompletionReply } from './replies/completion-replies.ts'
import type { HttpExchange } from './http-exchange.ts'
import type { HttpError } from './http-error.ts'
import { machineName } from './listening.ts'
import type { ReplyHead, ReplyShape } from './replies/reply-shape.ts'
import type { RequestReader } from './requests/request-reader.ts'
import type { TextRequest } from './requests/text-request.ts'
import type { Route } from './router.ts'
import type { ServerLimits } from './server-limits.ts'

/** What the routes that generate text work with. */
export interface GenerationContext {
  readonly generator: TextGenerator
  readonly clock: Clock
  readonly limits: ServerLimits
  readonly requests: RequestReader
}

export const generatePath = '/generate'

export function createGenerationRoutes(context: GenerationContext): readonly Route[] {
  const { limits, requests } = context
  return [
    {
      method: 'POST',
      path: '/v1/chat/completions',
      document: {
        summary: 'Answers a conversation.',
        body: 'ChatCompletionRequest',
        ok: 'ChatCompletion',
        isStream: true,
      },
      bodyBytes: limits.chatBodyBytes,
      answer(exchange, body) {
        const request = requests.readChat(body)
        const hasLogprobs = typeof request.sampling.logprobs === 'number'
        const shape = new ChatReply(headOf('chatcmpl', request, context), hasLogprobs)
        return answer(context, exchange, request, shape)
      },
    },
    {
      method: 'POST',
      path: '/v1/completions',
      document: {
        summary: 'Continues texts.',
        body: 'CompletionRequest',
        ok: 'Completion',
        isStream: true,
      },
      bodyBytes: limits.bodyBytes,
      answer(exchange, body) {
        const request = requests.readCompletion(body)
        const { prompts, isEcho, n } = request
        const shape = new CompletionReply(headOf('cmpl', request, context), {
          hasLogprobs: typeof request.sampling.logprobs === 'number',
          echoOf: (index) => (isEcho ? (prompts[Math.floor(index / n)] ?? '') : ''),
        })
        return answer(context, exchange, request, shape)
      },
    },
    {
      method: 'POST',
      path: generatePath,
      document: {
        summary: 'Answers many prompts.',
        body: 'GenerateRequest',
        ok: 'Generated',
        failure: 'GenerateError',
      },
      bodyBytes: limits.bodyBytes,
      answer: (exchange, body) => answerPrompts(context, exchange, body),
    },
  ]
}

function answer(
  { generator, clock, limits }: GenerationContext,
  exchange: HttpExchange,
  request: TextRequest,
  shape: ReplyShape,
): Promise<void> {
  if (!request.isStream) return sendWholeReply(generator, exchange, request, shape)
  const options = { clock, bufferBytes: limits.streamBufferBytes }
  return sendStreamedReply(generator, exchange, request, shape, options)
}

function headOf(prefix: string, request: TextRequest, { clock }: GenerationContext): ReplyHead {
  return {
    id: `${prefix}-${newUuid()}`,
    created: Math.floor(clock.now()),
    model: request.model,
    includesUsage: request.includesUsage,
  }
}

/** Answers `POST /generate`: a text or an error for each prompt. */
async function answerPrompts(
  { generator, clock, requests }: GenerationContext,
  exchange: HttpExchange,
  body: unknown,
): Promise<void> {
  const start = clock.monotonicMs()
  const request = requests.readGenerate(body)
  const prompts = toPromptRequests(request, exchange.signal)
  const outcomes = await Promise.allSettled(
    prompts.map(async (prompt) => generator.generate(prompt)),
  )
  if (exchange.isGone) return
  const results = outcomes.map((outcome) => resultOf(exchange, outcome))
  const failure = commonFailure(results)
  if (failure !== undefined) throw failure
  const seconds = (clock.monotonicMs() - start) / 1000
  const response = {
    status: 'success',
    hostname: machineName,
    results: results.map(toField),
    num_prompts: results.length,
    total_time: seconds,
    avg_time_per_prompt: results.length === 0 ? 0 : seconds / results.length,
  }
  exchange.sendJson(200, response, ignoredHeaders(request))
}

/** Sends an error in the shape of `POST /generate`. */
export function refuseGenerate(exchange: HttpExchange, error: HttpError): void {
  const body = { status: 'error', message: error.message, hostname: machineName }
  exchange.sendJson(error.status, body, error.headers)
}

function resultOf(
  exchange: HttpExchange,
  outcome: PromiseSettledResult<GenerationResult>,
): string | HttpError {
  return outcome.status === 'fulfilled' ? outcome.value.text : exchange.explain(outcome.reason)
}

/** The error of the whole request, when all prompts failed alike and not because of their text. */
function commonFailure(results: readonly (string | HttpError)[]): HttpError | undefined {
  const [first] = results
  if (first === undefined || typeof first === 'string' || first.status < 429) return undefined
  const isCommon = results.every((one) => typeof one !== 'string' && one.code === first.code)
  return isCommon ? first : undefined
}

function toField(result: string | HttpError): unknown {
  if (typeof result === 'string') return result
  return { error: { code: result.code, message: result.message } }
}
