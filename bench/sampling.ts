/** The cost of a poll by tutti's samplers and by the plain way: `node bench/sampling.ts`. */

import { execFile } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { promisify } from 'node:util'
import { GpuSampler } from '../src/backends/sampling/gpu-sampler.ts'
import { NodeSampler } from '../src/backends/sampling/node-sampler.ts'
import { gpuQuery, parseGpuLine } from '../src/backends/sampling/gpu-sampler.ts'
import {
  parseCpuUsage,
  parseDiskBytes,
  parseMemory,
  parseNetBytes,
} from '../src/backends/sampling/node-sampler.ts'
import { systemClock as clock } from '../src/foundation/clock.ts'
import { processLog } from '../src/foundation/log.ts'
import { median, table } from './harness.ts'

const runs = 5

interface Contender {
  readonly name: string
  readonly polls: number
  readonly poll: () => unknown
}

await benchNode()
await benchGpus()

async function benchNode(): Promise<void> {
  if (!existsSync('/proc/stat')) return console.log('node: skipped, this system has no /proc')
  const sampler = new NodeSampler({ clock })
  sampler.prime()
  await compare('node', [
    { name: 'NodeSampler', polls: 2000, poll: () => sampler.sample() },
    { name: 'the same files alone', polls: 2000, poll: readPlainly },
  ])
}

function readPlainly(): unknown {
  return [
    parseCpuUsage(readFileSync('/proc/stat', 'utf8')),
    parseMemory(readFileSync('/proc/meminfo', 'utf8')),
    parseDiskBytes(readFileSync('/proc/diskstats', 'utf8')),
    parseNetBytes(readFileSync('/proc/net/dev', 'utf8')),
  ]
}

async function benchGpus(): Promise<void> {
  const source = new GpuSampler({ clock, log: processLog, pollSeconds: 1 })
  await source.prime()
  if (!source.isReady) {
    console.log('GPU: skipped, nvidia-smi gives no readings')
  } else {
    await compare('GPU', [
      { name: 'one nvidia-smi', polls: 1000, poll: () => source.sample() },
      { name: 'nvidia-smi each time', polls: 10, poll: querySmi },
    ])
  }
  await source.close()
}

async function querySmi(): Promise<unknown> {
  const { stdout } = await promisify(execFile)('nvidia-smi', gpuQuery)
  return stdout.trim().split('\n').map(parseGpuLine)
}

/** Interleaved, so that other load on the machine affects all alike; the first round warms up. */
async function compare(what: string, contenders: readonly Contender[]): Promise<void> {
  const times = contenders.map((): number[] => [])
  for (let run = 0; run <= runs; run++) {
    for (const [index, { polls, poll }] of contenders.entries()) {
      const began = clock.monotonicMs()
      for (let count = 0; count < polls; count++) await poll()
      const microseconds = ((clock.monotonicMs() - began) * 1000) / polls
      if (run > 0) times[index]?.push(microseconds)
    }
  }
  const rows = contenders.map(({ name }, index) => {
    const each = times[index] ?? []
    const spread = `${Math.min(...each).toFixed(1)} to ${Math.max(...each).toFixed(1)}`
    return [name, median(each).toFixed(1), spread]
  })
  table([what, `µs a poll, median of ${runs}`, 'from, to'], rows)
}
