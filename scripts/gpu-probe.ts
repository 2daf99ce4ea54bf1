/**
 * Shows what the GPU samplers see on this machine: `node scripts/gpu-probe.ts <folder>`.
 * Everything that is printed, and the raw output of `nvidia-smi`, is also written to the folder,
 * for use as fixtures.
 */

import { spawn, spawnSync } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { arch, hostname, release } from 'node:os'
import { join } from 'node:path'
import { GpuSampler } from '../src/backends/sampling/gpu-sampler.ts'
import { createLocalSampler } from '../src/backends/sampling/node-sampler.ts'
import { gpuQuery, parseGpuLine } from '../src/backends/sampling/gpu-sampler.ts'
import { ResourcePoller } from '../src/backends/sampling/poller.ts'
import type { ResourceSampler } from '../src/backends/sampling/sampler.ts'
import { sleep, systemClock as clock } from '../src/foundation/clock.ts'
import type { Log } from '../src/foundation/log.ts'
import { RecordingSink } from '../src/testing/recorders.ts'

const polls = 3
const folder = process.argv[2] ?? 'gpu-probe'
const printed: string[] = []
const log: Log = { warn: (code, message) => say(`warning ${code}: ${message}`) }

mkdirSync(folder, { recursive: true })
try {
  say(`node ${process.version}, ${process.platform} ${release()}, ${arch()}`)
  showRaw('nvidia-smi-list.txt', ['-L'])
  showRaw('nvidia-smi-query.csv', [...gpuQuery])
  showRaw('nvidia-smi-versions.csv', ['--query-gpu=name,driver_version', '--format=csv'])
  await showStream()
  await timeSampler()
  await showEvents()
} catch (error) {
  say(
    `the probe failed: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`,
  )
  process.exitCode = 1
} finally {
  keep('gpu-probe.txt', `${printed.join('\n')}\n`)
}

function say(line: string): void {
  printed.push(line)
  console.log(line)
}

function keep(name: string, text: string): void {
  writeFileSync(join(folder, name), text)
}

/** Runs the program once and shows its raw output and duration. */
function showRaw(name: string, parameters: readonly string[]): void {
  const began = clock.monotonicMs()
  const run = spawnSync('nvidia-smi', parameters, { encoding: 'latin1', timeout: 30_000 })
  const ms = (clock.monotonicMs() - began).toFixed(1)
  say(`\n# nvidia-smi ${parameters.join(' ')}`)
  say(`# exit ${run.status ?? run.signal ?? run.error?.message}, ${ms} ms`)
  say(JSON.stringify({ stdout: run.stdout, stderr: run.stderr }))
  if (run.stdout) keep(name, run.stdout)
}

/** Shows when the lines of a streaming program arrive, which reveals buffering. */
async function showStream(): Promise<void> {
  say('\n# nvidia-smi --loop-ms=1000, as its output arrives in 4 s')
  const began = clock.monotonicMs()
  const child = spawn('nvidia-smi', [...gpuQuery, '--loop-ms=1000'])
  let raw = ''
  child.on('error', (error) => say(`cannot be started: ${error.message}`))
  child.stdout.setEncoding('latin1').on('data', (chunk: string) => {
    raw += chunk
    say(`${(clock.monotonicMs() - began).toFixed(0)} ms: ${JSON.stringify(chunk)}`)
  })
  await sleep(clock, 4000)
  child.kill('SIGKILL')
  const lines = raw.split('\n').filter((line) => line.trim() !== '')
  say(`parsed: ${JSON.stringify(lines.map(parseGpuLine))}`)
  if (raw !== '') keep('nvidia-smi-stream.csv', raw)
}

async function timeSampler(): Promise<void> {
  say('\n# GpuSampler')
  const source = new GpuSampler({ clock, log, pollSeconds: 1 })
  let began = clock.monotonicMs()
  await source.prime()
  say(`prime: ready ${source.isReady}, ${(clock.monotonicMs() - began).toFixed(2)} ms`)
  if (source.isReady) {
    for (let poll = 1; poll <= polls; poll++) {
      await sleep(clock, 1000)
      began = clock.monotonicMs()
      const readings = await source.sample()
      const microseconds = ((clock.monotonicMs() - began) * 1000).toFixed(1)
      say(`poll ${poll}: ${JSON.stringify(readings)}, ${microseconds} µs`)
    }
    const rounds = 1000
    began = clock.monotonicMs()
    for (let round = 0; round < rounds; round++) await source.sample()
    const each = ((clock.monotonicMs() - began) * 1000) / rounds
    say(`mean of ${rounds} polls: ${each.toFixed(2)} µs`)
  }
  await source.close()
}

async function showEvents(): Promise<void> {
  say(`\n# ResourceUpdate events of ${polls} polls, 1 s apart`)
  const sink = new RecordingSink()
  const poller = new ResourcePoller({
    clock,
    sink,
    sessionId: 'gpu-probe',
    intervalSeconds: 1,
    log,
  })
  const createSampler = (pollSeconds: number): ResourceSampler =>
    createLocalSampler({ clock, log, pollSeconds })
  poller.addBackend('local', [{ nodeId: hostname(), createSampler }])
  await poller.start()
  await sleep(clock, polls * 1000 + 500)
  await poller.stop()
  const lines = sink.events.map((event) => JSON.stringify(event))
  for (const line of lines) say(line)
  keep('events.jsonl', lines.map((line) => `${line}\n`).join(''))
}
