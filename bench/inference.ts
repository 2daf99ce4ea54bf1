/** The cost of inference: `node bench/inference.ts [name]`. */

import { fairness } from './inference-fairness.ts'
import { batching, distinct, grammar, logprobs, lone, turns } from './inference-llama.ts'
import { overhead, streams, surfaces, upstream, window } from './inference-serving.ts'

const benchmarks: Readonly<Record<string, () => Promise<void> | void>> = {
  overhead,
  surfaces,
  window,
  upstream,
  streams,
  batching,
  lone,
  turns,
  logprobs,
  fairness,
  grammar,
  distinct,
}
const wanted = process.argv[2] ?? 'all'
for (const [name, measure] of Object.entries(benchmarks)) {
  if (wanted === 'all' || wanted === name) await measure()
}
