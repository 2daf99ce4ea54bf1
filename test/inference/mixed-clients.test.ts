import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import OpenAI from 'openai'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { type RunningCommand, startCommand } from '../cli/run-command.ts'
import { eventually } from '../eventually.ts'
import { byRun, hangMs } from '../long-run.ts'
import { modelProcesses } from './engines/llama/model-processes.ts'
import { storyModel } from './engines/llama/open-engine.ts'
import { expectNoGrowth, RefusedError, sampleMemory, surfaceAsks } from './mixed-load.ts'

// The server has processes of its own, so that the memory of these clients does not count.
const folder = mkdtempSync(join(tmpdir(), 'tutti-mixed-'))
let server: RunningCommand
let endpoint = ''
let client: OpenAI
beforeAll(async () => {
  const config = join(folder, 'story.yaml')
  writeFileSync(
    config,
    [
      `required: { model_name: ${storyModel()}, served_name: [story, tiny] }`,
      'llm: { repetition_penalty: 1, max_model_len: 256 }',
      'engine: { kind: llama, threads: 1, gpu: false, sequences: 8 }',
    ].join('\n'),
  )
  // V8 enlarges the space of young objects, up to about 100 MB, by how many have survived so far
  // and not by how many there are. With a small limit it is reached before memory is compared.
  const env = { NODE_OPTIONS: '--max-semi-space-size=8' }
  server = startCommand(['serve', '--config', config, '--port', '0'], env)
  await server.seen('stop      Ctrl-C')
  endpoint = /^endpoint {2}(\S+)/m.exec(server.stdout())?.[1] ?? ''
  const options = { apiKey: 'unused', maxRetries: 0, timeout: 10 * hangMs }
  client = new OpenAI({ baseURL: `${endpoint}/v1`, ...options })
})
afterAll(async () => {
  server.child.kill('SIGTERM')
  expect(await server.ended).toMatchObject({ code: 0 })
  rmSync(folder, { recursive: true })
})

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

type Ask = (text: string) => Promise<void>

const surfaceFeatures: readonly Ask[] = surfaceAsks.map(
  (ask): Ask =>
    (text) =>
      ask(endpoint, 'tiny', text),
)

const allFeatures: readonly Ask[] = [...Object.values(features), ...surfaceFeatures]

const clients = byRun(24, 64)
const minutes = byRun(0, 10)

const listPids = (): readonly number[] => {
  const pid = server.child.pid ?? 0
  return [pid, ...modelProcesses(pid)]
}

/** Every client makes one round at least: each feature beside each other one. */
async function runClients(asks: readonly Ask[], isOver: () => boolean): Promise<number> {
  let done = 0
  const run = async (number: number): Promise<void> => {
    for (let round = 0; round < 1 || !isOver(); round++) {
      await asks[(number + round) % asks.length]?.(`Client ${number} in round ${round} had a`)
      done++
    }
  }
  await Promise.all(Array.from({ length: clients }, (_, number) => run(number)))
  return done
}

async function expectHealthy(): Promise<void> {
  const health = await fetch(`${endpoint}/health`)
  expect(await health.json()).toMatchObject({
    status: 'healthy',
    batch_config: { pending_requests: 0 },
  })
}

it(
  `${clients} clients use all features at the same time${byRun('', ', and memory does not grow')}`,
  { timeout: hangMs + minutes * 120_000 },
  async () => {
    const end = performance.now() + minutes * 60_000
    const isOver = (): boolean => performance.now() > end
    let done = 0
    const samples = await sampleMemory(listPids, async () => {
      done = await runClients(allFeatures, isOver)
    })
    expect(done).toBeGreaterThanOrEqual(clients)
    await eventually(expectHealthy)
    if (minutes > 0) expectNoGrowth(samples, minutes, `${done} requests`)
  },
)

const kills = byRun(1, 20)

it(
  'every request gets an answer or a reason, also while the process of the model is killed',
  { timeout: kills * 2 * hangMs },
  async () => {
    let [killed, answered, refused] = [0, 0, 0]
    const asks = surfaceFeatures.map(
      (ask): Ask =>
        (text) =>
          ask(text).then(
            () => void answered++,
            (error: unknown) => {
              if (!(error instanceof RefusedError)) throw error
              refused++
            },
          ),
    )
    const kill = async (): Promise<void> => {
      for (; killed < kills; killed++) {
        const before = answered
        const [pid] = await eventually(() => {
          // A process that answers nothing between two kills is restarted later and later.
          expect(answered).toBeGreaterThan(before + byRun(0, 2 * clients))
          const found = modelProcesses(server.child.pid ?? 0)
          expect(found.length).toBe(1)
          return found
        })
        process.kill(pid ?? 0, 'SIGKILL')
        await eventually(() => expect(modelProcesses(server.child.pid ?? 0)).not.toContain(pid))
      }
    }
    const [done] = await Promise.all([runClients(asks, () => killed === kills), kill()])
    await eventually(expectHealthy)
    process.stdout.write(`${done} requests, ${refused} refused, ${killed} kills\n`)
    expect(done).toBeGreaterThan(refused)
    for (const ask of surfaceFeatures) await ask('Once upon a time there was a')
  },
)
