/** Generates text for many prompts concurrently, for `InferenceBackend.generate` and AI tasks. */

import { type Clock, systemClock } from '../foundation/clock.ts'
import { type GenerateResult, messageOf } from '../foundation/errors.ts'
import { invalid } from '../foundation/options.ts'
import { TurnBudget } from '../runtime/turn-budget.ts'
import { inferenceCodeOf, inferenceError } from './generation/inference-errors.ts'
import type { GenerationResult, TextGenerator } from './generation/text-generator.ts'
import { expectTimeout } from './inference-options.ts'

/** How one prompt ended. */
export type PromptOutcome = PromiseSettledResult<GenerationResult>

/**
 * Returns one result per prompt, in the order of the prompts, within `timeout` seconds. The result
 * of a prompt that fails, is blocked or takes too long is an error.
 */
export async function generateTexts(
  generator: TextGenerator,
  prompts: readonly string[],
  timeout: number,
  clock: Clock = systemClock,
): Promise<GenerateResult[]> {
  const timeoutSeconds = expectTimeout(timeout)
  expectPrompts(prompts)
  const abort = new AbortController()
  const { signal } = abort
  const generate = (content: string): Promise<GenerationResult> => {
    const input = { kind: 'chat', messages: [{ role: 'user', content }] } as const
    const rest = { sampling: {}, priority: 0, isBounded: false, taskId: null }
    return generator.generate({ input, timeoutSeconds, signal, ...rest })
  }
  // One timer for all prompts: the time-out of a single prompt begins when the prompt is started,
  // which may be in a later turn of the event loop.
  let isOverdue = false
  const stopTimer = clock.after(timeoutSeconds * 1000, () => {
    isOverdue = true
    abort.abort()
  })
  const outcomes = await generateEach(prompts, generate, { clock, signal })
  stopTimer()
  const late = inferenceError('request_timeout', `no answer within ${timeoutSeconds} s`)
  return outcomes.map((outcome) => {
    if (!isOverdue || outcome.status === 'fulfilled') return toResult(outcome)
    const code = inferenceCodeOf(outcome.reason) ?? 'canceled'
    return code === 'canceled' ? toFailure(late) : toResult(outcome)
  })
}

/**
 * Calls `generate` for every prompt, for a limited number per turn of the event loop, beginning
 * immediately. Outcomes are in the order of the prompts. After the signal is aborted, no prompt is
 * started; prompts that were not started count as canceled.
 */
export async function generateEach<Result>(
  prompts: readonly string[],
  generate: (prompt: string) => Promise<Result>,
  { clock, signal }: { readonly clock: Clock; readonly signal: AbortSignal },
): Promise<PromiseSettledResult<Result>[]> {
  // Copied, because the caller may change the array between turns.
  const all = [...prompts]
  const started: Promise<Result>[] = []
  const budget = new TurnBudget(clock)
  for (const prompt of all) {
    if (budget.left === 0) await budget.nextTurn()
    if (signal.aborted) break
    budget.spend()
    const result = generate(prompt)
    // Marks a rejection as handled, because the promise is awaited only after further turns.
    result.catch(() => {})
    started.push(result)
  }
  const outcomes = await Promise.allSettled(started)
  const reason = inferenceError('canceled', 'the request was canceled')
  while (outcomes.length < all.length) outcomes.push({ status: 'rejected', reason })
  return outcomes
}

function expectPrompts(prompts: unknown): void {
  if (!Array.isArray(prompts)) throw invalid('prompts', 'an array of strings', prompts)
  const wrong = prompts.findIndex((one) => typeof one !== 'string')
  if (wrong !== -1) throw invalid(`prompts[${wrong}]`, 'a string', prompts[wrong])
}

export function toResult(outcome: PromptOutcome): GenerateResult {
  if (outcome.status === 'rejected') return toFailure(outcome.reason)
  const { text, finishReason, usage } = outcome.value
  const { promptTokens, completionTokens } = usage
  return {
    text,
    finish_reason: finishReason,
    usage: {
      prompt_tokens: promptTokens,
      completion_tokens: completionTokens,
      total_tokens: promptTokens + completionTokens,
    },
  }
}

const toFailure = (error: unknown): GenerateResult => ({
  error: { code: inferenceCodeOf(error) ?? 'engine_error', message: messageOf(error) },
})
