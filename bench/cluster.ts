/**
 * The cost of the cluster backend: two agents on this machine compared with the local backend with
 * two workers, BullMQ on Redis, a bare NATS request, and more agents. Each measurement is a
 * process; runs are interleaved, and medians are shown. Needs `nats-server` and `redis-server`, and
 * npm once.
 */

import { type ComparedRow, compareModes } from './harness.ts'

const runs = Number(process.env['RUNS'] ?? 5)

const rows: readonly ComparedRow[] = [
  ['no-op functions a second, against two local workers', 'cluster', 'local', 'tasks_per_s', '0.6'],
  ['the same against BullMQ on Redis', 'cluster', 'bullmq', 'tasks_per_s', '10'],
  ['the same, CPU of all processes (µs)', 'cluster', 'bullmq', 'total_us', '≤ 0.1'],
  ["driver's CPU a function (µs), against local", 'cluster', 'local', 'cpu_us', '≤ 1.0'],
  ["driver's CPU (µs), 64 stub agents against 2", 'agents64', 'agents2', 'cpu_us', '≤ 1.5'],
  ['one at a time, p50 (ms), against a bare request', 'oneAtATime', 'bareRequest', 'p50_ms', '≤ 2'],
  ['a local task after a pause, p50 (ms)', 'localAfterPause', 'bareRequest', 'p50_ms', '-'],
  ['/bin/true a second, against local', 'clusterPrograms', 'localPrograms', 'tasks_per_s', '0.8'],
  ["driver's peak RSS (MB), 1,000,000 tasks", 'clusterMemory', 'localMemory', 'peak_mb', '≤ 1.2'],
]

compareModes(new URL('cluster-modes.ts', import.meta.url), 'cluster', rows, runs)
