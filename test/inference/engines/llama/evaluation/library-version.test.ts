import { readFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import type * as Library from 'node-llama-cpp'
import { expect, it, vi } from 'vitest'
import { llamaVersion } from '../../../../../src/foundation/version.ts'
import { loadRuntime } from '../../../../../src/inference/engines/llama/llama-cpp.ts'

// The real library, which reports another version.
vi.mock('node-llama-cpp', async (importOriginal) => ({
  ...(await importOriginal<typeof Library>()),
  getModuleVersion: async () => '3.99.0',
}))

it('the engine refuses another version of node-llama-cpp, and names both', async () => {
  const order = { modelName: 'model.gguf', hubToken: null, cacheDir: tmpdir(), threads: 1 }
  const sizes = { sequences: 1, batchSize: 64, contextLength: 128 }
  const device = { gpu: false, flashAttention: false } as const
  const loaded = loadRuntime({ ...order, ...sizes, ...device }, () => {})
  await expect(loaded).rejects.toMatchObject({
    message: 'the llama engine needs node-llama-cpp 3.21.1, but version 3.99.0 is installed',
    hint: 'npm install node-llama-cpp@3.21.1',
  })
})

it('package.json asks for the version of node-llama-cpp that the engine needs', () => {
  const text = readFileSync(new URL('../../../../../package.json', import.meta.url), 'utf8')
  const manifest = JSON.parse(text) as Record<string, Record<string, string>>
  for (const kind of ['peerDependencies', 'devDependencies']) {
    expect(manifest[kind]?.['node-llama-cpp']).toBe(llamaVersion)
  }
})
