import { describe, expect, it } from 'vitest'
import { registerSecret } from '../../../../src/foundation/secrets.ts'
import {
  describeExit,
  hintForExit,
  UpdateRelay,
} from '../../../../src/inference/engines/llama/llama-process.ts'
import type { MessageToLlama } from '../../../../src/inference/engines/llama/protocol.ts'
import type { ChildExit } from '../../../../src/runtime/supervised-child.ts'
import { GenerationRecorder } from '../../../../src/testing/recorders.ts'
import { greedySampling } from '../../../../src/testing/engine-contract.ts'

const exitOf = (exit: Partial<ChildExit>): ChildExit => ({
  code: null,
  signal: null,
  error: null,
  output: '',
  ...exit,
})

describe('the unexpected exit of a model process', () => {
  it.each([
    [{ code: 1, signal: null, output: '' }, "the model's process ended with exit code 1"],
    [
      { code: null, signal: 'SIGABRT', output: 'one\nggml: assert failed\n  at frame\n' },
      "the model's process was ended by SIGABRT: ggml: assert failed",
    ],
    [
      { code: 3, signal: null, output: 'first\nlast\n\n' },
      "the model's process ended with exit code 3: last",
    ],
  ])('the exit %j is described', (exit, text) => {
    expect(describeExit(exitOf(exit))).toBe(text)
  })

  it('a process that could not be started is described by the error', () => {
    const exit = exitOf({ error: new Error('spawn ENOMEM') })
    expect(describeExit(exit)).toBe("the model's process failed: spawn ENOMEM")
  })

  it('the last error line is shown without secrets', () => {
    registerSecret('hf_canary123')
    const exit = { code: 1, signal: null, output: 'error: GET with hf_canary123 failed' }
    expect(describeExit(exitOf(exit))).toMatch(/error: GET with \[masked\] failed$/)
  })

  it('a GPU that the binaries do not support gets a hint', () => {
    const output =
      'CUDA error: the provided PTX was compiled with an unsupported toolchain.\n  in function x\n'
    expect(hintForExit(exitOf({ signal: 'SIGABRT', output }))).toMatch(/build .* from source/)
    expect(hintForExit(exitOf({ code: 1 }))).toBeUndefined()
  })
})

it.each([
  ['with the first text', () => undefined],
  ['while its reader holds it back', () => new Promise<void>(() => {})],
])('a request that is aborted %s ends as canceled although its text is complete', (_, hold) => {
  const controller = new AbortController()
  const recorder = new GenerationRecorder()
  const sent: MessageToLlama['kind'][] = []
  let ends = 0
  const recipient = new UpdateRelay({
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
  // The process has sent everything before it receives the cancellation.
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
