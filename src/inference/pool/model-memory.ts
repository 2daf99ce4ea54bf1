/** Estimates how much memory models need before they are loaded. */

import { stat } from 'node:fs/promises'
import type { InferenceConfig } from '../config/inference-config.ts'
import { readGgufNumbers } from '../models/gguf-file.ts'

/** The memory that is left to the other programs of the machine. */
const reservedBytes = 2 * 2 ** 30
/** llama.cpp keeps keys and values as 16-bit numbers. */
const bytesPerNumber = 2

/** The memory that all models of a server may have together. */
export function findMemoryBudget({ hardware }: InferenceConfig): number {
  if (hardware.modelMemoryMb !== null) return hardware.modelMemoryMb * 2 ** 20
  return Math.max(0, process.availableMemory() - reservedBytes)
}

/**
 * Estimates the memory of a model: the size of its file and, for each worker of the llama engine,
 * also of its adapter and of the keys and values of all sequences. 0 for models whose file is not
 * on this machine, because their memory is that of another server or unknown.
 */
export async function estimateModelBytes(config: InferenceConfig): Promise<number> {
  const { modelPath, adapterPath, hardware, engine } = config
  const file = await stat(modelPath).catch(() => null)
  if (file === null || !file.isFile()) return 0
  if (engine.kind !== 'llama') return file.size
  const cache = await estimateCacheBytes(config, engine.sequences).catch(() => 0)
  const adapter = adapterPath === null ? null : await stat(adapterPath).catch(() => null)
  return (file.size + cache + (adapter?.size ?? 0)) * hardware.numInfWorkers
}

async function estimateCacheBytes(
  { modelPath, llm, purpose }: InferenceConfig,
  sequences: number,
): Promise<number> {
  const numbers = await readGgufNumbers(modelPath)
  const get = (name: string, otherwise: number): number => numbers.get(name) ?? otherwise
  const heads = get('attention.head_count', 1)
  const size = get('embedding_length', 0) / heads
  const length = Math.min(llm.maxModelLen, get('context_length', llm.maxModelLen))
  const perToken =
    get('block_count', 0) *
    get('attention.head_count_kv', heads) *
    (get('attention.key_length', size) + get('attention.value_length', size))
  return length * (purpose === 'embedding' ? 1 : sequences) * perToken * bytesPerNumber
}
