/**
 * The gain of batching and the cost of request options: tutti's llama engine compared with the
 * default parallel use of its library, and with itself. Models run in their own processes.
 */

import { execFileSync, fork } from 'node:child_process'
import { existsSync, mkdirSync, renameSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Pool } from 'undici'
import { writeRandomModel } from '../scripts/random-model.mjs'
import { installModel } from '../src/inference/models/model-file.ts'
import type { ParallelResult } from './fixtures/parallel-prompts.ts'
import { median, table } from './harness.ts'
import { answerOf } from './inference-serving.ts'
import { familyCpu } from './process-cpu.ts'

const runs = Number(process.env['RUNS'] ?? 5)
/** The device of the models: `cpu`, with one thread, or `gpu`. */
const device = process.env['DEVICE'] ?? 'cpu'
const fixture = (name: string): string =>
  fileURLToPath(new URL(`fixtures/${name}`, import.meta.url))
const models = fileURLToPath(new URL('../.models/', import.meta.url))
const times = (a: number, b: number): string => `${(a / b).toFixed(2)} x`

/** The last line of a program's output, as JSON. */
function resultOf(program: string, args: readonly string[]): ReturnType<typeof JSON.parse> {
  const output = execFileSync(process.execPath, [fixture(program), ...args], { encoding: 'utf8' })
  return JSON.parse(output.trim().split('\n').at(-1) ?? '')
}

const modelOf = (name: string): string =>
  installModel(name, { folder: models, onProgress: (text) => process.stderr.write(`${text}\n`) })
    .path

const storyModel = (): string => modelOf('stories15M')

/** A model of about 400 million random parameters: meaningless text at realistic cost. */
function largeModel(precision: 'F16' | 'Q8_0'): string {
  const path = join(models, `random-400m-${precision}.gguf`)
  if (existsSync(path)) return path
  process.stderr.write('writing a random model of about 400 M parameters\n')
  mkdirSync(models, { recursive: true })
  const sizes = { dim: 1024, layers: 24, heads: 16, hidden: 4096, vocab: 4096 }
  writeRandomModel(`${path}.part`, { ...sizes, precision, context: 512 })
  renameSync(`${path}.part`, path)
  return path
}

export function batching(): void {
  const cases = [
    { name: 'stories15M, Q8_0', path: storyModel(), tokens: 120, rounds: runs },
    { name: 'random, 400 M, Q8_0', path: largeModel('Q8_0'), tokens: 80, rounds: 1 },
    { name: 'random, 400 M, F16', path: largeModel('F16'), tokens: 24, rounds: 1 },
  ]
  const rows = cases.flatMap(({ name, path, tokens, rounds }) =>
    [16, 64].map((prompts) => {
      const rates: Record<string, number[]> = { default: [], ours: [] }
      for (let run = 0; run < rounds; run++) {
        for (const mode of ['default', 'ours']) {
          const numbers = [String(prompts), String(tokens)]
          const args = [mode, path, ...numbers, device]
          const result: ParallelResult = resultOf('parallel-prompts.ts', args)
          rates[mode]?.push(result.tokens / result.cpuSeconds)
        }
      }
      const [base, ours] = [median(rates['default'] ?? []), median(rates['ours'] ?? [])]
      return [name, prompts, base.toFixed(0), ours.toFixed(0), times(ours, base)]
    }),
  )
  const heads = ['model', 'prompts', 'default use (tokens per CPU-second)', 'ours', 'ratio']
  table(heads, rows)
}

/** A single client: tutti's engine, including communication between processes, and the library. */
export function lone(): void {
  const found: Record<string, ParallelResult[]> = { bare: [], ours: [] }
  for (let run = 0; run < runs; run++) {
    for (const mode of ['bare', 'ours']) {
      const args = [mode === 'bare' ? 'alike' : mode, storyModel(), '1', '200', device]
      found[mode]?.push(resultOf('parallel-prompts.ts', args))
    }
  }
  const rates = (mode: string, key: 'seconds' | 'cpuSeconds'): number =>
    median((found[mode] ?? []).map((one) => one.tokens / one[key]))
  const row = (mode: string): (number | string)[] =>
    (['seconds', 'cpuSeconds'] as const).flatMap((key) => {
      const rate = rates(mode, key)
      return [rate.toFixed(0), mode === 'bare' ? '' : times(rate, rates('bare', key))]
    })
  table(
    ['one client, stories15M', 'tokens/s', 'ratio', 'tokens per CPU-second', 'ratio', 'wanted'],
    [
      ['bare library', ...row('bare'), ''],
      ['our engine', ...row('ours'), '≥ 0.95'],
    ],
  )
}

/** Clients with distinct prompts, with and without the prefix cache. */
export function distinct(): void {
  const rates: Record<string, number[]> = { none: [], cache: [] }
  for (let run = 0; run < runs; run++) {
    for (const mode of ['none', 'cache']) {
      const { rate }: { rate: number } = resultOf('cached-prompts.ts', [mode, storyModel()])
      rates[mode]?.push(rate)
    }
  }
  const [base, ours] = [median(rates['none'] ?? []), median(rates['cache'] ?? [])]
  table(
    ['16 clients, distinct prompts', 'tokens per CPU-second', 'ratio', 'wanted'],
    [
      ['without prefix cache', base.toFixed(0), '', ''],
      ['with it', ours.toFixed(0), times(ours, base), '≥ 0.95'],
    ],
  )
}

interface Completion {
  readonly choices: readonly { readonly message?: { readonly content: string } }[]
  readonly usage: {
    readonly completion_tokens: number
    readonly prompt_tokens_details?: { readonly cached_tokens: number }
  }
}

/** Tutti's server on the llama engine with a model from npm; default: the story model. */
export class LlamaServer {
  readonly origin: string
  readonly #pid: number
  readonly #stop: () => Promise<void>
  readonly #pool: Pool

  static async start(model = 'stories15M', flash?: 'true' | 'false'): Promise<LlamaServer> {
    const env = { ...process.env, ...(flash === undefined ? {} : { FLASH: flash }) }
    const child = fork(fixture('llama-backend.ts'), [modelOf(model)], { env })
    const { port } = await answerOf<{ port: number }>(child)
    return new LlamaServer(child.pid ?? 0, `http://127.0.0.1:${port}`, () => {
      child.send('stop')
    })
  }

  private constructor(pid: number, origin: string, stop: () => void) {
    this.origin = origin
    this.#pid = pid
    this.#pool = new Pool(origin)
    this.#stop = async () => {
      await this.#pool.close()
      stop()
    }
  }

  async ask(path: 'completions' | 'chat/completions', fields: object): Promise<Completion> {
    const { statusCode, body } = await this.#pool.request({
      method: 'POST',
      path: `/v1/${path}`,
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'bench', ...fields }),
    })
    if (statusCode !== 200) throw new Error(await body.text())
    return (await body.json()) as Completion
  }

  /** CPU time in microseconds, including the model's process. */
  cpu(): number {
    return familyCpu(this.#pid)
  }

  stop(): Promise<void> {
    return this.#stop()
  }
}

/**
 * Time of one token after a growing conversation: with a prefix cache, a late turn costs only its
 * own tokens. All turns add as many tokens as the first has.
 */
export async function turns(): Promise<void> {
  const rows: (string | number)[][] = []
  for (const flash of [undefined, 'true', 'false'] as const) {
    const server = await LlamaServer.start('stories15M', flash)
    const { early, late, cached } = await measureTurns(server)
    await server.stop()
    const wanted = flash === undefined ? '≤ 1.5 x' : 'reported'
    rows.push([
      flash ?? 'default',
      early.toFixed(2),
      late.toFixed(2),
      cached,
      times(late, early),
      wanted,
    ])
  }
  const heads = ['turn 1, p50 (ms)', 'turn 10, p50 (ms)', 'of it cached tokens', 'ratio', 'wanted']
  table(['time to first token of a chat, by flash attention', ...heads], rows)
}

async function measureTurns(server: LlamaServer) {
  const taken = new Map<number, number[]>()
  let cached = 0
  for (let run = 0; run <= runs * 4; run++) {
    const messages: { role: string; content: string }[] = []
    for (let turn = 1; turn <= 10; turn++) {
      const content = `${run} ${turn}: Tell me about the red ball, please.`
      messages.push({ role: 'user', content })
      const begun = performance.now()
      const first = { messages, max_tokens: 1, temperature: 0 }
      const { usage } = await server.ask('chat/completions', first)
      const ms = performance.now() - begun
      // The first conversation warms up.
      if (run > 0) taken.set(turn, [...(taken.get(turn) ?? []), ms])
      if (turn === 10) cached = usage.prompt_tokens_details?.cached_tokens ?? 0
      messages.push({ role: 'assistant', content: 'It is red.' })
    }
  }
  return { early: median(taken.get(1) ?? []), late: median(taken.get(10) ?? []), cached }
}

const story = { prompt: 'Once upon a time', max_tokens: 160, temperature: 0, ignore_eos: true }

interface Rate {
  readonly perSecond: number
  readonly perCpuSecond: number
}

/**
 * The rates of clients that send two requests each, one after the other: tokens of the first group
 * per second, tokens of all groups per CPU-second.
 */
async function rateOf(server: LlamaServer, groups: readonly ClientGroup[]): Promise<Rate> {
  const [begun, cpu] = [performance.now(), server.cpu()]
  const askTwice = async (fields: object): Promise<number> => {
    const { usage: one } = await server.ask('completions', fields)
    const { usage: two } = await server.ask('completions', fields)
    return one.completion_tokens + two.completion_tokens
  }
  const results = await Promise.all(
    groups.map(async ({ clients, fields }) => {
      const counts = await Promise.all(Array.from({ length: clients }, () => askTwice(fields)))
      const tokens = counts.reduce((sum, count) => sum + count, 0)
      return { tokens, perSecond: (tokens * 1000) / (performance.now() - begun) }
    }),
  )
  const tokens = results.reduce((sum, result) => sum + result.tokens, 0)
  const perCpuSecond = (tokens * 1e6) / (server.cpu() - cpu)
  return { perSecond: results[0]?.perSecond ?? 0, perCpuSecond }
}

interface ClientGroup {
  readonly clients: number
  readonly fields: object
}

/** Medians per second and per CPU-second, each with its ratio to `base`. */
function rateCells(rates: readonly Rate[], base?: readonly Rate[]): string[] {
  return (['perSecond', 'perCpuSecond'] as const).flatMap((key) => {
    const of = (all: readonly Rate[]): number => median(all.map((rate) => rate[key]))
    return [of(rates).toFixed(0), base === undefined ? '' : times(of(rates), of(base))]
  })
}

const rateHeads = ['tokens/s', 'ratio', 'tokens per CPU-second', 'ratio', 'wanted']

/** How much one client that asks for log probabilities slows down another one, and seven others. */
export async function logprobs(): Promise<void> {
  const model = process.env['MODEL'] ?? 'stories15M'
  const server = await LlamaServer.start(model)
  const answer = { ...story, max_tokens: Number(process.env['TOKENS'] ?? story.max_tokens) }
  const beside = (clients: number, fields: object): Promise<Rate> =>
    rateOf(server, [
      { clients, fields: answer },
      { clients: 1, fields: { ...answer, ...fields } },
    ])
  await beside(7, { logprobs: 5 })
  const rows: (string | number)[][] = []
  for (const clients of [1, 7]) {
    const rates: { plain: Rate[]; scored: Rate[] } = { plain: [], scored: [] }
    for (let run = 0; run < runs; run++) {
      rates.plain.push(await beside(clients, {}))
      rates.scored.push(await beside(clients, { logprobs: 5 }))
    }
    rows.push(
      [clients, 'without log probabilities', ...rateCells(rates.plain), ''],
      [clients, 'with `logprobs: 5`', ...rateCells(rates.scored, rates.plain), '≥ 0.9'],
    )
  }
  await server.stop()
  table([`clients, ${model}`, 'beside one', ...rateHeads], rows)
}

const listOfNames = {
  type: 'array',
  items: {
    type: 'object',
    properties: { name: { type: 'string' }, age: { type: 'integer' } },
    required: ['name', 'age'],
    additionalProperties: false,
  },
  minItems: 40,
}

/** The cost of a schema, for one client and for eight. */
export async function grammar(): Promise<void> {
  const server = await LlamaServer.start()
  const schema = { ...story, guided_json: listOfNames }
  await rateOf(server, [{ clients: 8, fields: schema }])
  const rows: (string | number)[][] = []
  for (const clients of [1, 8]) {
    const rates: { plain: Rate[]; schema: Rate[] } = { plain: [], schema: [] }
    for (let run = 0; run < runs; run++) {
      rates.plain.push(await rateOf(server, [{ clients, fields: story }]))
      rates.schema.push(await rateOf(server, [{ clients, fields: schema }]))
    }
    rows.push(
      [clients, 'text', ...rateCells(rates.plain), ''],
      [clients, 'JSON by a schema', ...rateCells(rates.schema, rates.plain), '≥ 0.75'],
    )
  }
  await server.stop()
  table(['clients', 'answers', ...rateHeads], rows)
}
