import { expect, it } from 'vitest'
import { Recipient } from '../../../../src/inference/engines/llama/llama-process.ts'
import type { ToLlama } from '../../../../src/inference/engines/llama/protocol.ts'
import { GenerationRecorder } from '../../../../src/testing/generation-recorder.ts'
import { greedySampling } from '../../../../src/testing/greedy-sampling.ts'

it.each([
  ['with the first text', () => undefined],
  ['while its reader holds it back', () => new Promise<void>(() => {})],
])('a request that is aborted %s ends as canceled although its text is complete', (_, hold) => {
  const controller = new AbortController()
  const recorder = new GenerationRecorder()
  const sent: ToLlama['kind'][] = []
  let ends = 0
  const recipient = new Recipient({
    request: {
      id: 'a',
      input: { kind: 'text', text: 'Once' },
      sampling: greedySampling,
      signal: controller.signal,
    },
    listener: recorder,
    send: ({ kind }) => sent.push(kind),
    onEnd: () => ends++,
    onLoss: () => {},
  })
  recorder.onDelta = () => {
    controller.abort()
    return hold()
  }
  // The process was so fast that all of it comes before it hears of the abort.
  recipient.receive({ id: 'a', delta: { text: 'upon' } })
  recipient.receive({ id: 'a', delta: { text: ' a time' } })
  const usage = { promptTokens: 1, completionTokens: 4 }
  recipient.receive({ id: 'a', end: { kind: 'done', finishReason: 'stop', usage } })
  expect(recorder.of('a')).toEqual({
    deltas: [{ text: 'upon' }],
    ends: [{ kind: 'canceled' }],
    late: 0,
  })
  expect([sent[0], ends]).toEqual(['cancel', 1])
})
