import { describe, it } from 'vitest'
import { inferenceEngineContract } from '../../../../src/testing/engine-contract.ts'
import { createEngine, useTinyModel } from './open-engine.ts'

const tiny = useTinyModel()

describe('the engine that runs models with llama.cpp', () => {
  inferenceEngineContract(it, () => createEngine(tiny.path))
})
