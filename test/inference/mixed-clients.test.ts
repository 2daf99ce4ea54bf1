import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import OpenAI from 'openai'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { type RunningCommand, startCommand } from '../cli/run-command.ts'
import { eventually } from '../eventually.ts'
import { byRun, hangMs } from '../long-run.ts'
import { modelProcesses } from './engines/llama/model-processes.ts'
import { storyModel } from './engines/llama/open-engine.ts'
import { type SurfaceClient, surfaceClients } from './server/surfaces/surface-clients.ts'

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

/** An answer that a surface gave with a reason instead of a text. */
class RefusedError extends Error {}

/** Sends a request to a surface. Rejects with `RefusedError` if the reply has a reason. */
async function askSurface(surface: SurfaceClient, text: string, fields: object): Promise<void> {
  const body = { ...surface.toBody({ turns: [{ role: 'user', text }], maxTokens: 8 }), ...fields }
  const response = await fetch(endpoint + surface.path, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  const parts = toParts(await response.text())
  const refused = parts.find(({ type, error }) => type === 'error' || (error ?? null) !== null)
  if (refused !== undefined) {
    const reason = surface.readError(refused)
    expect(reason).toMatch(/\w+ \w+/)
    throw new RefusedError(String(reason))
  }
  expect(response.status).toBe(200)
  const isStream = fields === surface.streamFields
  const { tokens } = isStream ? surface.readStream(parts) : surface.readWhole(parts[0])
  expect(tokens[0]).toBeGreaterThan(0)
  expect(tokens[1]).toBeLessThanOrEqual(8)
}

/** The objects of a reply, whether it is whole, lines of JSON or events. */
const toParts = (text: string): ReturnType<typeof JSON.parse>[] =>
  text
    .split('\n')
    .map((line) => line.replace(/^data: /, ''))
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line))

type Ask = (text: string) => Promise<void>

/** Each surface, with whole and with streamed answers. */
const surfaceFeatures: readonly Ask[] = Object.values(surfaceClients).flatMap((surface) =>
  [{ stream: false }, surface.streamFields].map(
    (fields): Ask =>
      (text) =>
        askSurface(surface, text, fields),
  ),
)

const allFeatures: readonly Ask[] = [...Object.values(features), ...surfaceFeatures]

const clients = byRun(24, 64)
const minutes = byRun(0, 10)

/** Bytes that are in memory, of the server and of the model's process. */
const memory = (): number =>
  [server.child.pid ?? 0, ...modelProcesses(server.child.pid ?? 0)].reduce((sum, pid) => {
    const pages = Number(readFileSync(`/proc/${pid}/statm`, 'utf8').split(' ')[1])
    return sum + pages * 4096
  }, 0)

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
    const samples: MemorySample[] = []
    const timer = setInterval(
      () => samples.push({ seconds: performance.now() / 1000, bytes: memory() }),
      1000,
    )
    const end = performance.now() + minutes * 60_000
    const isOver = (): boolean => performance.now() > end
    const done = await runClients(allFeatures, isOver).finally(() => clearInterval(timer))
    expect(done).toBeGreaterThanOrEqual(clients)
    await eventually(expectHealthy)
    if (minutes > 0) expectNoGrowth(samples, `${done} requests`)
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

function expectNoGrowth(samples: readonly MemorySample[], what: string): void {
  expect(samples.length).toBeGreaterThan(minutes * 30)
  const { megabytes, perMinute } = memoryTrend(samples)
  const numbers = `${megabytes.toFixed(0)} MB, ${perMinute.toFixed(2)} MB more in a minute`
  process.stdout.write(`${what}, ${samples.length} samples: ${numbers}\n`)
  expect((perMinute * minutes) / megabytes).toBeLessThan(0.05)
}

interface MemorySample {
  readonly seconds: number
  readonly bytes: number
}

/** The mean, and the slope by least squares, after the first third, which warms up. */
function memoryTrend(all: readonly MemorySample[]): { megabytes: number; perMinute: number } {
  const samples = all.slice(Math.floor(all.length / 3))
  const mean = (key: keyof MemorySample): number =>
    samples.reduce((sum, sample) => sum + sample[key], 0) / samples.length
  const [seconds, bytes] = [mean('seconds'), mean('bytes')]
  let [shared, spread] = [0, 0]
  for (const sample of samples) {
    shared += (sample.seconds - seconds) * (sample.bytes - bytes)
    spread += (sample.seconds - seconds) ** 2
  }
  return { megabytes: bytes / 1e6, perMinute: ((shared / spread) * 60) / 1e6 }
}
