/** `POST /v1/chat/completions` and `POST /v1/completions`. */

import { newUuid } from '../../foundation/ids.ts'
import { answerWhole, StreamedAnswer } from './answering.ts'
import { ChatReply } from './chat-reply.ts'
import { readChatRequest } from './requests/chat-request.ts'
import { CompletionReply } from './completion-reply.ts'
import { readCompletionRequest } from './requests/completion-request.ts'
import type { Endpoint, EndpointTools } from './endpoint.ts'
import type { Exchange } from './exchange.ts'
import type { ReplyHead, ReplyShape } from './reply-shape.ts'
import type { TextRequest } from './requests/text-request.ts'

export function createTextEndpoints(tools: EndpointTools): readonly Endpoint[] {
  const { limits, rules } = tools
  return [
    {
      method: 'POST',
      path: '/v1/chat/completions',
      bodyBytes: limits.chatBodyBytes,
      answer(exchange, body) {
        const request = readChatRequest(body, rules)
        const hasLogprobs = typeof request.sampling.logprobs === 'number'
        const shape = new ChatReply(headOf('chatcmpl', request, tools), hasLogprobs)
        return answer(tools, exchange, request, shape)
      },
    },
    {
      method: 'POST',
      path: '/v1/completions',
      bodyBytes: limits.bodyBytes,
      answer(exchange, body) {
        const request = readCompletionRequest(body, rules)
        const { prompts, isEcho, n } = request
        const shape = new CompletionReply(headOf('cmpl', request, tools), {
          hasLogprobs: typeof request.sampling.logprobs === 'number',
          echoOf: (index) => (isEcho ? (prompts[Math.floor(index / n)] ?? '') : ''),
        })
        return answer(tools, exchange, request, shape)
      },
    },
  ]
}

function answer(
  { desk, clock, limits }: EndpointTools,
  exchange: Exchange,
  request: TextRequest,
  shape: ReplyShape,
): Promise<void> {
  if (!request.isStream) return answerWhole(desk, exchange, request, shape)
  const options = { clock, bufferBytes: limits.streamBufferBytes }
  return new StreamedAnswer(exchange, request, shape, options).run(desk)
}

function headOf(prefix: string, request: TextRequest, { clock }: EndpointTools): ReplyHead {
  return {
    id: `${prefix}-${newUuid()}`,
    created: Math.floor(clock.now()),
    model: request.model,
    includesUsage: request.includesUsage,
  }
}
