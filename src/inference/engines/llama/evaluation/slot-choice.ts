/** Chooses the slot of a request. Pure. */

import type { Token } from '../runtime.ts'

/** A slot that no request uses. */
export interface FreeSlot {
  readonly at: number
  /** The number of prompt tokens that the slot has already evaluated. */
  readonly shared: number
  /** Counts up with each request that gets a slot; 0 for a slot that was never used. */
  readonly lastUsed: number
}

/** Fewer shared tokens do not count, because the first token of all prompts is the same. */
const minShared = 8
/** How many prompt tokens are evaluated in the time of one more pass. */
const tokensOfPass = 8
/** The maximum number of steps that a gap is expected to last: a neighbour may end earlier. */
const maxSteps = 64

/**
 * llama.cpp evaluates neighbouring slots in one pass; each gap between running slots costs a pass
 * at every step. So a slot with a common prefix is worth the tokens that it saves, minus the cost
 * of its position. Among equals, gaps are closed first; then the least recently used slot is taken,
 * whose tokens are the least likely to be reused.
 */
export function chooseSlot<Slot extends FreeSlot>(
  free: readonly Slot[],
  running: ReadonlySet<number>,
  answerTokens: number,
): Slot | undefined {
  const costOfGap = tokensOfPass * Math.min(answerTokens, maxSteps)
  const [lowest, highest] = [Math.min(...running), Math.max(...running)]
  const worth = ({ at, shared }: FreeSlot): number => {
    const neighbours = Number(running.has(at - 1)) + Number(running.has(at + 1))
    return (shared < minShared ? 0 : shared) + costOfGap * neighbours
  }
  const isInGap = ({ at }: FreeSlot): number => Number(at > lowest && at < highest)
  const [best] = free.toSorted(
    (one, other) =>
      worth(other) - worth(one) ||
      isInGap(other) - isInGap(one) ||
      one.lastUsed - other.lastUsed ||
      one.at - other.at,
  )
  return best
}

/**
 * The number of tokens that a prompt shares with the tokens of a slot. The last token of the prompt
 * does not count: it must be evaluated to predict the next one.
 */
export function sharedLength(held: readonly Token[], prompt: readonly Token[]): number {
  const max = Math.min(held.length, prompt.length - 1)
  let shared = 0
  while (shared < max && held[shared] === prompt[shared]) shared++
  return shared
}
