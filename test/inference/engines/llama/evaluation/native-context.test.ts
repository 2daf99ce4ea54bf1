import type { LlamaContext, LlamaModel } from 'node-llama-cpp'
import { expect, it } from 'vitest'
import {
  NativeContext,
  type PassPart,
} from '../../../../../src/inference/engines/llama/evaluation/native-context.ts'

/** Real reads would disturb each other only now and then. */
function openContext() {
  const reads: PromiseWithResolvers<number>[] = []
  const addon = {
    initBatch: () => {},
    decodeBatch: async () => {},
    sampleToken() {
      const read = Promise.withResolvers<number>()
      reads.push(read)
      return read.promise
    },
  }
  class AddonSampler {
    applyConfig(): void {}
    dispose(): void {}
  }
  const model = { _llama: { _bindings: { AddonSampler } } } as unknown as LlamaModel
  const context = { _ctx: addon } as unknown as LlamaContext
  return { native: new NativeContext(model, context), reads }
}

/** The addon of these tests evaluates nothing. */
const pass: readonly PassPart[] = []

const turn = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve))

it('the first read of every pass has ended before others begin', async () => {
  const { native, reads } = openContext()
  for (let passes = 0; passes < 2; passes++) {
    await native.evaluate(pass)
    const before = reads.length
    const chosen = [0, 1, 2].map((index) => native.choose(index, native.samplers.acquire()))
    await turn()
    expect(reads).toHaveLength(before + 1)
    reads[before]?.resolve(10)
    await turn()
    expect(reads).toHaveLength(before + 3)
    reads[before + 1]?.resolve(11)
    reads[before + 2]?.resolve(12)
    expect(await Promise.all(chosen)).toEqual([10, 11, 12])
  }
})

it('a first read that failed fails alone', async () => {
  const { native, reads } = openContext()
  await native.evaluate(pass)
  const [one, other] = [0, 1].map((index) => native.choose(index, native.samplers.acquire()))
  await turn()
  reads[0]?.reject(new Error('broken'))
  await expect(one).rejects.toThrow('broken')
  await turn()
  reads[1]?.resolve(7)
  expect(await other).toBe(7)
})
