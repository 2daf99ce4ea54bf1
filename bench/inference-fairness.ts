/** What other clients cost a client of the llama engine. */

import { Pool } from 'undici'
import { median, table } from './harness.ts'
import { LlamaServer } from './inference-llama.ts'

const runs = Number(process.env['RUNS'] ?? 5)
const answer = { prompt: 'Once upon a time', max_tokens: 80, temperature: 0, ignore_eos: true }

/** A client is an address: 127.0.0.2 and 127.0.0.1 are two clients for the server. */
class Client {
  readonly #pool: Pool

  constructor(origin: string, localAddress: string) {
    this.#pool = new Pool(origin, { connections: 200, localAddress })
  }

  /** Streams an answer, and returns after how many milliseconds its first text came. */
  async firstTokenMs(fields: object): Promise<number> {
    const begun = performance.now()
    const { statusCode, body } = await this.#pool.request({
      method: 'POST',
      path: '/v1/completions',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'bench', ...answer, ...fields, stream: true }),
    })
    if (statusCode !== 200) throw new Error(await body.text())
    let first = Number.NaN
    for await (const _ of body) if (Number.isNaN(first)) first = performance.now() - begun
    return first
  }

  close(): Promise<void> {
    return this.#pool.close()
  }
}

/**
 * The first token of a client beside another one: with 15 streams of that client on 16 slots, and
 * with 200 requests. All its answers are equally long, so that slots become free at the same time,
 * which is the worst case.
 */
export async function fairness(): Promise<void> {
  const server = await LlamaServer.start()
  const [busy, person] = [
    new Client(server.origin, '127.0.0.1'),
    new Client(server.origin, '127.0.0.2'),
  ]
  const found: { streams: number[]; flood: number[] } = { streams: [], flood: [] }
  await person.firstTokenMs({ max_tokens: 4 })
  for (let run = 0; run < runs; run++) {
    const over = new AbortController()
    const streams = Array.from({ length: 15 }, async () => {
      while (!over.signal.aborted) await busy.firstTokenMs({})
    })
    for (let at = 0; at < 20; at++) found.streams.push(await askOnce(person))
    over.abort()
    await Promise.all(streams)
    const waiting = new Set(Array.from({ length: 200 }, (_, at) => at))
    const flood = [...waiting].map(async (at) => {
      await busy.firstTokenMs({})
      waiting.delete(at)
    })
    while (waiting.size > 20) found.flood.push(await askOnce(person))
    await Promise.all(flood)
  }
  await Promise.all([busy.close(), person.close()])
  await server.stop()
  const row = (name: string, all: readonly number[], wanted: string): string[] => {
    const sorted = all.toSorted((a, b) => a - b)
    const late = sorted[Math.floor(sorted.length * 0.95)] ?? Number.NaN
    const ratio = (median(all) / median(found.streams)).toFixed(2)
    return [name, median(all).toFixed(1), late.toFixed(1), `${ratio} x`, wanted]
  }
  table(
    ['first token of a client beside another one', 'p50 (ms)', 'p95 (ms)', 'ratio', 'wanted'],
    [row('with 15 streams', found.streams, ''), row('with 200 requests', found.flood, '≤ 3')],
  )
}

/** After a pause, so that the requests fall on all moments of the other client's answers. */
async function askOnce(client: Client): Promise<number> {
  await new Promise((resolve) => void setTimeout(resolve, 20 + 100 * Math.random()))
  return client.firstTokenMs({ max_tokens: 4 })
}
