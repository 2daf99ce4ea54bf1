import { expect, it } from 'vitest'
import { systemClock } from '../../../../src/foundation/clock.ts'
import { StepLoop } from '../../../../src/inference/engines/llama/step-loop.ts'
import * as templates from '../../../../src/inference/engines/llama/templates/chat-template.ts'
import type { ToolDefinition } from '../../../../src/inference/generation/inference-engine.ts'
import { InferenceBackend } from '../../../../src/inference/inference-backend.ts'
import { toRequest } from '../generation.ts'
import { FakeRuntime } from './fake-runtime.ts'
import { useTinyModel } from './open-engine.ts'

const chatTemplate = (ending = ''): string =>
  `{% for message in messages %}{{ message.content }}{% endfor %}${ending}{# <think> #}`
const harmony =
  '{% for message in messages %}{{ message.content }}{% endfor %}{# <|start|><|channel|> #}'

/** The reports about the tokens of an answer, each of which is one letter. */
async function detailsOf(
  answer: string,
  source = chatTemplate(),
  stop: string[] = [],
  tools: readonly ToolDefinition[] = [],
) {
  const template = templates.createChatTemplate({ source, bos: '', eos: '', controls: [] })
  const runtime = new FakeRuntime({ slots: 1, contextLength: 512, template, say: () => answer })
  const { promise, resolve } = Promise.withResolvers<unknown>()
  const loop = new StepLoop({
    runtime,
    clock: systemClock,
    onUpdate: ({ end }) => {
      if (end?.kind === 'done') resolve(end.usage.details?.['completion_tokens_details'])
    },
    onStep: () => undefined,
  })
  const messages = [{ role: 'user', content: 'hi' }] as const
  const input = { kind: 'chat', messages, tools } as const
  loop.add([toRequest(input, { maxTokens: 200, stop })])
  return promise
}

it.each([
  ['reasoning with its marks', '<think>ab</think>cde', 17],
  ['reasoning that is cut', '<think>ab', 9],
  ['a mark that is none', '<thin', undefined],
  ['text alone', 'abc', undefined],
  ['text before what looks like reasoning', 'a<think>b</think>', undefined],
])('tokens of reasoning: %s', async (_, answer, count) => {
  const details = count === undefined ? undefined : { reasoning_tokens: count }
  expect(await detailsOf(answer)).toEqual(details)
})

it('tokens of reasoning: what the template has opened, and held text of a stop', async () => {
  expect(await detailsOf('ab</think>cde', chatTemplate('<think>'))).toEqual({
    reasoning_tokens: 10,
  })
  expect(await detailsOf('<think>ab</think>cde', chatTemplate(), ['bx'])).toEqual({
    reasoning_tokens: 17,
  })
})

it('tokens of reasoning: a call in reasoning is none of it, a draft of one is', async () => {
  const source = `${chatTemplate('<think>')}{# <tool_call> #}`
  const call = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
  const countOf = (answer: string) => detailsOf(answer, source, [], [{ name: 'now' }])
  expect(await countOf(`ab${call}`)).toEqual({ reasoning_tokens: 'ab<tool_call>'.length })
  const draft = `ab${call}c</think>`
  expect(await countOf(`${draft}d`)).toEqual({ reasoning_tokens: draft.length })
})

it('tokens of reasoning: the analysis channel of harmony', async () => {
  const answer =
    '<|channel|>analysis<|message|>abc<|end|><|start|>assistant<|channel|>final<|message|>d'
  // From the mark before it to its own: `<|message|>abc<|end|>`.
  expect(await detailsOf(answer, harmony)).toEqual({ reasoning_tokens: 21 })
})

const tiny = useTinyModel(chatTemplate('<think>'))

it('tokens of reasoning are in the usage over HTTP, with and without a stream', async () => {
  await using backend = await InferenceBackend.fromConfig(
    {
      required: { model_name: tiny.path },
      engine: { kind: 'llama', threads: 1, gpu: false, sequences: 2 },
    },
    { port: 0 },
  )
  const ask = async (fields: object): Promise<string> => {
    const response = await fetch(`${backend.endpoint}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        model: backend.model,
        messages: [{ role: 'user', content: 'hi' }],
        max_tokens: 6,
        temperature: 0,
        ignore_eos: true,
        ...fields,
      }),
    })
    return response.text()
  }
  const usage = { completion_tokens: 6, completion_tokens_details: { reasoning_tokens: 6 } }
  expect(JSON.parse(await ask({}))).toMatchObject({ usage })
  expect(JSON.parse(await ask({ n: 2 }))).toMatchObject({
    usage: { completion_tokens: 12, completion_tokens_details: { reasoning_tokens: 12 } },
  })
  const events = await ask({ stream: true, stream_options: { include_usage: true } })
  const last = events.split('\n').findLast((line) => line.startsWith('data: {')) ?? ''
  expect(JSON.parse(last.slice('data: '.length))).toMatchObject({ usage })
})
