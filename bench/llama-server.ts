/**
 * Tokens per second of tutti's server on the llama engine and of llama.cpp's own server, with the
 * same model, sources and requests.
 */

import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { runLoad } from '../src/cli/bench/load.ts'
import { installModel } from '../src/inference/models/model-file.ts'
import { median, table } from './harness.ts'
import { answerOf } from './inference-serving.ts'
import { buildLlamaServer, startLlamaServer } from './llama-cpp-server.ts'
import { familyCpu } from './process-cpu.ts'

const runs = Number(process.env['RUNS'] ?? 5)
const cores = availableParallelism()
const numbersOf = (name: string, usual: readonly number[]): ReadonlySet<number> =>
  new Set(process.env[name]?.split(',').map(Number) ?? usual)
/** `THREADS=1 CLIENTS=16` measures one row. */
const threadCounts = numbersOf('THREADS', [1, cores])
const clientCounts = numbersOf('CLIENTS', [1, 16, 64])
/** Any value adds servers with flash attention on and off. */
const comparesAttention = process.env['COMPARE'] !== undefined
const root = fileURLToPath(new URL('../', import.meta.url))
const contextLength = 256
const answerTokens = 80
const fields = { temperature: 0, ignore_eos: true }
const request = {
  surface: 'completions',
  model: 'bench',
  apiKey: null,
  timeoutSeconds: 600,
  fields,
} as const

const onProgress = (text: string): void => void process.stderr.write(`${text}\n`)

interface Running {
  readonly pid: number
  readonly base: URL
  stop(): Promise<void>
}

async function stopChild(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const exit = once(child, 'exit')
  child.kill()
  await exit
}

// Exiting runs the exit handlers, which end the servers.
process.once('SIGINT', () => process.exit(130))
process.once('SIGTERM', () => process.exit(143))

const toRunning = (child: ChildProcess, port: number): Running => ({
  pid: child.pid ?? 0,
  base: new URL(`http://127.0.0.1:${port}/`),
  stop: () => stopChild(child),
})

interface Settings {
  readonly model: string
  readonly threads: number
  readonly clients: number
}

/** What the settings fix of the engine, which chooses the rest. */
interface Variant {
  readonly name: string
  readonly env?: Readonly<Record<string, string>>
  readonly choosesThreads?: boolean
}

const threadsChosen: Variant = { name: 'default', choosesThreads: true }
const threadsFixed: Variant = { name: 'threads fixed' }
const flashOn: Variant = { name: 'flash attention on', env: { FLASH: 'true' } }
const flashOff: Variant = { name: 'flash attention off', env: { FLASH: 'false' } }

async function startOurs(
  { model, threads, clients }: Settings,
  { env, choosesThreads = false }: Variant,
): Promise<Running> {
  const program = join(root, 'bench', 'fixtures', 'llama-backend.ts')
  const args = [model, choosesThreads ? 0 : threads, clients, contextLength].map(String)
  const child = fork(program, args, { env: { ...process.env, ...env } })
  process.once('exit', () => child.kill())
  const { port } = await answerOf<{ port: number }>(child)
  return toRunning(child, port)
}

async function startTheirs({ model, threads, clients }: Settings): Promise<Running> {
  const { child, port } = await startLlamaServer({
    model,
    alias: 'bench',
    threads,
    'threads-batch': threads,
    parallel: clients,
    'ctx-size': contextLength * clients,
  })
  return toRunning(child, port)
}

interface Rate {
  readonly perSecond: number
  readonly perCpuSecond: number
}

/** All clients send the same number of requests, one after the other; all prompts are different. */
async function measure({ pid, base }: Running, clients: number, round: number): Promise<Rate> {
  const cpu = familyCpu(pid)
  const load = await runLoad({
    ...request,
    base,
    clients,
    requests: clients * Math.ceil(16 / clients),
    maxTokens: answerTokens,
    toPrompt: (index) => `${index} of ${round}: once upon a time there was a dog`,
  })
  if (load.failed > 0) throw new Error([...load.errors.keys()].join('; '))
  return {
    perSecond: load.answerTokens / load.seconds,
    perCpuSecond: (load.answerTokens * 1e6) / (familyCpu(pid) - cpu),
  }
}

/** Milliseconds to the first token of a prompt that was sent before. */
async function measureRepeated({ base }: Running): Promise<number> {
  const prompt = 'Once upon a time there was a red ball that was as large as the sun. '.repeat(8)
  const toPrompt = (): string => prompt
  const load = await runLoad({ ...request, base, clients: 1, requests: 51, maxTokens: 1, toPrompt })
  return 1000 * median(load.firstToken.slice(1))
}

buildLlamaServer()
const model = installModel('stories15M', { folder: join(root, '.models'), onProgress }).path
const rows: (string | number)[][] = []
for (const threads of threadCounts) {
  for (const clients of clientCounts) {
    const settings = { model, threads, clients }
    const variants = [
      ...(threads > 1 ? [threadsChosen] : []),
      threadsFixed,
      ...(comparesAttention ? [flashOn, flashOff] : []),
    ]
    const servers: { name: string; server: Running; rates: Rate[] }[] = []
    for (const variant of variants) {
      servers.push({ name: variant.name, server: await startOurs(settings, variant), rates: [] })
    }
    const theirs = { server: await startTheirs(settings), rates: new Array<Rate>() }
    const all = [...servers, theirs]
    // The first round of each server warms up.
    for (let round = 0; round <= runs; round++) {
      for (const { server, rates } of all) {
        const rate = await measure(server, clients, round)
        if (round > 0) rates.push(rate)
      }
    }
    for (const { server } of all) await server.stop()
    for (const { name, rates } of servers) {
      const numbers = (['perSecond', 'perCpuSecond'] as const).flatMap((key) => {
        const [our, their] = [
          median(rates.map((it) => it[key])),
          median(theirs.rates.map((it) => it[key])),
        ]
        return [our.toFixed(0), their.toFixed(0), (our / their).toFixed(2)]
      })
      const min = threads === 1 ? '≥ 1' : '≥ 0.9'
      rows.push([threads, clients, name, ...numbers, name === variants[0]?.name ? min : 'reported'])
      onProgress(rows.at(-1)?.join(' | ') ?? '')
    }
  }
}
const heads = [
  'tokens/s',
  'llama-server',
  'ratio',
  'tokens per CPU-second',
  'llama-server',
  'ratio',
]
table(['threads', 'clients', 'settings', ...heads, 'wanted'], rows)

const repeatedRows: (string | number)[][] = []
for (const threads of threadCounts) {
  const settings = { model, threads, clients: 16 }
  const [ours, theirs] = [await startOurs(settings, threadsFixed), await startTheirs(settings)]
  const [our, their] = [await measureRepeated(ours), await measureRepeated(theirs)]
  await ours.stop()
  await theirs.stop()
  repeatedRows.push([threads, our.toFixed(1), their.toFixed(1), (our / their).toFixed(2)])
}
const repeatedHeads = ['threads', 'first token of a repeated prompt (ms)', 'llama-server', 'ratio']
table(repeatedHeads, repeatedRows)
