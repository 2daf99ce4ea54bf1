import { describe, it } from 'vitest'
import type { InferenceEngine } from '../../../../src/inference/generation/inference-engine.ts'
import { inferenceEngineContract } from '../../../../src/testing/engine-contract.ts'
import { createEngine, useEngine, useTinyModel } from './open-engine.ts'

const tiny = useTinyModel()
/** Loading takes a second: only the cases that are about closing have engines of their own. */
const shared = useEngine(() => tiny.path)

/** The engine without the `close` that ends each case: it is closed after the last one. */
const keepOpen = (engine: InferenceEngine): InferenceEngine =>
  new Proxy(engine, {
    get(target, name) {
      if (name === 'close') return async () => {}
      const value: unknown = Reflect.get(target, name)
      return typeof value === 'function' ? (value.bind(target) as unknown) : value
    },
  })

describe('the engine that runs models with llama.cpp', () => {
  let isClosing = false
  inferenceEngineContract(
    (name, body) =>
      it(name, async () => {
        isClosing = /\bclosed?\b/.test(name)
        await body()
      }),
    () => (isClosing ? createEngine(tiny.path) : keepOpen(shared())),
  )
})
