/**
 * The speed of the local backend: functions compared with piscina and tinypool, latency with a bare
 * postMessage, programs with plain spawn, and memory of a million tasks. Every run is a separate
 * process; runs are interleaved and medians compared.
 */

import { measureModes, table } from './harness.ts'
import type { modes } from './local-modes.ts'

const runs = Number(process.env['RUNS'] ?? 5)
const wanted = process.argv[2] ?? 'all'

function measure(names: readonly (keyof typeof modes)[]) {
  return measureModes(new URL('local-modes.ts', import.meta.url), names, runs)
}

const times = (a: number, b: number): string => `${(a / b).toFixed(2)} x`
const share = (a: number, b: number): string => `1/${(b / a).toFixed(1)}`

function functions(): void {
  const found = measure([
    'piscina',
    'tinypool',
    'functions',
    'telemetry',
    'functionsTelemetry',
    'functionsResults',
  ])
  const rate = (name: string): number => found(name, 'perSecond')
  table(
    ['no-op functions, 2 threads', 'tasks/s', 'ratio'],
    [
      ['piscina', Math.round(rate('piscina')), ''],
      ['tinypool', Math.round(rate('tinypool')), ''],
      [
        'session, telemetry off',
        Math.round(rate('functions')),
        `${times(rate('functions'), rate('piscina'))} piscina, ` +
          `${times(rate('functions'), rate('tinypool'))} tinypool`,
      ],
      ['telemetry alone (bench/telemetry.ts)', Math.round(rate('telemetry')), ''],
      [
        'session, full telemetry and checkpoint',
        Math.round(rate('functionsTelemetry')),
        `${times(rate('functionsTelemetry'), rate('telemetry'))} telemetry alone`,
      ],
      [
        'the same, with all results kept',
        Math.round(rate('functionsResults')),
        `${times(rate('functionsResults'), rate('functionsTelemetry'))} without them`,
      ],
    ],
  )
}

function latency(): void {
  const found = measure(['bareLatency', 'latency', 'latencyTelemetry'])
  const micros = (name: string): number => found(name, 'p50Micros')
  table(
    ['one task at a time', 'p50 (µs)', 'ratio'],
    [
      ['bare postMessage round trip', micros('bareLatency').toFixed(1), ''],
      ['session', micros('latency').toFixed(1), times(micros('latency'), micros('bareLatency'))],
      [
        'session, full telemetry and checkpoint',
        micros('latencyTelemetry').toFixed(1),
        `${times(micros('latencyTelemetry'), micros('latency'))} without telemetry`,
      ],
    ],
  )
}

function programs(): void {
  const found = measure([
    'spawn',
    'programs',
    'idleBeside',
    'spawn16',
    'programs16',
    'spawn64',
    'programs64',
    'spawnLarge',
    'programsLarge',
  ])
  const row = (title: string, name: string, base?: string) => [
    title,
    Math.round(found(name, 'perSecond')),
    base === undefined ? '' : times(found(name, 'perSecond'), found(base, 'perSecond')),
    found(name, 'delayP99Ms').toFixed(2),
    base === undefined ? '' : share(found(name, 'delayP99Ms'), found(base, 'delayP99Ms')),
  ]
  table(
    ['/bin/true', 'per s', 'ratio', 'loop delay p99 (ms)', 'share'],
    [
      row('plain spawn, one per core at once', 'spawn'),
      row('session', 'programs', 'spawn'),
      ['an idle process beside it', '', '', found('idleBeside', 'delayP99Ms').toFixed(2), ''],
      row('plain spawn, 16 at once', 'spawn16'),
      row('session', 'programs16', 'spawn16'),
      row('plain spawn, 64 at once', 'spawn64'),
      row('session', 'programs64', 'spawn64'),
      row('plain spawn, 1 GB touched', 'spawnLarge'),
      row('session, 1 GB touched', 'programsLarge', 'spawnLarge'),
    ],
  )
}

function memory(): void {
  const found = measure(['million', 'millionTelemetry'])
  table(
    ['1,000,000 tasks through NoopBackend', 'peak RSS (MB)', 'tasks/s'],
    [
      [
        'telemetry off, references dropped',
        Math.round(found('million', 'peakMb')),
        Math.round(found('million', 'perSecond')),
      ],
      [
        'full telemetry and checkpoint, references dropped',
        Math.round(found('millionTelemetry', 'peakMb')),
        Math.round(found('millionTelemetry', 'perSecond')),
      ],
    ],
  )
}

const questions: Readonly<Record<string, () => void>> = { functions, latency, programs, memory }
for (const [name, ask] of Object.entries(questions)) if (wanted === 'all' || wanted === name) ask()
