/** The routes for embeddings, which exist if the engine computes them. */

import type { HttpExchange } from '../../runtime/http/http-exchange.ts'
import { inferenceError } from '../generation/inference-errors.ts'
import type { GenerationResult } from '../generation/text-generator.ts'
import { toUnitVector } from '../generation/fields/unit-vector.ts'
import { z } from '../schema/schema.ts'
import type { DocumentedRoute } from './openapi.ts'
import { sendWholeReply } from './replies/replies.ts'
import { outOfRangeError } from './requests/invalid-request.ts'
import type { EmbeddingRequest } from './requests/request-reader.ts'
import { toServedName } from './surfaces/ollama-request.ts'
import type { CompanionContext } from './surfaces/surface.ts'
import { expectValid } from './surfaces/translation.ts'

export function createEmbeddingRoutes(context: CompanionContext): readonly DocumentedRoute[] {
  const { limits, requests } = context
  if (!requests.rules.fields.includes('embeddings')) return []
  const shared = { method: 'POST', bodyBytes: limits.chatBodyBytes } as const
  return [
    {
      ...shared,
      path: '/v1/embeddings',
      document: { summary: 'Embeds texts.', body: 'EmbeddingRequest', ok: 'Embeddings' },
      check: (_, body) => void requests.readEmbedding(body),
      answer: (exchange, body) => sendEmbeddings(context, exchange, requests.readEmbedding(body)),
    },
    {
      ...shared,
      path: '/api/embed',
      document: { summary: 'Embeds texts, in the form of the Ollama API.', failure: 'OllamaError' },
      isAnyTypeAccepted: true,
      check: (_, body) => void readOllamaRequest(context, body),
      answer: (exchange, body) => sendOllamaEmbeddings(context, exchange, body),
    },
  ]
}

function sendEmbeddings(
  { generator }: CompanionContext,
  exchange: HttpExchange,
  request: EmbeddingRequest,
): Promise<void> {
  return sendWholeReply(generator, exchange, request, {
    toBody: (results, { promptTokens }) => ({
      object: 'list',
      data: results.map((result, index) => {
        const vector = readEmbedding(result, request)
        const embedding = request.isBase64 ? toBase64(vector) : Array.from(vector)
        return { object: 'embedding', index, embedding }
      }),
      model: request.model,
      usage: { prompt_tokens: promptTokens, total_tokens: promptTokens },
    }),
  })
}

const ollamaRequest = z.looseObject({
  model: z.string(),
  input: z.unknown(),
  dimensions: z.unknown().optional(),
})

/** `truncate`, `options` and `keep_alive` have no effect. */
function readOllamaRequest({ requests }: CompanionContext, body: unknown) {
  const { model, input, dimensions } = expectValid(ollamaRequest, body)
  const served = toServedName(model, requests.rules.models)
  return { model, request: requests.readEmbedding({ model: served, input, dimensions }) }
}

function sendOllamaEmbeddings(
  context: CompanionContext,
  exchange: HttpExchange,
  body: unknown,
): Promise<void> {
  const { generator, clock } = context
  const startMs = clock.monotonicMs()
  const { model, request } = readOllamaRequest(context, body)
  return sendWholeReply(generator, exchange, request, {
    toBody: (results, { promptTokens }) => ({
      model,
      embeddings: results.map((result) => Array.from(readEmbedding(result, request))),
      total_duration: Math.round((clock.monotonicMs() - startMs) * 1e6),
      load_duration: 0,
      prompt_eval_count: promptTokens,
    }),
  })
}

/** Returns the embedding. For fewer `dimensions`, returns the unit vector of its first numbers. */
function readEmbedding(
  { embedding, text }: GenerationResult,
  { dimensions }: Pick<EmbeddingRequest, 'dimensions'>,
): Float32Array {
  // Without an embedding, the text is the sentence with which the guardrails refuse the input.
  if (embedding === undefined) throw inferenceError('content_filter', text)
  if (dimensions === null || dimensions === embedding.length) return embedding
  if (dimensions < embedding.length) return toUnitVector(embedding.subarray(0, dimensions))
  const bound = { side: 'max', value: embedding.length, isInclusive: true } as const
  throw outOfRangeError('dimensions', 'integer', dimensions, bound)
}

/** The bytes are little-endian, as on all machines that llama.cpp supports. */
const toBase64 = ({ buffer, byteOffset, byteLength }: Float32Array): string =>
  Buffer.from(buffer, byteOffset, byteLength).toString('base64')
