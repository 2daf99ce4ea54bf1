/**
 * Chooses how a context on a CPU computes attention. Uses fixed rules instead of a measurement: the
 * number format of keys changes the last digits of log probabilities, which must not depend on the
 * machine's load.
 */

import { readFileSync } from 'node:fs'

/** The sizes of attention heads, named as in a GGUF file. */
export interface HeadFacts {
  readonly embedding_length?: number
  readonly attention?: { readonly head_count?: number; readonly key_length?: number }
}

type NumberFormat = 'F16' | 'BF16'

/** The options, named as in the library. */
export interface CpuAttention {
  readonly flashAttention: boolean
  readonly experimentalKvCacheKeyType: NumberFormat
  readonly experimentalKvCacheValueType: NumberFormat
}

/**
 * How many numbers llama.cpp multiplies at a time with AVX-512. A remainder is multiplied one by
 * one.
 */
const f16Step = 64
const bf16Step = 32

/**
 * Keys are F16, unless the remainder is half of a step or more: heads of 48 or 96 numbers. On
 * processors with AVX-512 but without its BF16 instructions, BF16 steps are shorter. Flash
 * attention reads values in the same way.
 *
 * Flash attention is off unless requested. It skips positions that an answer does not use
 * (otherwise 256 or more are computed), but each prompt token takes longer with each preceding
 * token.
 */
export function cpuAttention(
  facts: HeadFacts,
  flags: ReadonlySet<string>,
  flashAttention: boolean,
): CpuAttention {
  const isStepShorter = flags.has('avx512f') && !flags.has('avx512_bf16')
  const isLeft = headLengthOf(facts) % f16Step >= bf16Step
  const format = isStepShorter && isLeft ? 'BF16' : 'F16'
  return {
    flashAttention,
    experimentalKvCacheKeyType: format,
    experimentalKvCacheValueType: flashAttention ? format : 'F16',
  }
}

/** NaN if the file does not contain the sizes. */
const headLengthOf = ({ attention, embedding_length: length }: HeadFacts): number =>
  attention?.key_length ?? Number(length) / Number(attention?.head_count)

/** The CPU flags of this machine, named as in Linux; empty on other systems. */
export function cpuFlags(): ReadonlySet<string> {
  try {
    return cpuFlagsOf(readFileSync('/proc/cpuinfo', 'utf8'))
  } catch {
    return new Set()
  }
}

/** The flags of the first processor in the text of `/proc/cpuinfo`; empty if there are none. */
export function cpuFlagsOf(cpuinfo: string): ReadonlySet<string> {
  const [, flags = ''] = /^flags\s*:(.*)$/m.exec(cpuinfo) ?? []
  return new Set(flags.split(' ').filter((flag) => flag !== ''))
}
