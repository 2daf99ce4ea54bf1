/**
 * Chooses the number of threads by a short measurement. On some machines, llama.cpp is several
 * times slower with as many threads as cores than with one thread fewer.
 */

import type { Clock } from '../../../../foundation/clock.ts'
import type { NativeContext } from './native-context.ts'

export type TokenTimes = ReadonlyMap<number, number>

/** The number of passes to average, because some are fast even if threads wait for each other. */
const passCount = 12
const maxMeasureMs = 2000
/** More threads must be faster by this factor, because they take cores from other programs. */
const minGain = 1.05
/** Threads are considered to stall if another number of threads is faster by this factor. */
const stallFactor = 1.5

/** Measures with the first sequence of the context, and leaves the sequence empty. */
export async function measureThreads(
  context: NativeContext,
  max: number,
  { clock, token }: { readonly clock: Clock; readonly token: number },
): Promise<TokenTimes> {
  const times = new Map<number, number>()
  const beganMs = clock.monotonicMs()
  for (const threads of candidateThreads(max)) {
    if (clock.monotonicMs() - beganMs > maxMeasureMs) break
    context.setThreads(threads)
    const startMs = clock.monotonicMs()
    let first = 0
    while (first < passCount && (first === 0 || clock.monotonicMs() - startMs < maxMeasureMs / 4)) {
      await context.evaluate([{ sequence: 0, first, tokens: [token], sampled: [0] }])
      first++
    }
    times.set(threads, (clock.monotonicMs() - startMs) / first)
    context.truncate(0, 0, first)
  }
  return times
}

export const candidateThreads = (max: number): number[] =>
  [...new Set([max, max - 1, Math.ceil(max / 2), 1])].filter((threads) => threads > 0)

/** Returns the smallest number of threads that is nearly as fast as the fastest. */
export function fastestThreads(times: TokenTimes): number {
  const best = Math.min(...times.values())
  const fastChoices = [...times].filter(([, ms]) => ms <= best * minGain)
  return Math.min(...fastChoices.map(([threads]) => threads))
}

export function excessWarning(chosen: number, cores: number): string | null {
  if (chosen <= cores) return null
  const max = `${cores} core${cores === 1 ? '' : 's'}`
  return (
    `engine.threads is ${chosen}, but this process may use ${max}: ` +
    'with more threads than cores the model is very slow; ' +
    `set engine.threads to ${cores} at most, or leave it out`
  )
}

export function stallWarning(times: TokenTimes, chosen: number): string | null {
  const better = fastestThreads(times)
  const [own = 0, other = 0] = [times.get(chosen), times.get(better)]
  if (own < other * stallFactor) return null
  const rate = (ms: number): string => `${Math.round(1000 / Math.max(ms, 0.001))} tokens/s`
  return (
    `with ${chosen} threads the model makes ${rate(own)}, ` +
    `with ${better} it makes ${rate(other)}; ` +
    `set engine.threads to ${better}, or leave it out`
  )
}
