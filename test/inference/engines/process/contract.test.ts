import { describe, it, onTestFinished } from 'vitest'
import { createProcessEngine } from '../../../../src/inference/engines/process.ts'
import { inferenceEngineContract } from '../../../../src/testing/engine-contract.ts'
import { engineOptions } from './engine-options.ts'

describe('the engine that starts its own server', () => {
  inferenceEngineContract(
    it,
    () => {
      const engine = createProcessEngine(engineOptions(), { index: 0, workerId: 'w0' })
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
