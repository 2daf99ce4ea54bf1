/** The routes that convert between texts and tokens, and that show prompts. */

import type { DocumentedRoute } from './openapi.ts'
import { createIgnoredHeaders } from './replies/replies.ts'
import type { CompanionContext } from './surfaces/surface.ts'

export const createTokenRoutes = ({
  generator,
  limits,
  requests,
}: CompanionContext): readonly DocumentedRoute[] => [
  {
    method: 'POST',
    path: '/tokenize',
    document: { summary: 'The tokens of a text.', body: 'TokenizeRequest', ok: 'Tokens' },
    bodyBytes: limits.bodyBytes,
    check: (_, body) => void requests.readTokenize(body),
    async answer(exchange, body) {
      const request = requests.readTokenize(body)
      const tokens = await generator.tokenize(request.text)
      const reply = { tokens, count: tokens.length, max_model_len: requests.rules.contextLength }
      exchange.sendJson(200, reply, createIgnoredHeaders(request))
    },
  },
  {
    method: 'POST',
    path: '/detokenize',
    document: { summary: 'The text of tokens.', body: 'DetokenizeRequest', ok: 'TokenText' },
    bodyBytes: limits.bodyBytes,
    check: (_, body) => void requests.readDetokenize(body),
    async answer(exchange, body) {
      const request = requests.readDetokenize(body)
      const text = await generator.detokenize(request.tokens)
      // llama-server names the text `content`, and vLLM `prompt`.
      exchange.sendJson(200, { content: text, prompt: text }, createIgnoredHeaders(request))
    },
  },
  {
    method: 'POST',
    path: '/apply-template',
    document: {
      summary: 'The prompt of a conversation, as the model reads it.',
      body: 'ChatCompletionRequest',
      ok: 'Prompt',
    },
    bodyBytes: limits.chatBodyBytes,
    check: (_, body) => void requests.readChat(body),
    async answer(exchange, body) {
      const request = requests.readChat(body)
      const [input] = request.inputs
      if (input === undefined) throw new TypeError('a chat has one input')
      const { text, tokens } = await generator.readPrompt(input)
      const reply = { prompt: text, count: tokens.length }
      exchange.sendJson(200, reply, createIgnoredHeaders(request))
    },
  },
]
