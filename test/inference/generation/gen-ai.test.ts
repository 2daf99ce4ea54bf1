import { expect, it } from 'vitest'
import { toPassedInput } from '../../../src/inference/generation/fields/message-text.ts'
import { toSpan } from '../../../src/inference/generation/gen-ai.ts'
import { toRequest } from '../engines/generation.ts'

it('toSpan captures a conversation that is passed on as its client wrote it', () => {
  const messages = [{ role: 'user', content: [{ type: 'text', text: 'hi' }], name: 'ann' }]
  const { attributes } = toSpan({
    request: toRequest(toPassedInput('chat', { messages })),
    model: 'tiny',
    taskId: null,
    arrivedAt: 0,
    arrivedTime: 0,
    firstTokenAt: null,
    endedAt: 1,
    outcome: { error: new Error('any') },
    rules: [],
    isContentCaptured: true,
  })
  expect(JSON.parse(String(attributes['gen_ai.input.messages']))).toEqual(messages)
})
