import { describe, expect, it } from 'vitest'
import { systemClock } from '../../../../src/foundation/clock.ts'
import { StepLoop } from '../../../../src/inference/engines/llama/step-loop.ts'
import * as templates from '../../../../src/inference/engines/llama/templates/chat-template.ts'
import type { RequestUpdate } from '../../../../src/inference/engines/llama/protocol.ts'
import { toRequest } from '../generation.ts'
import { FakeRuntime } from './fake-runtime.ts'

const hermes = '<tool_call><think>{{ tools }}'
const coder = '<tool_call><function=<parameter={{ tools }}'

/** How an answer with calls ends, of a model that says this letter by letter. */
async function endOf(said: string, source: string, stop: readonly string[]) {
  const shown = '{% for message in messages %}{{ message.content }}{% endfor %}'
  const template = templates.createChatTemplate({
    source: `${shown}{% if tools %}${source}{% endif %}`,
    bos: '',
    eos: '',
    controls: [],
  })
  const runtime = new FakeRuntime({ slots: 1, contextLength: 512, template, say: () => said })
  const updates: RequestUpdate[] = []
  const { promise, resolve } = Promise.withResolvers<void>()
  const loop = new StepLoop({
    runtime,
    clock: systemClock,
    onUpdate: (update) => {
      updates.push(update)
      if ('end' in update) resolve()
    },
    onStep: () => undefined,
  })
  const messages = [{ role: 'user', content: 'hi' }] as const
  const tools = [{ name: 'weather' }]
  loop.add([toRequest({ kind: 'chat', messages, tools }, { maxTokens: 300, stop })])
  await promise
  const deltas = updates.flatMap((update) => ('delta' in update ? [update.delta] : []))
  const pieces = deltas.flatMap((delta) => delta?.toolCallPieces ?? [])
  const [end] = updates.flatMap((update) => ('end' in update ? [update.end] : []))
  return {
    reason: end?.kind === 'done' ? end.finishReason : end?.kind,
    text: deltas.map((delta) => delta?.text ?? '').join(''),
    given: pieces.map((piece) => piece.arguments).join(''),
  }
}

describe('a stop text', () => {
  const call = '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>'
  const tagged =
    '<tool_call><function=weather><parameter=city>Rome</parameter></function></tool_call>'

  it.each([
    ['nowhere', call, hermes, ['Oslo'], 'tool_calls', '{"city": "Rome"}'],
    ['after a call', call, hermes, ['</tool_call>'], 'tool_calls', '{"city": "Rome"}'],
    ['in the arguments', call, hermes, ['ome'], 'stop', '{"city": "R'],
    ['before the arguments', call, hermes, ['arguments'], 'stop', ''],
    ['in the reasoning', `<think>Rome</think>${call}`, hermes, ['ome'], 'stop', ''],
    ['in a tagged argument', tagged, coder, ['ome'], 'stop', '{"city": '],
    ['in a mark', tagged, coder, ['meter='], 'stop', '{'],
    ['after a tagged call', tagged, coder, ['</tool_call>'], 'tool_calls', '{"city": "Rome"}'],
  ] as const)('%s of a call', async (_, said, source, stop, reason, given) => {
    expect(await endOf(said, source, stop)).toMatchObject({ reason, text: '', given })
  })
})
