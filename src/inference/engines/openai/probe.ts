/** Asks whether a server still answers. */

import { boundedWait } from '../../../foundation/promises.ts'
import { type Clock, sleep } from '../../../foundation/clock.ts'
import type { UpstreamLink } from './upstream-link.ts'

const answerMs = 5000
const pauseMs = 1000
const tries = 3

/** Where to ask, and by whose time. */
export interface Probe {
  readonly link: UpstreamLink
  readonly path: string
  readonly clock: Clock
  readonly signal: AbortSignal
}

/** The status of one GET, or `null` when no answer came in time. */
export async function probeOnce({ link, path, clock, signal }: Probe): Promise<number | null> {
  const over = new AbortController()
  try {
    const asking = link.get(path, AbortSignal.any([signal, over.signal]))
    const answer = await boundedWait(clock, answerMs, asking)
    answer.discard()
    return answer.status
  } catch {
    return null
  } finally {
    over.abort()
  }
}

/**
 * Whether it answers at least one of a few tries: with whatever it has to say, unless that is an
 * error of its own. Rejects with the signal's reason.
 */
export async function isAnswering(probe: Probe): Promise<boolean> {
  for (let attempt = 1; ; attempt++) {
    const status = await probeOnce(probe)
    probe.signal.throwIfAborted()
    if (status !== null && status < 500) return true
    if (attempt === tries) return false
    await sleep(probe.clock, pauseMs, { signal: probe.signal })
  }
}
