/** Asks for many answers a slice at a time: nobody waits until all of them are asked for. */

import type { Clock } from '../foundation/clock.ts'
import { TurnBudget } from '../runtime/turn-budget.ts'
import { inferenceError } from './generation/inference-errors.ts'

/**
 * Answers in the order of the items; the first slice is asked for at once. The first failure
 * aborts the rest and rejects. What has not been asked for when `abort` is aborted never is.
 */
export async function askInSlices<Item, Result>(
  items: readonly Item[],
  ask: (item: Item) => Promise<Result>,
  { clock, abort }: { readonly clock: Clock; readonly abort: AbortController },
): Promise<Result[]> {
  // Whose list it is may change it between the slices.
  const all = [...items]
  const asked: Promise<Result>[] = []
  const failures: unknown[] = []
  const fail = (error: unknown): void => {
    failures.push(error)
    abort.abort()
  }
  const budget = new TurnBudget(clock)
  for (const item of all) {
    if (budget.left === 0) await budget.nextTurn()
    if (abort.signal.aborted) break
    budget.spend()
    const answer = ask(item)
    answer.catch(fail)
    asked.push(answer)
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
