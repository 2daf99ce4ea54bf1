/** Engines of real models in real processes, closed after the test. */

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, onTestFinished } from 'vitest'
import { installModel } from '../../../../src/inference/models/model-file.ts'
import { systemClock } from '../../../../src/foundation/clock.ts'
import type { InferenceEngine } from '../../../../src/inference/generation/inference-engine.ts'
import {
  createLlamaEngine,
  type LlamaEngineOptions,
} from '../../../../src/inference/engines/llama/llama-engine.ts'
import { loadRuntime } from '../../../../src/inference/engines/llama/llama-cpp.ts'
import type { LoadRequest } from '../../../../src/inference/engines/llama/protocol.ts'
import type { LlamaRuntime, TokenChoice } from '../../../../src/inference/engines/llama/runtime.ts'
import { writeTinyModel } from '../tiny-model.ts'

const models = fileURLToPath(new URL('../../../../.models', import.meta.url))

/** The model that writes stories. */
export const storyModel = (): string =>
  installModel('stories15M', { folder: models, onProgress: () => {} }).path

/** One sequence of the story model in this process, on one thread, and a greedy choice. */
export async function loadStorySlot(
  order: Pick<LoadRequest, 'batchSize' | 'contextLength'> & Partial<LoadRequest>,
) {
  const runtime = await loadRuntime(
    {
      modelName: storyModel(),
      hubToken: null,
      cacheDir: tmpdir(),
      threads: 1,
      gpu: false,
      flashAttention: false,
      sequences: 1,
      ...order,
    },
    () => {},
  )
  const [slot] = runtime.slots
  if (slot === undefined) throw new Error('no slot')
  const { vocabulary } = runtime
  const createGrammar: LlamaRuntime['createGrammar'] = (format) => runtime.createGrammar(format)
  const greedy: TokenChoice = {
    temperature: 0,
    topP: 1,
    topK: 0,
    minP: 0,
    seed: 1,
    repetition: null,
    bias: null,
    grammar: null,
    logprobs: null,
  }
  return { slot, vocabulary, createGrammar, greedy }
}

/** A folder for the test file, with the model that has a template. */
export function useTinyModel(template?: string): {
  readonly folder: string
  readonly path: string
} {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-tiny-'))
  afterAll(() => rmSync(folder, { recursive: true, force: true }))
  return { folder, path: writeTinyModel(folder, template) }
}

/** Not started. Its settings are fixed, so that nothing is measured. */
export function createEngine(
  modelName: string,
  options: Partial<LlamaEngineOptions> = {},
): InferenceEngine {
  const engine = createLlamaEngine({
    modelName,
    hubToken: null,
    cacheDir: tmpdir(),
    threads: 1,
    flashAttention: false,
    batchSize: 512,
    gpu: false,
    clock: systemClock,
    log: { warn: () => {} },
    ...options,
  })
  return engine
}

/** Started, and shared by the tests of a file: loading takes a second. */
export function useEngine(
  toModel: () => string,
  options: Partial<LlamaEngineOptions> = {},
): () => InferenceEngine {
  let engine: InferenceEngine | undefined
  beforeAll(async () => {
    engine = createEngine(toModel(), options)
    await engine.start()
  })
  afterAll(() => engine?.close())
  return () => {
    if (engine === undefined) throw new Error('the engine is not started')
    return engine
  }
}

/** Started for this test alone. */
export async function openEngine(
  modelName: string,
  options: Partial<LlamaEngineOptions> = {},
): Promise<InferenceEngine> {
  const engine = createEngine(modelName, options)
  onTestFinished(() => engine.close())
  await engine.start()
  return engine
}
