/** The requests of every client library, and the behavior of the generator behind the server. */

import { inferenceError } from '../../../../src/inference/generation/inference-errors.ts'
import { FakeGenerator, type Script, silent } from '../fake-generator.ts'

export const key = 'sk-clients-test'

export const schema = {
  type: 'object' as const,
  properties: { city: { type: 'string' as const } },
  required: ['city'],
  additionalProperties: false,
}

const weather = { id: 'call_1', name: 'weather', arguments: '{"city":"Paris"}' }

/** Calls the tool once, then returns its outcome as text. */
export const usesTool: Script = async ({ input }, tell) => {
  if (input.kind === 'text') return { text: '' }
  const last = input.messages.at(-1)
  if (last?.role === 'tool') {
    await tell.delta?.({ text: `It is ${last.content}.` })
    return { text: `It is ${last.content}.` }
  }
  await tell.delta?.({ text: '', toolCalls: [weather] })
  return { toolCalls: [weather], finishReason: 'tool_calls' }
}

/** Answers with JSON that matches the schema, in two pieces. */
export const writesJson: Script = async (_, tell) => {
  await tell.delta?.({ text: '{"city":' })
  await tell.delta?.({ text: '"Paris"}' })
  return { text: '{"city":"Paris"}' }
}

/** Refuses one request because the queue is full, and answers the next. */
export function refusesOnce(): { readonly generator: FakeGenerator; readonly calls: () => number } {
  let calls = 0
  const generator = new FakeGenerator(async (_, tell) => {
    calls++
    if (calls === 1) throw inferenceError('queue_full', 'The queue has no room.')
    await tell.delta?.({ text: 'second time' })
    return { text: 'second time' }
  })
  return { generator, calls: () => calls }
}

/** Sends one piece, and nothing more; `canceled` resolves when the request is. */
export function neverEnds(): {
  readonly generator: FakeGenerator
  readonly canceled: Promise<void>
} {
  const canceled = Promise.withResolvers<void>()
  const generator = new FakeGenerator(async (request, tell) => {
    request.signal.addEventListener('abort', () => canceled.resolve())
    await tell.delta?.({ text: 'first' })
    return silent(request, tell)
  })
  return { generator, canceled: canceled.promise }
}
