/**
 * The cost of serving: CPU time and latency of the server compared with a bare `node:http` handler,
 * of forwarding to another server, and of many streams. Servers and loads run in their own
 * processes; rounds are interleaved and medians compared.
 */

import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { Pool } from 'undici'
import { surfaces as benchSurfaces } from '../src/cli/bench/surfaces.ts'
import { median, table } from './harness.ts'

const runs = Number(process.env['RUNS'] ?? 5)
const fixture = (name: string): string =>
  fileURLToPath(new URL(`fixtures/${name}`, import.meta.url))
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
  readonly origin: string
  readonly #child: ChildProcess
  readonly #pool: Pool
  readonly #single: Pool

  static async start(mode: 'bare' | 'tutti', origin?: string): Promise<ChatServer> {
    const child = fork(
      fixture('chat-server.ts'),
      [mode, origin].flatMap((one) => one ?? []),
    )
    const { port } = await answerOf<{ port: number }>(child)
    return new ChatServer(child, `http://127.0.0.1:${port}`)
  }

  private constructor(child: ChildProcess, origin: string) {
    this.#child = child
    this.origin = origin
    this.#pool = new Pool(origin, { connections: 32, pipelining: 1 })
    this.#single = new Pool(origin, { connections: 1, pipelining: 1 })
  }

  /** CPU time of the server in microseconds per request, with 32 connections. */
  async cpuMicros(requests: number, send = post): Promise<number> {
    const before = await this.#cpu()
    let left = requests
    await Promise.all(
      Array.from({ length: 32 }, async () => {
        while (left-- > 0) await send(this.#pool)
      }),
    )
    return ((await this.#cpu()) - before) / requests
  }

  /** Median latency in milliseconds of requests sent one at a time. */
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

export async function answerOf<T>(child: ChildProcess): Promise<T> {
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

export async function overhead(): Promise<void> {
  const servers = { bare: await ChatServer.start('bare'), tutti: await ChatServer.start('tutti') }
  const cpu: Record<string, number[]> = { bare: [], tutti: [] }
  const single: Record<string, number[]> = { bare: [], tutti: [] }
  // Warms up like a long-running server: functions are compiled in the first thousands of requests.
  for (const server of Object.values(servers)) await server.cpuMicros(20_000)
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

/** The server's CPU time for the same request on each surface, whole and streamed. */
export async function surfaces(): Promise<void> {
  const server = await ChatServer.start('tutti')
  const prompt = 'Tell me in one sentence what a parameter sweep is.'
  const { completions: _, ...chatLike } = benchSurfaces
  const cases = Object.entries(chatLike).flatMap(([name, surface]) => {
    // Without `store: false`, the response is kept, as by default.
    const measured = surface.toBody({ model: 'tiny', prompt, maxTokens: 64 })
    const { store: ___, ...request } = { store: null, ...measured }
    const { stream_options: __, ...whole } = { stream_options: null, ...request, stream: false }
    return [
      { name, kind: 'whole', send: sendTo(surface.path, whole), cpu: [] as number[] },
      { name, kind: 'streamed', send: sendTo(surface.path, request), cpu: [] as number[] },
    ]
  })
  for (const { send } of cases) await server.cpuMicros(10_000, send)
  // Many short rounds, because other programs disturb some of them. A ratio compares one round.
  for (let run = 0; run < 5 * runs; run++) {
    for (const { send, cpu } of cases) cpu.push(await server.cpuMicros(1000, send))
  }
  await server.stop()
  const rows = cases.map(({ name, kind, cpu }) => {
    const base = cases.find((one) => one.kind === kind)?.cpu ?? []
    const ratio = median(cpu.map((micros, run) => micros / (base[run] ?? Number.NaN)))
    const wanted = name === 'chat' ? '' : '≤ 1.15'
    return [name, kind, median(cpu).toFixed(0), `${ratio.toFixed(2)} x`, wanted]
  })
  table(['surface', 'reply', 'server CPU (µs), 32 connections', 'ratio', 'wanted'], rows)
}

const sendTo = (path: string, request: object) => {
  const json = JSON.stringify(request)
  return async (pool: Pool): Promise<void> => {
    const { statusCode, body: reply } = await pool.request({
      method: 'POST',
      path: `/${path}`,
      headers: { 'content-type': 'application/json' },
      body: json,
    })
    const text = await reply.text()
    if (statusCode !== 200 || !text.includes('sweep')) throw new Error(`${statusCode}: ${text}`)
  }
}

/** The cost of a request that one tutti server forwards to another. */
export async function upstream(): Promise<void> {
  const behind = await ChatServer.start('tutti')
  const front = await ChatServer.start('tutti', behind.origin)
  const taken: Record<string, number[]> = { behind: [], front: [] }
  for (const server of [behind, front]) await server.singleMs(2000)
  for (let run = 0; run < runs; run++) {
    taken['behind']?.push(await behind.singleMs(1000))
    taken['front']?.push(await front.singleMs(1000))
  }
  await front.stop()
  await behind.stop()
  const [alone, through] = [median(taken['behind'] ?? []), median(taken['front'] ?? [])]
  table(
    ['single request', 'p50 (ms)', 'added (ms)', 'wanted'],
    [
      ['to a server on the echo engine', alone.toFixed(3), '', ''],
      ['through `openai` to it', through.toFixed(3), (through - alone).toFixed(3), '≤ 1'],
    ],
  )
}

const streamClients = 500

/** Tokens per second for clients that stream at the same time; each gets one token per turn. */
export async function streams(): Promise<void> {
  const open = async (mode: 'bare' | 'tutti') => {
    const server = fork(fixture('stream-server.ts'), [mode])
    const { port } = await answerOf<{ port: number }>(server)
    const load = fork(fixture('stream-load.ts'), [String(port), String(streamClients)])
    const rate = async (): Promise<number> => {
      load.send(2 * streamClients)
      const { tokens, seconds } = await answerOf<{ tokens: number; seconds: number }>(load)
      if (tokens !== 2 * streamClients * 64) throw new Error(`${tokens} tokens came`)
      return tokens / seconds
    }
    return { rate, stop: () => (load.disconnect(), server.send('stop')) }
  }
  const [bare, tutti] = [await open('bare'), await open('tutti')]
  const rates: { bare: number[]; tutti: number[] } = { bare: [], tutti: [] }
  await bare.rate()
  await tutti.rate()
  for (let run = 0; run < runs; run++) {
    rates.bare.push(await bare.rate())
    rates.tutti.push(await tutti.rate())
  }
  bare.stop()
  tutti.stop()
  const [base, ours] = [median(rates.bare), median(rates.tutti)]
  table(
    [`${streamClients} streams`, 'tokens/s', 'ratio', 'wanted'],
    [
      ['bare SSE writer', base.toFixed(0), '', ''],
      ['tutti', ours.toFixed(0), times(ours, base), '≥ 0.3'],
    ],
  )
}

/** The latency of a single request on an idle server with the default maximum wait of 500 ms. */
export async function window(): Promise<void> {
  const server = await ChatServer.start('tutti')
  await server.singleMs(500)
  const ms = await server.singleMs(500)
  await server.stop()
  table(['single request, maximum wait 500 ms', 'p50 (ms)'], [['idle server', ms.toFixed(3)]])
}
