import { readFileSync } from 'node:fs'
import OpenAI from 'openai'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { InferenceBackend } from '../../src/inference/inference-backend.ts'
import { eventually } from '../eventually.ts'
import { byRun, hangMs } from '../long-run.ts'
import { modelProcesses } from './engines/llama/model-processes.ts'
import { storyModel } from './engines/llama/open-engine.ts'

let backend: InferenceBackend
let client: OpenAI
beforeAll(async () => {
  backend = await InferenceBackend.fromConfig(
    {
      required: { model_name: storyModel(), served_name: 'story' },
      llm: { repetition_penalty: 1, max_model_len: 256 },
      engine: { kind: 'llama', threads: 1, gpu: false, sequences: 8 },
    },
    { port: 0 },
  )
  const baseURL = `${backend.endpoint}/v1`
  client = new OpenAI({ baseURL, apiKey: 'unused', maxRetries: 0, timeout: 10 * hangMs })
})
afterAll(() => backend.close())

const schema = {
  type: 'object',
  properties: { name: { type: 'string', maxLength: 8 }, age: { type: 'integer', maximum: 99 } },
  required: ['name', 'age'],
  additionalProperties: false,
}
const chat = (text: string) => ({
  model: 'story',
  messages: [{ role: 'user' as const, content: text }],
  max_tokens: 8,
})
const completion = (prompt: string) => ({ model: 'story', prompt, max_tokens: 8 })

/** Each checks what it got; the text differs from call to call. */
const features: Readonly<Record<string, (text: string) => Promise<void>>> = {
  async plain(text) {
    const { usage } = await client.chat.completions.create(chat(text))
    expect(usage?.completion_tokens).toBeLessThanOrEqual(8)
  },
  async stream(text) {
    const options = { include_usage: true }
    const body = { ...chat(text), stream: true as const, stream_options: options }
    let total: number | undefined
    for await (const { usage } of await client.chat.completions.create(body)) {
      total = usage?.total_tokens
    }
    expect(total).toBeGreaterThan(1)
  },
  async logprobs(text) {
    const body = { ...chat(text), logprobs: true, top_logprobs: 3 }
    const { choices } = await client.chat.completions.create(body)
    for (const { top_logprobs: top } of choices[0]?.logprobs?.content ?? []) {
      expect(top.length).toBe(3)
    }
  },
  async promptLogprobs(text) {
    const body = { ...completion(text), echo: true, logprobs: 2 }
    const [choice] = (await client.completions.create(body)).choices
    expect(choice?.text.startsWith(text)).toBe(true)
    expect(choice?.logprobs?.token_logprobs?.[0]).toBeNull()
  },
  async sampling(text) {
    const options = { seed: 1, top_p: 0.9, frequency_penalty: 0.5, logit_bias: { '13': -100 } }
    const body = { ...completion(text), ...options, n: 2 }
    expect((await client.completions.create(body)).choices.length).toBe(2)
  },
  async schema(text) {
    const format = { type: 'json_schema' as const, json_schema: { name: 'person', schema } }
    const body = { ...chat(text), response_format: format, max_tokens: 100 }
    const [choice] = (await client.chat.completions.create(body)).choices
    expect(choice?.finish_reason).toBe('stop')
    expect(JSON.parse(choice?.message.content ?? '')).toHaveProperty('age')
  },
  async tool(text) {
    const tools = [{ type: 'function' as const, function: { name: 'now' } }]
    const body = { ...chat(text), tools, tool_choice: 'required' as const, max_tokens: 60 }
    const [choice] = (await client.chat.completions.create(body)).choices
    expect(choice?.message.tool_calls?.[0]).toMatchObject({ function: { name: 'now' } })
  },
  async abort(text) {
    const body = { ...completion(text), stream: true as const, max_tokens: 200, ignore_eos: true }
    const stream = await client.completions.create(body)
    for await (const _ of stream) stream.controller.abort()
  },
  async mistake(text) {
    const wrong = client.chat.completions.create({ ...chat(text), temperature: 9 })
    await expect(wrong).rejects.toMatchObject({ status: 400, param: 'temperature' })
  },
}

const clients = 64
const minutes = byRun(0, 10)

/** Bytes that are in memory, of this process (server and clients) and of the model's. */
const memory = (): number =>
  [process.pid, ...modelProcesses(process.pid)].reduce((sum, pid) => {
    const pages = Number(readFileSync(`/proc/${pid}/statm`, 'utf8').split(' ')[1])
    return sum + pages * 4096
  }, 0)

it(
  `${clients} clients use all features at the same time, and memory does not grow`,
  { timeout: hangMs + minutes * 120_000 },
  async () => {
    const names = Object.keys(features)
    const end = performance.now() + minutes * 60_000
    const samples: number[] = []
    let done = 0
    const run = async (number: number): Promise<void> => {
      // Every client makes one round at least: each feature beside each other one.
      for (let round = 0; round < 1 || performance.now() < end; round++) {
        const name = names[(number + round) % names.length] ?? ''
        await features[name]?.(`Client ${number} in round ${round} had a`)
        if (++done % (2 * clients) === 0) samples.push(memory())
      }
    }
    await Promise.all(Array.from({ length: clients }, (_, number) => run(number)))
    expect(done).toBeGreaterThanOrEqual(clients)
    await eventually(async () => {
      const health = await fetch(`${backend.endpoint}/health`)
      expect(await health.json()).toMatchObject({
        status: 'healthy',
        batch_config: { pending_requests: 0 },
      })
    })
    expect(growthOf(samples)).toBeLessThan(0.1)
  },
)

/** How much the last third has more than the second: the first one warms up. */
function growthOf(samples: readonly number[]): number {
  const third = Math.floor(samples.length / 3)
  if (third < 3) return 0
  const mean = (values: readonly number[]): number =>
    values.reduce((sum, value) => sum + value, 0) / values.length
  return mean(samples.slice(-third)) / mean(samples.slice(third, 2 * third)) - 1
}
