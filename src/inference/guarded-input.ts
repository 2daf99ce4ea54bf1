/** What a question looks like once the guardrails have seen it. Pure. */

import type { InferenceError } from '../foundation/errors.ts'
import type { Answer } from './desk.ts'
import type { ChatMessage, GenerationInput } from './engine.ts'
import type { Guard, Verdict } from './guardrails/guard.ts'
import { inferenceError } from './inference-errors.ts'

export type GuardedInput =
  | { readonly input: GenerationInput }
  | { readonly refusal: Answer }
  | { readonly error: InferenceError }

/**
 * Everything that came from outside is judged; what the model itself said is not. The
 * configuration's system prompt stands first, unless the question brings one of its own.
 */
export function guardInput(
  input: GenerationInput,
  guard: Guard,
  systemPrompt: readonly string[],
): GuardedInput {
  if (input.kind === 'text') {
    const verdict = guard.checkInput(input.text)
    if (verdict.action === 'block') return refuse(guard, verdict)
    return { input: verdict.text === input.text ? input : { ...input, text: verdict.text } }
  }
  const messages: ChatMessage[] = []
  if (!input.messages.some(({ role }) => role === 'system')) {
    for (const content of systemPrompt) messages.push({ role: 'system', content })
  }
  for (const message of input.messages) {
    if (message.role === 'assistant') {
      messages.push(message)
      continue
    }
    const verdict = guard.checkInput(message.content)
    if (verdict.action === 'block') return refuse(guard, verdict)
    const isSame = verdict.text === message.content
    messages.push(isSame ? message : { ...message, content: verdict.text })
  }
  return { input: { ...input, messages } }
}

function refuse(guard: Guard, { hits }: Verdict): GuardedInput {
  if (guard.refusal !== null) {
    const usage = { promptTokens: 0, completionTokens: 0 }
    const rest = { usage, toolCalls: [], logprobs: [] }
    return { refusal: { text: guard.refusal, finishReason: 'content_filter', ...rest } }
  }
  const rules = hits.map(({ rule }) => `"${rule}"`).join(', ')
  return { error: inferenceError('content_filter', `the prompt was rejected by the rule ${rules}`) }
}
