/** Sampling for tests: the most likely token always, and nothing else asked for. */

import type { Sampling } from '../inference/engine.ts'

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
