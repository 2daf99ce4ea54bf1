/**
 * The cost of the HPC backend: four nodes of a Slurm cluster on this machine, compared with Slurm
 * steps, the cluster backend, and bare commands. Each measurement is a process; runs are
 * interleaved, and medians are shown. Needs root and what `scripts/setup.mjs --services` installs.
 */

import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type ComparedRow, compareModes } from './harness.ts'

const runs = Number(process.env['RUNS'] ?? 3)

const rows: readonly ComparedRow[] = [
  ['/bin/true a second, against a step each', 'programs', 'steps', 'tasks_per_s', '8'],
  [
    'no-op functions a second, against a cluster',
    'functions',
    'clusterFunctions',
    'tasks_per_s',
    '0.9',
  ],
  ['MPI task of 4 ranks (ms), against srun', 'rankTask', 'bareRanks', 'ms', '≤ 1.2'],
  ['launch to first task (ms), against srun -N4 and node', 'launch', 'bareStart', 'ms', '≤ 3'],
  ['launch to first task (ms), against bare processes of Node', 'launch', 'bareLaunch', 'ms', ''],
  ['placement (µs a task), 10,000 nodes against 10', 'nodes10000', 'nodes10', 'us', '≤ 2'],
]

const run = (command: string, ...args: readonly string[]): string =>
  execFileSync(command, args, { encoding: 'utf8' }).trim()
const slurm = fileURLToPath(new URL('../scripts/slurm.mjs', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'tutti-bench-hpc-'))
const up = run(process.execPath, slurm, 'up', '--parent', String(process.pid))
try {
  process.env['SLURM_CONF'] = up.replace(/^SLURM_CONF=/, '')
  const hold = ['-N4', '--exclusive', '--mem=0', '--gres=gpu:2', '-t', '60', '-o', '/dev/null']
  const job = run('sbatch', '--parsable', ...hold, '--wrap', 'sleep 100000')
  while (run('squeue', '-h', '-j', job, '-o', '%T') !== 'RUNNING') run('sleep', '0.1')
  process.env['BENCH_JOB'] = job
  process.env['BENCH_RANKS'] = join(folder, 'ranks')
  process.env['TUTTI_LAUNCH'] = join(folder, 'launch.json')
  writeFileSync(process.env['TUTTI_LAUNCH'], JSON.stringify({ method: 'slurm', jobId: job }))
  const source = fileURLToPath(new URL('../test/hpc/fixtures/ranks.c', import.meta.url))
  run('mpicc', '-o', join(folder, 'ranks'), source)
  process.chdir(folder)
  compareModes(new URL('hpc-modes.ts', import.meta.url), 'HPC', rows, runs)
} finally {
  run(process.execPath, slurm, 'down', process.env['SLURM_CONF'] ?? '')
  rmSync(folder, { recursive: true, force: true })
}
