/** Deterministic sampling options for tests. */

import type { Sampling } from '../inference/generation/inference-engine.ts'

/** Always takes the most likely token, and generates up to 16 tokens. */
export const greedySampling: Sampling = {
  maxTokens: 16,
  temperature: 0,
  topP: 1,
  topK: 0,
  minP: 0,
  repetitionPenalty: 1,
  presencePenalty: 0,
  frequencyPenalty: 0,
  logitBias: {},
  seed: null,
  stop: [],
  ignoreEos: false,
  logprobs: null,
  echo: false,
  format: { kind: 'text' },
}
