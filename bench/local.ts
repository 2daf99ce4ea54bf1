/**
 * How fast is the local backend? Functions against piscina and tinypool, latency against a bare
 * postMessage, programs against plain spawn, memory of a million tasks. Every run is a process of
 * its
 * own; runs are interleaved and medians compared.
 */

import { execFileSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { median, table } from './harness.ts'
import type { Measured, modes } from './local-modes.ts'

const runs = Number(process.env['RUNS'] ?? 5)
const wanted = process.argv[2] ?? 'all'

function measure(names: readonly (keyof typeof modes)[]): Record<string, Measured> {
  const results = new Map<string, Measured[]>()
  for (let run = 0; run < runs; run++) {
    for (const name of names) {
      const program = fileURLToPath(new URL('local-modes.ts', import.meta.url))
      const output = execFileSync(process.execPath, ['--expose-gc', program, name], {
        encoding: 'utf8',
      })
      const list = results.get(name) ?? []
      list.push(JSON.parse(output.trim().split('\n').at(-1) ?? '') as Measured)
      results.set(name, list)
    }
  }
  const medians: Record<string, Measured> = {}
  for (const [name, list] of results) {
    const keys = Object.keys(list[0] ?? {}) as (keyof Measured)[]
    medians[name] = Object.fromEntries(
      keys.map((key) => [key, median(list.map((one) => one[key] ?? Number.NaN))]),
    )
  }
  return medians
}

const rate = (measured: Measured | undefined): number => measured?.perSecond ?? Number.NaN
const times = (a: number, b: number): string => `${(a / b).toFixed(2)} x`

function functions(): void {
  const found = measure(['piscina', 'tinypool', 'functions', 'telemetry', 'functionsTelemetry'])
  table(
    ['no-op functions, 2 threads', 'tasks/s', 'ratio'],
    [
      ['piscina', Math.round(rate(found['piscina'])), ''],
      ['tinypool', Math.round(rate(found['tinypool'])), ''],
      [
        'session, telemetry off',
        Math.round(rate(found['functions'])),
        `${times(rate(found['functions']), rate(found['piscina']))} piscina, ` +
          `${times(rate(found['functions']), rate(found['tinypool']))} tinypool`,
      ],
      ['telemetry alone (bench/telemetry.ts)', Math.round(rate(found['telemetry'])), ''],
      [
        'session, full telemetry and checkpoint',
        Math.round(rate(found['functionsTelemetry'])),
        `${times(rate(found['functionsTelemetry']), rate(found['telemetry']))} telemetry alone`,
      ],
    ],
  )
}

function latency(): void {
  const found = measure(['bareLatency', 'latency'])
  const micros = (name: string): number => found[name]?.p50Micros ?? Number.NaN
  table(
    ['one task at a time', 'p50 (µs)', 'ratio'],
    [
      ['bare postMessage round trip', micros('bareLatency').toFixed(1), ''],
      ['session', micros('latency').toFixed(1), times(micros('latency'), micros('bareLatency'))],
    ],
  )
}

function programs(): void {
  const found = measure(['spawn', 'programs', 'idleBeside', 'spawnLarge', 'programsLarge'])
  const row = (title: string, name: string, base?: string) => [
    title,
    Math.round(rate(found[name])),
    base === undefined ? '' : times(rate(found[name]), rate(found[base])),
    (found[name]?.delayP99Ms ?? Number.NaN).toFixed(2),
  ]
  table(
    ['/bin/true', 'per s', 'ratio', 'loop delay p99 (ms)'],
    [
      row('plain spawn, small process', 'spawn'),
      row('session', 'programs', 'spawn'),
      [
        'an idle process beside it',
        '',
        '',
        (found['idleBeside']?.delayP99Ms ?? Number.NaN).toFixed(2),
      ],
      row('plain spawn, 1 GB touched', 'spawnLarge'),
      row('session, 1 GB touched', 'programsLarge', 'spawnLarge'),
    ],
  )
}

function memory(): void {
  const found = measure(['million'])
  table(
    ['1,000,000 tasks through NoopBackend', 'peak RSS (MB)', 'tasks/s'],
    [
      [
        'telemetry off, references dropped',
        Math.round(found['million']?.peakMb ?? 0),
        Math.round(rate(found['million'])),
      ],
    ],
  )
}

const questions: Readonly<Record<string, () => void>> = { functions, latency, programs, memory }
for (const [name, ask] of Object.entries(questions)) if (wanted === 'all' || wanted === name) ask()
