/** From the checked bodies of `POST /v1/completions` and `POST /generate` to requests for text. */

import { outOfRange } from './invalid-request.ts'
import type { CompletionBody, GenerateBody } from './request-schema.ts'
import {
  type RequestRules,
  samplingOf,
  servedModel,
  streamingOf,
  type TextRequest,
} from './text-request.ts'

/** A completion request; with `isEcho` each answer begins with its prompt. */
export interface CompletionRequest extends TextRequest {
  readonly prompts: readonly string[]
  readonly isEcho: boolean
}

/** The request; more answers than `maxPrompts` for all prompts together are an `HttpError`. */
export function toCompletionRequest(
  body: CompletionBody,
  rules: RequestRules,
  ignored: readonly string[],
): CompletionRequest {
  const model = servedModel(body.model, rules)
  const prompts = typeof body.prompt === 'string' ? [body.prompt] : body.prompt
  const n = body.n ?? 1
  const most = Math.max(1, Math.min(128, Math.floor(rules.maxPrompts / prompts.length)))
  if (n > most) {
    throw outOfRange('n', 'integer', n, { side: 'max', value: most, isInclusive: true })
  }
  const sampling = samplingOf(body, rules.defaultMaxTokens)
  sampling.logprobs = body.logprobs ?? null
  return {
    model,
    prompts,
    inputs: prompts.map((text) => ({ kind: 'text', text })),
    n,
    isEcho: body.echo ?? false,
    sampling,
    priority: body.priority ?? 0,
    timeoutSeconds: body.timeout ?? null,
    ...streamingOf(body),
    ignored,
  }
}

/** One answer to each prompt, as if a user had asked it; never a stream. */
export function toGenerateRequest(
  body: GenerateBody,
  rules: RequestRules,
  ignored: readonly string[],
): TextRequest {
  return {
    model: servedModel(body.model, rules),
    inputs: body.prompts.map((content) => ({
      kind: 'chat',
      messages: [{ role: 'user', content }],
    })),
    n: 1,
    sampling: samplingOf(body, rules.defaultMaxTokens),
    priority: body.priority ?? 0,
    timeoutSeconds: body.timeout ?? null,
    isStream: false,
    includesUsage: false,
    ignored,
  }
}
