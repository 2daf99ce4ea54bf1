/** Sampling for tests. */

import type { Sampling } from '../inference/generation/inference-engine.ts'

/** The most likely token always, 16 at most, and nothing else asked for. */
export const greedySampling: Sampling = {
  maxTokens: 16,
  temperature: 0,
  topP: 1,
  topK: 0,
  minP: 0,
  repetitionPenalty: 1,
  seed: null,
  stop: [],
  ignoreEos: false,
  logprobs: null,
  format: { kind: 'text' },
}
