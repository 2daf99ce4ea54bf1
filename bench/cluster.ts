/**
 * What does the cluster cost? Two agents on this machine against the local backend with two
 * workers, a bare request of NATS, and more agents. Each measurement is a process; the runs are
 * interleaved, medians.
 */

import { measureModes, table } from './harness.ts'

const runs = Number(process.env['RUNS'] ?? 5)
const modes = ['local', 'cluster', 'localPrograms', 'clusterPrograms', 'oneAtATime', 'bareRequest']
const program = new URL('cluster-modes.ts', import.meta.url)
const of = measureModes(program, [...modes, 'agents2', 'agents16'], runs)

const round = (value: number, digits = 0): number => Number(value.toFixed(digits))
const ratio = (one: string, other: string, key: string): number =>
  round(of(one, key) / of(other, key), 2)

const rows = [
  ['no-op functions a second, against two local workers', 'cluster', 'local', 'tasks_per_s'],
  ["driver's CPU a function (µs), against the local session", 'cluster', 'local', 'cpu_us'],
  ['/bin/true a second, against local', 'clusterPrograms', 'localPrograms', 'tasks_per_s'],
  ['one at a time, p50 (ms), against a bare request', 'oneAtATime', 'bareRequest', 'p50_ms'],
  ["driver's CPU a function (µs), 16 agents against 2", 'agents16', 'agents2', 'cpu_us'],
] as const

table(
  ['', 'cluster', 'baseline', 'ratio'],
  rows.map(([text, one, other, key]) => [
    text,
    round(of(one, key), 2),
    round(of(other, key), 2),
    ratio(one, other, key),
  ]),
)
