/** Chooses the slot of a request. Pure. */

import type { Token } from '../runtime.ts'

/** A slot that no request uses. */
export interface FreeSlot {
  readonly at: number
  /** Tokens of the prompt that it has evaluated already. */
  readonly shared: number
  /** Counts up with each request that gets a slot; 0 for a slot that was never used. */
  readonly lastUsed: number
}

/** Fewer are not worth anything: the first token of all prompts is the same. */
const leastShared = 8
/** Tokens of a prompt that are evaluated in the time of one more pass. */
const tokensOfPass = 8
/** Steps that a gap is expected to last, at most: a neighbour may end before. */
const mostSteps = 64

/**
 * llama.cpp evaluates neighbouring slots in one pass; each gap between running ones costs a pass at
 * every step. So a slot with a common prefix is worth the tokens that it saves, less what its place
 * costs. Of equal ones, gaps are closed first; then the slot is taken that was used the longest
 * ago, whose tokens are the least likely to be asked for again.
 */
export function chooseSlot<Slot extends FreeSlot>(
  free: readonly Slot[],
  running: ReadonlySet<number>,
  answerTokens: number,
): Slot | undefined {
  const costOfGap = tokensOfPass * Math.min(answerTokens, mostSteps)
  const [lowest, highest] = [Math.min(...running), Math.max(...running)]
  const worth = ({ at, shared }: FreeSlot): number => {
    const neighbours = Number(running.has(at - 1)) + Number(running.has(at + 1))
    return (shared < leastShared ? 0 : shared) + costOfGap * neighbours
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
 * How many tokens a prompt shares with what a slot has evaluated. The last token of the prompt does
 * not count: it has to be evaluated to know what follows.
 */
export function sharedLength(held: readonly Token[], prompt: readonly Token[]): number {
  const most = Math.min(held.length, prompt.length - 1)
  let shared = 0
  while (shared < most && held[shared] === prompt[shared]) shared++
  return shared
}
