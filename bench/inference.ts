/**
 * The cost of serving and the gain of batching: CPU time and latency of the server against a bare
 * `node:http` handler, and the llama engine against the default parallel use of its library.
 * Servers and models run in processes of their own; rounds are interleaved and medians compared.
 */

import { type ChildProcess, execFileSync, fork } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, renameSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Pool } from 'undici'
import { writeRandomModel } from '../scripts/random-model.mjs'
import { installModel } from '../src/inference/models/model-file.ts'
import type { ParallelResult } from './fixtures/parallel-prompts.ts'
import { median, table } from './harness.ts'

const runs = Number(process.env['RUNS'] ?? 5)
const wanted = process.argv[2] ?? 'all'
/** Where models run: `cpu`, with one thread, or `gpu`. */
const device = process.env['DEVICE'] ?? 'cpu'
const fixture = (name: string): string =>
  fileURLToPath(new URL(`fixtures/${name}`, import.meta.url))
const models = fileURLToPath(new URL('../.models/', import.meta.url))
const times = (a: number, b: number): string => `${(a / b).toFixed(2)} x`

const body = JSON.stringify({
  model: 'tiny',
  messages: [
    { role: 'system', content: 'You are a helpful assistant.' },
    { role: 'user', content: 'Tell me in one sentence what a parameter sweep is.' },
  ],
  max_tokens: 64,
  temperature: 0.5,
})

class ChatServer {
  readonly #child: ChildProcess
  readonly #pool: Pool
  readonly #single: Pool

  static async start(mode: 'bare' | 'tutti'): Promise<ChatServer> {
    const child = fork(fixture('chat-server.ts'), [mode])
    const { port } = await answerOf<{ port: number }>(child)
    return new ChatServer(child, `http://127.0.0.1:${port}`)
  }

  private constructor(child: ChildProcess, origin: string) {
    this.#child = child
    this.#pool = new Pool(origin, { connections: 32, pipelining: 1 })
    this.#single = new Pool(origin, { connections: 1, pipelining: 1 })
  }

  /** CPU time of the server in microseconds per request, with 32 connections. */
  async cpuMicros(requests: number): Promise<number> {
    const before = await this.#cpu()
    let left = requests
    await Promise.all(
      Array.from({ length: 32 }, async () => {
        while (left-- > 0) await post(this.#pool)
      }),
    )
    return ((await this.#cpu()) - before) / requests
  }

  /** Median latency in milliseconds of requests that are sent one at a time. */
  async singleMs(requests: number): Promise<number> {
    const taken: number[] = []
    for (let at = 0; at < requests; at++) {
      const begun = performance.now()
      await post(this.#single)
      taken.push(performance.now() - begun)
    }
    return median(taken)
  }

  async stop(): Promise<void> {
    await Promise.all([this.#pool.close(), this.#single.close()])
    this.#child.send('stop')
  }

  async #cpu(): Promise<number> {
    this.#child.send('cpu')
    const { cpu } = await answerOf<{ cpu: NodeJS.CpuUsage }>(this.#child)
    return cpu.user + cpu.system
  }
}

async function answerOf<T>(child: ChildProcess): Promise<T> {
  const over = new AbortController()
  const { signal } = over
  const ended = async (): Promise<never> => {
    const [code] = (await once(child, 'exit', { signal })) as [number]
    throw new Error(`the server ended with ${code}`)
  }
  try {
    const [message] = (await Promise.race([once(child, 'message', { signal }), ended()])) as [T]
    return message
  } finally {
    over.abort()
  }
}

async function post(pool: Pool): Promise<void> {
  const { statusCode, body: answer } = await pool.request({
    method: 'POST',
    path: '/v1/chat/completions',
    headers: { 'content-type': 'application/json' },
    body,
  })
  const { choices } = (await answer.json()) as { choices: unknown[] }
  if (statusCode !== 200 || choices.length !== 1) throw new Error(`status ${statusCode}`)
}

async function overhead(): Promise<void> {
  const servers = { bare: await ChatServer.start('bare'), tutti: await ChatServer.start('tutti') }
  const cpu: Record<string, number[]> = { bare: [], tutti: [] }
  const single: Record<string, number[]> = { bare: [], tutti: [] }
  for (const server of Object.values(servers)) await server.cpuMicros(5000)
  for (let run = 0; run < runs; run++) {
    for (const [name, server] of Object.entries(servers)) {
      cpu[name]?.push(await server.cpuMicros(5000))
      single[name]?.push(await server.singleMs(1000))
    }
  }
  for (const server of Object.values(servers)) await server.stop()
  const [bareCpu, ourCpu] = [median(cpu['bare'] ?? []), median(cpu['tutti'] ?? [])]
  const [bareSingle, ourSingle] = [median(single['bare'] ?? []), median(single['tutti'] ?? [])]
  table(
    [
      'a chat request',
      'server CPU (µs), 32 connections',
      'ratio',
      'p50 of a single one (ms)',
      'ratio',
    ],
    [
      ['bare node:http', bareCpu.toFixed(0), '', bareSingle.toFixed(3), ''],
      [
        'tutti, echo engine',
        ourCpu.toFixed(0),
        times(ourCpu, bareCpu),
        ourSingle.toFixed(3),
        times(ourSingle, bareSingle),
      ],
    ],
  )
}

/** The latency of a single request on an idle server with the default maximum wait of 500 ms. */
async function window(): Promise<void> {
  const server = await ChatServer.start('tutti')
  await server.singleMs(500)
  const ms = await server.singleMs(500)
  await server.stop()
  table(['single request, maximum wait 500 ms', 'p50 (ms)'], [['idle server', ms.toFixed(3)]])
}

/** A model of about 400 million random parameters: its text is noise, its cost is real. */
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

function batching(): void {
  const story = installModel('stories15M', {
    folder: models,
    say: (text) => process.stderr.write(`${text}\n`),
  }).path
  const cases = [
    { name: 'stories15M, Q8_0', path: story, tokens: 120, rounds: runs },
    { name: 'random, 400 M, Q8_0', path: largeModel('Q8_0'), tokens: 80, rounds: 1 },
    { name: 'random, 400 M, F16', path: largeModel('F16'), tokens: 24, rounds: 1 },
  ]
  const rows = cases.flatMap(({ name, path, tokens, rounds }) =>
    [16, 64].map((prompts) => {
      const rates: Record<string, number[]> = { default: [], ours: [] }
      for (let run = 0; run < rounds; run++) {
        for (const mode of ['default', 'ours']) {
          const numbers = [String(prompts), String(tokens)]
          const args = [fixture('parallel-prompts.ts'), mode, path, ...numbers, device]
          const output = execFileSync(process.execPath, args, { encoding: 'utf8' })
          const result = JSON.parse(output.trim().split('\n').at(-1) ?? '') as ParallelResult
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

const benchmarks: Readonly<Record<string, () => Promise<void> | void>> = {
  overhead,
  window,
  batching,
}
for (const [name, measure] of Object.entries(benchmarks)) {
  if (wanted === 'all' || wanted === name) await measure()
}
