import { describe, it } from 'vitest'
import { inferenceEngineContract } from '../../../../src/testing/engine-contract.ts'
import { openEngine } from './open-engine.ts'

describe('the engine that attaches to a server', () => {
  inferenceEngineContract(it, async () => (await openEngine()).engine, {
    skip: {
      'produces JSON that matches a schema': 'the server of the test returns the prompt',
      'calls the tool that toolChoice names': 'the server of the test returns the prompt',
    },
  })
})
