import { expect, it } from 'vitest'
import { ResultBuilder } from '../../../src/inference/generation/result-builder.ts'
import { createGuard } from '../../../src/inference/guardrails/guard.ts'

it.each([false, true])('150,000 tool calls in one delta, output rules on: %s', (isOn) => {
  const builder = new ResultBuilder(
    createGuard({
      isOn,
      sensitivity: 0.5,
      rules: [{ kind: 'built-in', id: 'secrets', stage: 'output', action: 'reject' }],
      maxPromptChars: null,
      action: 'reject',
      onBlock: 'error',
    }),
  )
  const toolCalls = Array.from({ length: 150_000 }, () => ({ id: 'c', name: 'f', arguments: '' }))
  const logprobs = toolCalls.map(() => ({ token: 'a', logprob: -1, top: [] }))
  builder.push({ text: '', toolCalls, logprobs })
  const answer = builder.finish('stop', { promptTokens: 1, completionTokens: 1 })
  expect(answer.toolCalls).toHaveLength(toolCalls.length)
  expect(answer.logprobs).toHaveLength(isOn ? 0 : logprobs.length)
})
