/** Converts the sampling fields of a body. */

import type { Sampling } from '../../generation/inference-engine.ts'
import { wrongValue } from './invalid-request.ts'
import type { ChatBody, CompletionBody, GenerateBody } from './request-schema.ts'

/** A field that is `null` counts as left out. */
export const isGiven = <T>(value: T | null | undefined): value is T =>
  value !== undefined && value !== null

/** The sampling of a request; values that the request leaves out come from the configuration. */
export function samplingOf(
  body: ChatBody | CompletionBody | GenerateBody,
  defaultMaxTokens: number,
): { -readonly [K in keyof Sampling]?: Sampling[K] } {
  const { max_tokens: longest, max_completion_tokens: newer } = body
  if (isGiven(longest) && isGiven(newer)) {
    throw wrongValue(
      'max_tokens',
      "Invalid value for 'max_tokens': it is not allowed with 'max_completion_tokens'.",
    )
  }
  const maxTokens = newer ?? longest ?? defaultMaxTokens
  const sampling: ReturnType<typeof samplingOf> = { maxTokens }
  if (isGiven(body.temperature)) sampling.temperature = body.temperature
  if (isGiven(body.top_p)) sampling.topP = body.top_p
  if (isGiven(body.top_k)) sampling.topK = Math.max(0, body.top_k)
  if (isGiven(body.min_p)) sampling.minP = body.min_p
  const repetitionPenalty = repetitionPenaltyOf(body)
  if (isGiven(repetitionPenalty)) sampling.repetitionPenalty = repetitionPenalty
  if (isGiven(body.presence_penalty)) sampling.presencePenalty = body.presence_penalty
  if (isGiven(body.frequency_penalty)) sampling.frequencyPenalty = body.frequency_penalty
  if (isGiven(body.logit_bias)) sampling.logitBias = body.logit_bias
  if (isGiven(body.seed)) sampling.seed = body.seed
  if (isGiven(body.stop)) sampling.stop = typeof body.stop === 'string' ? [body.stop] : body.stop
  if (isGiven(body.ignore_eos)) sampling.ignoreEos = body.ignore_eos
  return sampling
}

/** Read by its name in vLLM, or by its name in llama-server and Ollama. */
function repetitionPenaltyOf(
  body: ChatBody | CompletionBody | GenerateBody,
): number | null | undefined {
  const { repetition_penalty: penalty, repeat_penalty: other } = body
  if (!isGiven(penalty) || !isGiven(other) || penalty === other) return penalty ?? other
  throw wrongValue(
    'repeat_penalty',
    "Invalid value for 'repeat_penalty': 'repetition_penalty' has another value.",
  )
}

/** How many alternatives per token a chat request asks for; `null` for no log probabilities. */
export function logprobsOf({ logprobs, top_logprobs: top }: ChatBody): number | null {
  if (logprobs === true) return top ?? 0
  if (!isGiven(top)) return null
  throw wrongValue(
    'top_logprobs',
    "Invalid value for 'top_logprobs': it is only allowed when 'logprobs' is true.",
  )
}
