/** Estimates how much memory models need before they are loaded. */

import { stat } from 'node:fs/promises'
import type { InferenceConfig } from '../config/inference-config.ts'
import { estimateCacheBytes, maxSecondCacheBytes } from '../models/gguf-file.ts'

/** The memory that is left to the other programs of the machine. */
const reservedBytes = 2 * 2 ** 30

/** The memory that all models of a server may have together. */
export function findMemoryBudget({ hardware }: InferenceConfig): number {
  if (hardware.modelMemoryMb !== null) return hardware.modelMemoryMb * 2 ** 20
  return Math.max(0, process.availableMemory() - reservedBytes)
}

/**
 * Estimates the memory of a model: the size of its file and, for each worker of the llama engine,
 * also of its adapter and of the keys and values of all sequences, twice if there may be a second
 * context. 0 for models whose file is not on this machine, because their memory is that of another
 * server or unknown.
 */
export async function estimateModelBytes(config: InferenceConfig): Promise<number> {
  const { modelPath, adapterPath, hardware, llm, purpose, engine } = config
  const file = await stat(modelPath).catch(() => null)
  if (file === null || !file.isFile()) return 0
  if (engine.kind !== 'llama') return file.size
  const sequences = purpose === 'embedding' ? 1 : engine.sequences
  const size = { sequences, maxLength: llm.maxModelLen }
  const cache = await estimateCacheBytes(modelPath, size).catch(() => 0)
  const mayHaveSecond = purpose !== 'embedding' && engine.flashAttention === 'auto'
  const contexts = mayHaveSecond && cache <= maxSecondCacheBytes ? 2 : 1
  const adapter = adapterPath === null ? null : await stat(adapterPath).catch(() => null)
  return (file.size + contexts * cache + (adapter?.size ?? 0)) * hardware.numInfWorkers
}
