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

export interface CpuAttention {
  readonly flashAttention: boolean
  readonly experimentalKvCacheKeyType: 'F16' | 'BF16'
}

/** Numbers that llama.cpp multiplies at a time with AVX-512; it takes the rest one by one. */
const f16Step = 64
const bf16Step = 32

/**
 * No flash attention: llama.cpp's becomes slower with each token of the context. Keys are F16,
 * unless half of a step or more would be left: heads of 48 or 96 numbers. On processors with
 * AVX-512 but without its instructions for BF16, steps of BF16 are shorter.
 */
export function cpuAttention(facts: HeadFacts, flags: ReadonlySet<string>): CpuAttention {
  const isStepShorter = flags.has('avx512f') && !flags.has('avx512_bf16')
  const isLeft = headLengthOf(facts) % f16Step >= bf16Step
  return {
    flashAttention: false,
    experimentalKvCacheKeyType: isStepShorter && isLeft ? 'BF16' : 'F16',
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
