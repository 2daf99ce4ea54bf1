/** The whole contract of an engine as one callable suite; every engine's own test calls it. */

import assert from 'node:assert/strict'
import type { InferenceEngine } from '../inference/generation/inference-engine.ts'
import type { ContractTest } from './backend-contract.ts'
import { engineCases } from './engine-cases.ts'
import { EngineStage } from './engine-stage.ts'

/** How `inferenceEngineContract` is fitted to one engine. */
export interface EngineContractOptions {
  /** Cases that cannot hold for this engine, each with the reason. */
  readonly skip?: Readonly<Record<string, string>>
  /** What is asked: a few words to which the model has more than three tokens to say. */
  readonly prompt?: string
  /** How long most answers may be, in tokens. Default 24. */
  readonly maxTokens?: number
}

/** Declares one test for every promise of an engine. `create` gives a fresh one, not started. */
export function inferenceEngineContract(
  test: ContractTest,
  create: () => InferenceEngine | Promise<InferenceEngine>,
  options: EngineContractOptions = {},
): void {
  const { skip = {}, prompt = 'Once upon a time a small red fox', maxTokens = 24 } = options
  const unknown = Object.keys(skip).find((name) => !(name in engineCases))
  assert.equal(unknown, undefined, `the contract has no case "${unknown}"`)
  for (const [name, body] of Object.entries(engineCases)) {
    if (name in skip) continue
    test(name, async () => {
      const engine = await create()
      try {
        const stage = new EngineStage(engine, await engine.start(), prompt, maxTokens)
        await body(stage)
        await engine.close()
        await stage.settle()
        stage.assertSound()
      } finally {
        await engine.close()
      }
    })
  }
}
