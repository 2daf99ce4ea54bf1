/** Asks for many answers a slice at a time: nobody waits until all of them are asked for. */

import type { Clock } from '../foundation/clock.ts'
import { inferenceError } from './generation/inference-errors.ts'

/** Questions per turn of the event loop. */
const sliceSize = 250

/**
 * Answers in the order of the items; the first slice is asked for at once. The first failure
 * aborts the rest and rejects. What has not been asked for when `abort` is aborted never is.
 */
export async function askInSlices<Item, Answer>(
  items: readonly Item[],
  ask: (item: Item) => Promise<Answer>,
  { clock, abort }: { readonly clock: Clock; readonly abort: AbortController },
): Promise<Answer[]> {
  // Whose list it is may change it between the slices.
  const all = [...items]
  const asked: Promise<Answer>[] = []
  const failures: unknown[] = []
  const fail = (error: unknown): void => {
    failures.push(error)
    abort.abort()
  }
  for (let from = 0; from < all.length; from += sliceSize) {
    if (from > 0) await new Promise<void>((resolve) => clock.nextTurn(resolve))
    for (const item of all.slice(from, from + sliceSize)) {
      if (abort.signal.aborted) break
      const answer = ask(item)
      answer.catch(fail)
      asked.push(answer)
    }
    if (abort.signal.aborted) break
  }
  try {
    // Also where not all were asked for: those that were are canceled, and one may have failed.
    const answers = await Promise.all(asked)
    if (asked.length === all.length) return answers
  } catch {
    // The first failure in time, which need not be the first in the list.
    throw failures[0]
  }
  throw inferenceError('canceled', 'the request was canceled')
}
