import { describe, expect, it } from 'vitest'
import {
  chooseCpuAttention,
  parseCpuFlags,
} from '../../../../../src/inference/engines/llama/evaluation/cpu-attention.ts'

const flags = (...names: string[]): ReadonlySet<string> => new Set(names)

describe('the number format of keys on a CPU, and of values with flash attention', () => {
  it.each([
    ['heads of 48 with AVX-512', 48, flags('avx2', 'avx512f'), 'BF16', 'BF16'],
    ['heads of 96 with AVX-512', 96, flags('avx2', 'avx512f'), 'BF16', 'BF16'],
    ['heads of 64 with AVX-512', 64, flags('avx2', 'avx512f'), 'F16', 'F16'],
    ['heads of 128 with AVX-512', 128, flags('avx2', 'avx512f'), 'F16', 'F16'],
    ['heads of 80, of which 16 are left', 80, flags('avx2', 'avx512f'), 'F16', 'F16'],
    ['heads of 48 with AVX2 alone', 48, flags('avx2'), 'F16', 'F16'],
    ['heads of 48 with instructions for BF16', 48, flags('avx512f', 'avx512_bf16'), 'F16', 'BF16'],
    ['heads of 64 with instructions for BF16', 64, flags('avx512f', 'avx512_bf16'), 'F16', 'F16'],
    ['a processor that is not known', 48, flags(), 'F16', 'F16'],
  ])('%s', (_, length, cpuFlags, plain, flash) => {
    const counted = { embedding_length: 6 * length, attention: { head_count: 6 } }
    const given = { embedding_length: 1000, attention: { head_count: 6, key_length: length } }
    for (const facts of [counted, given]) {
      expect(chooseCpuAttention(facts, cpuFlags, false)).toEqual({
        flashAttention: false,
        experimentalKvCacheKeyType: plain,
        experimentalKvCacheValueType: 'F16',
      })
      expect(chooseCpuAttention(facts, cpuFlags, true)).toEqual({
        flashAttention: true,
        experimentalKvCacheKeyType: flash,
        experimentalKvCacheValueType: flash,
      })
    }
  })

  it('F16 where a file does not tell the length of heads', () => {
    const { experimentalKvCacheKeyType: type } = chooseCpuAttention({}, flags('avx512f'), false)
    expect(type).toBe('F16')
  })

  it('the flags of a processor are those of its line in /proc/cpuinfo', () => {
    const text = 'processor\t: 0\nflags\t\t: fpu avx2 avx512f\nbugs\t\t: spectre_v1\n'
    expect(parseCpuFlags(text)).toEqual(flags('fpu', 'avx2', 'avx512f'))
    expect(parseCpuFlags('processor\t: 0\nFeatures\t: asimd\n')).toEqual(flags())
  })
})
