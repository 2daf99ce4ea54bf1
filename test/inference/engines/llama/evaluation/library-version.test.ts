import { tmpdir } from 'node:os'
import type * as Library from 'node-llama-cpp'
import { expect, it, vi } from 'vitest'
import { loadRuntime } from '../../../../../src/inference/engines/llama/llama-cpp.ts'
import type { LlamaRuntime } from '../../../../../src/inference/engines/llama/runtime.ts'
import { useTinyModel } from '../open-engine.ts'

const version = vi.hoisted(() => ({ told: '' }))
// The real library, which tells another version.
vi.mock('node-llama-cpp', async (importOriginal) => ({
  ...(await importOriginal<typeof Library>()),
  getModuleVersion: async () => version.told,
}))

const tiny = useTinyModel()

function load(told: string, usesNativeContext = true): Promise<LlamaRuntime> {
  version.told = told
  const order = { modelName: tiny.path, hubToken: null, cacheDir: tmpdir(), threads: 1 }
  const sizes = { sequences: 1, batchSize: 64, contextLength: 128 }
  const device = { gpu: false, flashAttention: false } as const
  return loadRuntime({ ...order, ...sizes, ...device, usesNativeContext }, () => {})
}

it.each(['3.21.1', '3.22.1'])('node-llama-cpp %s is known', async (told) => {
  expect((await load(told)).libraryProblem).toBe(null)
})

it('a version that is not known is told, with the known ones and what it costs', async () => {
  const { libraryProblem } = await load('3.99.0')
  expect(libraryProblem).toMatch(/3\.99\.0 .*\(3\.21\.1, 3\.22\.1\).*half.*ten times slower/)
})

it('who chose the interface of the library is not warned', async () => {
  expect((await load('3.99.0', false)).libraryProblem).toBe(null)
})
