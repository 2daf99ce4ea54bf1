/** Generates text for many prompts concurrently, for `InferenceBackend.generate` and AI tasks. */

import { type Clock, systemClock } from '../foundation/clock.ts'
import { type GenerateResult, messageOf } from '../foundation/errors.ts'
import { invalid } from '../foundation/options.ts'
import { TurnBudget } from '../runtime/turn-budget.ts'
import { toInferenceCode, inferenceError } from './generation/inference-errors.ts'
import type { GenerationResult, TextGenerator } from './generation/text-generator.ts'
import { expectTimeout } from './inference-options.ts'

export type PromptOutcome = PromiseSettledResult<GenerationResult>

/** If a prompt fails, is blocked or takes too long, its result is an error. */
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
  // Limits all prompts together: the time-out of each prompt begins only when the prompt is
  // started.
  let hasTimedOut = false
  const stopTimer = clock.after(timeoutSeconds * 1000, () => {
    hasTimedOut = true
    abort.abort()
  })
  const outcomes = await generateEach(prompts, generate, { clock, signal })
  stopTimer()
  const timeoutError = inferenceError('request_timeout', `no answer within ${timeoutSeconds} s`)
  return outcomes.map((outcome) => {
    if (!hasTimedOut || outcome.status === 'fulfilled') return toResult(outcome)
    const code = toInferenceCode(outcome.reason) ?? 'canceled'
    return code === 'canceled' ? toFailure(timeoutError) : toResult(outcome)
  })
}

/** Starts a limited number of prompts per turn of the event loop, and none after an abort. */
export async function generateEach<Result>(
  prompts: readonly string[],
  generate: (prompt: string) => Promise<Result>,
  { clock, signal }: { readonly clock: Clock; readonly signal: AbortSignal },
): Promise<PromiseSettledResult<Result>[]> {
  // The array is copied, because the caller may change it between turns.
  const all = [...prompts]
  const started: Promise<Result>[] = []
  const budget = new TurnBudget(clock)
  for (const prompt of all) {
    if (budget.left === 0) await budget.nextTurn()
    if (signal.aborted) break
    budget.spend()
    const result = generate(prompt)
    // Marks a rejection as handled, because the promise is awaited only in a later turn.
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
  const wrongIndex = prompts.findIndex((one) => typeof one !== 'string')
  if (wrongIndex !== -1) throw invalid(`prompts[${wrongIndex}]`, 'a string', prompts[wrongIndex])
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
  error: { code: toInferenceCode(error) ?? 'engine_error', message: messageOf(error) },
})
