import { afterAll, describe, it, onTestFinished } from 'vitest'
import { createProcessEngine } from '../../../../src/inference/engines/process/process-engine.ts'
import type { InferenceEngine } from '../../../../src/inference/generation/inference-engine.ts'
import { inferenceEngineContract } from '../../../../src/testing/engine-contract.ts'
import { engineOptions } from './engine-options.ts'

const createEngine = (): InferenceEngine =>
  createProcessEngine(engineOptions(), { index: 0, workerId: 'w0' })

describe('the engine that starts its own server', () => {
  /** Cases that close the engine themselves; with a shared engine they would fail. */
  const closingCases = new Set([
    'ends all requests on close, also when closed twice',
    'fails requests after close',
  ])
  const shared = createEngine()
  afterAll(() => shared.close())
  /** All other cases use one server, because starting one takes longer than a case. */
  const openShared: InferenceEngine = {
    capacity: shared.capacity,
    start: () => shared.start(),
    generate: (requests, listener) => shared.generate(requests, listener),
    tokenize: (text) => shared.tokenize(text),
    lost: () => shared.lost(),
    close: () => Promise.resolve(),
  }
  let needsOwn = false

  inferenceEngineContract(
    (name, run) =>
      it(name, () => {
        needsOwn = closingCases.has(name)
        return run()
      }),
    () => {
      if (!needsOwn) return openShared
      const engine = createEngine()
      onTestFinished(() => engine.close())
      return engine
    },
    {
      skip: {
        'produces JSON that matches a schema': 'the server of the test returns the prompt',
        'calls the tool that toolChoice names': 'the server of the test returns the prompt',
      },
    },
  )
})
