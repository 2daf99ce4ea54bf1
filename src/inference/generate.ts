/** Generates text for many prompts at once: `InferenceBackend.generate`, and the loop behind it. */

import { type Clock, systemClock } from '../foundation/clock.ts'
import { invalid } from '../foundation/options.ts'
import { TurnBudget } from '../runtime/turn-budget.ts'
import type { FinishReason } from './generation/inference-engine.ts'
import { inferenceError } from './generation/inference-errors.ts'
import type { TextGenerator } from './generation/text-generator.ts'
import { expectTimeout } from './inference-options.ts'

/** The result of one prompt, with the field names of the HTTP API. */
export interface GenerateResult {
  readonly text: string
  readonly finish_reason: FinishReason
  readonly usage: {
    readonly prompt_tokens: number
    readonly completion_tokens: number
    readonly total_tokens: number
  }
}

/**
 * Results in the order of the prompts, all within `timeout` seconds. The first failure rejects and
 * cancels the rest.
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
  const generate = async (content: string): Promise<GenerateResult> => {
    const input = { kind: 'chat', messages: [{ role: 'user', content }] } as const
    const rest = { sampling: {}, priority: 0, isBounded: false, taskId: null }
    const prompt = { input, timeoutSeconds, signal, ...rest }
    const { text, finishReason, usage } = await generator.generate(prompt)
    return { text, finish_reason: finishReason, usage: toWire(usage) }
  }
  // The time-out of a prompt begins when it is started, and not all are started at once.
  let isOverdue = false
  const stopTimer = clock.after(timeoutSeconds * 1000, () => {
    isOverdue = true
    abort.abort()
  })
  try {
    return await generateEach(prompts, generate, { clock, abort })
  } catch (error) {
    if (!isOverdue) throw error
    throw inferenceError('request_timeout', `no answer within ${timeoutSeconds} s`)
  } finally {
    stopTimer()
  }
}

/**
 * Calls `generate` for every prompt, a limited number per turn of the event loop, the first at
 * once. Results are in the order of the prompts. The first failure aborts the rest and rejects; no
 * prompt is started after `abort`.
 */
export async function generateEach<Result>(
  prompts: readonly string[],
  generate: (prompt: string) => Promise<Result>,
  { clock, abort }: { readonly clock: Clock; readonly abort: AbortController },
): Promise<Result[]> {
  // A copy: the caller may change its array between the turns.
  const all = [...prompts]
  const started: Promise<Result>[] = []
  const failures: unknown[] = []
  const fail = (error: unknown): void => {
    failures.push(error)
    abort.abort()
  }
  const budget = new TurnBudget(clock)
  for (const prompt of all) {
    if (budget.left === 0) await budget.nextTurn()
    if (abort.signal.aborted) break
    budget.spend()
    const result = generate(prompt)
    result.catch(fail)
    started.push(result)
  }
  try {
    // Also if some were not started: the others are canceled, and one of them may have failed.
    const results = await Promise.all(started)
    if (started.length === all.length) return results
  } catch {
    // The first failure in time, which need not be the first in the array.
    throw failures[0]
  }
  throw inferenceError('canceled', 'the request was canceled')
}

function expectPrompts(prompts: unknown): void {
  if (!Array.isArray(prompts)) throw invalid('prompts', 'an array of strings', prompts)
  const wrong = prompts.findIndex((one) => typeof one !== 'string')
  if (wrong !== -1) throw invalid(`prompts[${wrong}]`, 'a string', prompts[wrong])
}

function toWire({
  promptTokens,
  completionTokens,
}: {
  promptTokens: number
  completionTokens: number
}) {
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
  }
}
