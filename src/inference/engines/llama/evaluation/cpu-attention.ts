/**
 * Chooses how a context on a CPU computes attention. The choice follows fixed rules instead of
 * measurements, because the number format of keys changes the last digits of log probabilities, and
 * these must not depend on the machine's load.
 */

import { readFileSync } from 'node:fs'
import { tryRead } from '../../../../foundation/errors.ts'

export interface AttentionSizes {
  readonly embedding_length?: number
  readonly attention?: { readonly head_count?: number; readonly key_length?: number }
}

type NumberFormat = 'F16' | 'BF16'

export interface CpuAttentionOptions {
  readonly flashAttention: boolean
  readonly experimentalKvCacheKeyType: NumberFormat
  readonly experimentalKvCacheValueType: NumberFormat
}

/** How many F16 numbers llama.cpp multiplies in one step with AVX-512. The rest takes longer. */
const f16Step = 64
/** How many BF16 numbers, without the instructions of AVX-512 for BF16. */
const bf16Step = 32

/**
 * Uses BF16 if the length of a head leaves a large remainder after whole steps of F16, because BF16
 * computes a remainder faster (docs/inference.md). Without flash attention, llama.cpp computes
 * prompts in steps of another length.
 */
export function chooseCpuAttention(
  { attention, embedding_length: length }: AttentionSizes,
  flags: ReadonlySet<string>,
  flashAttention: boolean,
): CpuAttentionOptions {
  const isFaster = flags.has('avx512f') && (flashAttention || !flags.has('avx512_bf16'))
  // `NaN` if the file does not contain the sizes.
  const headLength = attention?.key_length ?? Number(length) / Number(attention?.head_count)
  const hasLargeRest = headLength % f16Step >= bf16Step
  const format = isFaster && hasLargeRest ? 'BF16' : 'F16'
  return {
    flashAttention,
    experimentalKvCacheKeyType: format,
    experimentalKvCacheValueType: flashAttention ? format : 'F16',
  }
}

export const readCpuFlags = (): ReadonlySet<string> =>
  parseCpuFlags(tryRead(() => readFileSync('/proc/cpuinfo', 'utf8')) ?? '')

export function parseCpuFlags(cpuinfo: string): ReadonlySet<string> {
  const [, flags = ''] = /^flags\s*:(.*)$/m.exec(cpuinfo) ?? []
  return new Set(flags.split(' ').filter((flag) => flag !== ''))
}
