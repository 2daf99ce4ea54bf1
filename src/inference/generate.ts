/** The direct way: a list of prompts in, a list of results out. */

import { type Clock, systemClock } from '../foundation/clock.ts'
import { invalid } from '../foundation/options.ts'
import { askInSlices } from './ask-in-slices.ts'
import type { TextGenerator } from './generation/text-generator.ts'
import type { FinishReason } from './generation/inference-engine.ts'
import { inferenceError } from './generation/inference-errors.ts'
import { expectTimeout } from './inference-options.ts'

/** One prompt's result, spelled as on the wire. */
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
 * Results in the order of the prompts, all within `timeout` seconds. The first failure rejects, and
 * the rest is let go.
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
  const ask = async (content: string): Promise<GenerateResult> => {
    const input = { kind: 'chat', messages: [{ role: 'user', content }] } as const
    const rest = { sampling: {}, priority: 0, isBounded: false, taskId: null }
    const request = { input, timeoutSeconds, signal, ...rest }
    const { text, finishReason, usage } = await generator.generate(request)
    return { text, finish_reason: finishReason, usage: toWire(usage) }
  }
  // Each prompt's own time begins when it is asked, and not all are asked at once.
  let isOverdue = false
  const stopTimer = clock.after(timeoutSeconds * 1000, () => {
    isOverdue = true
    abort.abort()
  })
  try {
    return await askInSlices(prompts, ask, { clock, abort })
  } catch (error) {
    if (!isOverdue) throw error
    throw inferenceError('request_timeout', `no answer within ${timeoutSeconds} s`)
  } finally {
    stopTimer()
  }
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
