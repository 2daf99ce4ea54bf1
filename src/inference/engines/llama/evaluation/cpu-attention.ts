/**
 * How a context on a CPU computes attention. By rules instead of a measurement: the format of keys
 * changes the last digits of log probabilities, which must not depend on how busy the machine was.
 */

import { readFileSync } from 'node:fs'

/** What a GGUF file says about heads, by its names. */
export interface HeadFacts {
  readonly embedding_length?: number
  readonly attention?: { readonly head_count?: number; readonly key_length?: number }
}

type NumberFormat = 'F16' | 'BF16'

/** By the library's names. */
export interface CpuAttention {
  readonly flashAttention: boolean
  readonly experimentalKvCacheKeyType: NumberFormat
  readonly experimentalKvCacheValueType: NumberFormat
}

/** Numbers that llama.cpp multiplies at a time with AVX-512; it takes the rest one by one. */
const f16Step = 64
const bf16Step = 32

/**
 * Keys are F16, unless half of a step or more would be left: heads of 48 or 96 numbers. On
 * processors with AVX-512 but without its instructions for BF16, steps of BF16 are shorter. Flash
 * attention reads values in the same way.
 *
 * Flash attention is off unless it is asked for: it leaves out the positions that an answer does
 * not have, at least 256 are computed without it, but each token of a prompt takes longer with each
 * token before it.
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

/** NaN where the file does not say it. */
const headLengthOf = ({ attention, embedding_length: length }: HeadFacts): number =>
  attention?.key_length ?? Number(length) / Number(attention?.head_count)

/** Of this machine, by Linux's names; empty on other systems. */
export function cpuFlags(): ReadonlySet<string> {
  try {
    return cpuFlagsOf(readFileSync('/proc/cpuinfo', 'utf8'))
  } catch {
    return new Set()
  }
}

/** Of the first processor in the text of `/proc/cpuinfo`; empty where it has none. */
export function cpuFlagsOf(cpuinfo: string): ReadonlySet<string> {
  const [, flags = ''] = /^flags\s*:(.*)$/m.exec(cpuinfo) ?? []
  return new Set(flags.split(' ').filter((flag) => flag !== ''))
}
