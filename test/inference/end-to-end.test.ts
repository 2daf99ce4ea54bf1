import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { generateText, jsonSchema, Output, streamText, tool } from 'ai'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { installModel } from '../../src/inference/models/model-file.ts'
import { InferenceBackend } from '../../src/inference/inference-backend.ts'
import { Session } from '../../src/session/session.ts'
import { AITask } from '../../src/tasks/ai-task.ts'
import { tinyContext, writeTinyModel } from './engines/tiny-model.ts'
import { configWith } from './open-backend.ts'

const engine = { kind: 'llama', threads: 1, gpu: false, sequences: 8 } as const
const schema = {
  type: 'object' as const,
  properties: { mood: { type: 'string' as const, enum: ['happy', 'sad'] } },
  required: ['mood'],
  additionalProperties: false,
}
const messages = [{ role: 'user' as const, content: 'How are you?' }]

describe('real clients, the real server and a model with a chat template', () => {
  let folder = ''
  let backend: InferenceBackend
  let client: OpenAI
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'tutti-end-to-end-'))
    backend = await InferenceBackend.create({
      name: 'llm',
      configFile: configWith('llm:\n  max_model_len: 512\n', folder),
      modelName: writeTinyModel(folder),
      port: 0,
      apiKey: 'sk-end-to-end',
      engine,
    })
    const baseURL = `${backend.endpoint}/v1`
    client = new OpenAI({ baseURL, apiKey: 'sk-end-to-end', maxRetries: 0 })
  })
  afterAll(async () => {
    await backend.close()
    rmSync(folder, { recursive: true })
  })
  const ask = { model: '', messages, max_tokens: 12, seed: 3 }

  it('openai: chats with real token counts, and the same seed gives the same text', async () => {
    const request = { ...ask, model: backend.model }
    const first = await client.chat.completions.create(request)
    const second = await client.chat.completions.create(request)
    expect(first.choices[0]?.message.content).toBe(second.choices[0]?.message.content)
    const {
      prompt_tokens: prompt,
      completion_tokens: answer,
      total_tokens: total,
    } = first.usage ?? {}
    expect(answer).toBeLessThanOrEqual(12)
    expect(prompt).toBeGreaterThan(messages[0]?.content.split(' ').length ?? 0)
    expect(total).toBe((prompt ?? 0) + (answer ?? 0))
  })

  it('openai: a stream has the same text as a whole response, with usage at the end', async () => {
    const request = { ...ask, model: backend.model }
    const whole = await client.chat.completions.create(request)
    const stream = await client.chat.completions.create({
      ...request,
      stream: true,
      stream_options: { include_usage: true },
    })
    let [text, usage] = ['', {} as unknown]
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? ''
      usage = chunk.usage
    }
    expect(text).toBe(whole.choices[0]?.message.content)
    expect(usage).toEqual(whole.usage)
  })

  it('openai: the grammar enforces a schema, and tools are called', async () => {
    const model = backend.model
    const answer = await client.chat.completions.create({
      ...ask,
      model,
      max_tokens: 60,
      response_format: { type: 'json_schema', json_schema: { name: 'mood', schema } },
    })
    expect(JSON.parse(answer.choices[0]?.message.content ?? '')).toMatchObject({
      mood: expect.stringMatching(/^(?:happy|sad)$/) as string,
    })
    const completion = await client.completions.create({
      prompt: 'Once',
      model,
      max_tokens: 60,
      // @ts-expect-error vLLM takes it here, and the client sends it.
      response_format: { type: 'json_schema', json_schema: { name: 'mood', schema } },
    })
    expect(JSON.parse(completion.choices[0]?.text ?? '')).toMatchObject({
      mood: expect.stringMatching(/^(?:happy|sad)$/) as string,
    })
    const called = await client.chat.completions.create({
      ...ask,
      model,
      max_tokens: 100,
      tools: [{ type: 'function', function: { name: 'set_mood', parameters: schema } }],
      tool_choice: { type: 'function', function: { name: 'set_mood' } },
    })
    const [choice] = called.choices
    expect(choice?.finish_reason).toBe('tool_calls')
    const [call] = choice?.message.tool_calls ?? []
    expect(call).toMatchObject({ type: 'function', function: { name: 'set_mood' } })
  })

  it('openai: several choices, logprobs, and errors with their fields', async () => {
    const model = backend.model
    const many = await client.chat.completions.create({
      ...ask,
      model,
      n: 3,
      logprobs: true,
      top_logprobs: 2,
    })
    expect(many.choices.map(({ index }) => index)).toEqual([0, 1, 2])
    const [first] = many.choices[0]?.logprobs?.content ?? []
    expect(first?.top_logprobs.length).toBe(2)
    expect(first?.logprob).toBeLessThanOrEqual(0)
    await expect(
      client.chat.completions.create({ ...ask, model, temperature: 9 }),
    ).rejects.toMatchObject({ status: 400, param: 'temperature', code: 'decimal_above_max_value' })
    await expect(client.chat.completions.create({ ...ask, model: 'other' })).rejects.toMatchObject({
      status: 404,
      code: 'model_not_found',
    })
    const long = [{ role: 'user' as const, content: 'word '.repeat(tinyContext) }]
    await expect(
      client.chat.completions.create({ ...ask, model, messages: long }),
    ).rejects.toMatchObject({ status: 400, code: 'context_length_exceeded' })
  })

  it('openai: an abort frees the slot of the engine', async () => {
    const stream = await client.chat.completions.create({
      model: backend.model,
      messages,
      max_tokens: 400,
      stream: true,
    })
    await stream[Symbol.asyncIterator]().next()
    stream.controller.abort()
    const after = await client.chat.completions.create({ ...ask, model: backend.model })
    expect(after.choices).toHaveLength(1)
    await expect.poll(() => runningNow()).toBe(0)
  })

  async function runningNow(): Promise<number> {
    const headers = { authorization: 'Bearer sk-end-to-end' }
    const text = await (await fetch(`${backend.endpoint}/metrics`, { headers })).text()
    return Number(/^tutti_requests_running\{.*\} (\d+)$/m.exec(text)?.[1])
  }

  it('the AI SDK: text, a stream, an object and a tool', async () => {
    const provider = createOpenAICompatible({
      name: 'tutti',
      baseURL: `${backend.endpoint}/v1`,
      apiKey: 'sk-end-to-end',
      supportsStructuredOutputs: true,
    })
    const model = provider(backend.model)
    const prompt = 'How are you?'
    const whole = await generateText({ model, prompt, maxOutputTokens: 8, seed: 1 })
    expect(whole.usage.outputTokens).toBeGreaterThan(0)
    const stream = streamText({ model, prompt, maxOutputTokens: 8, seed: 1 })
    expect(await stream.text).toBe(whole.text)
    const output = Output.object({ schema: jsonSchema<{ mood: string }>(schema) })
    const object = await generateText({ model, prompt, output, maxOutputTokens: 60 })
    expect(['happy', 'sad']).toContain(object.output.mood)
    const moods: unknown[] = []
    const setMood = tool({
      inputSchema: jsonSchema<{ mood: string }>(schema),
      execute: async ({ mood }) => {
        moods.push(mood)
        return 'done'
      },
    })
    await generateText({
      model,
      prompt,
      tools: { setMood },
      toolChoice: 'required',
      maxOutputTokens: 100,
    })
    expect(['happy', 'sad']).toContain(moods[0])
  })
})

describe('AI tasks on the story model', () => {
  it('generate stories in parallel, each with its own sampling', async () => {
    const folder = fileURLToPath(new URL('../../.models/', import.meta.url))
    const modelName = installModel('stories15M', { folder, onProgress() {} }).path
    const backend = await InferenceBackend.create({
      name: 'llm',
      configFile: configWith('llm:\n  max_model_len: 256\n'),
      modelName,
      useService: false,
      engine,
    })
    await using session = new Session([backend])
    const tell = (options: object) =>
      new AITask({ prompt: 'Once upon a time', backend: 'llm', ...options })
    const greedy = tell({ temperature: 0, maxTokens: 20 })
    const stopped = tell({ temperature: 0, maxTokens: 100, stop: ['.'] })
    const several = new AITask({
      prompt: ['The cat', 'The dog'],
      backend: 'llm',
      temperature: 0,
      maxTokens: 10,
    })
    await session.submitTasks([greedy, stopped, several])
    expect(await greedy).toMatch(/there was a/)
    expect(await stopped).not.toContain('.')
    const [cat, dog] = await several
    expect(cat).not.toBe(dog)
  })
})
