/** A test file as a script that `tutti launch` has started, with the nodes of one job. */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, vi } from 'vitest'
import { HpcBackend } from '../../src/hpc/hpc-backend.ts'
import type { HpcBackendOptions } from '../../src/hpc/hpc-options.ts'
import { setStartMethod } from '../../src/hpc/start-method.ts'
import { eventually } from '../eventually.ts'
import { sharedSlurm, type TestSlurm } from './slurm.ts'

/** Submits a job that holds nodes until it is canceled; resolves when it runs. */
async function holdNodes({ run }: TestSlurm, ...options: string[]): Promise<string> {
  const all = ['--parsable', '-o', '/dev/null', '-t', '60', ...options]
  const id = (await run('sbatch', ...all, '--wrap', 'sleep 100000')).trim()
  await eventually(async () => {
    expect(await run('squeue', '-h', '-j', id, '-o', '%T')).toBe('RUNNING\n')
  })
  return id
}

export interface Launched {
  readonly slurm: () => Promise<TestSlurm>
  /** The job, once it is there. */
  readonly jobId: () => Promise<string>
  /** For temporary files, here and on the nodes; holds `launch.json`. */
  readonly folder: string
  /** The variables of a script with four nodes, which this process has from then on. */
  readonly enter: () => Promise<void>
  /** Another backend on the same nodes. */
  readonly create: (options?: HpcBackendOptions) => Promise<HpcBackend>
}

/** One cluster and one job for all tests of a file. */
export function launchedOnSlurm(...options: readonly string[]): Launched {
  const slurm = sharedSlurm()
  const folder = mkdtempSync(join(tmpdir(), 'tutti-launched-'))
  let holding: Promise<string> | null = null
  const jobId = async (): Promise<string> => {
    const cluster = await slurm()
    holding ??= holdNodes(cluster, '-N4', '--exclusive', '--mem=0', '--gres=gpu:2', ...options)
    return holding
  }
  afterAll(() => {
    rmSync(folder, { recursive: true, force: true })
    vi.unstubAllEnvs()
  })
  const enter = async (): Promise<void> => {
    const cluster = await slurm()
    const file = join(folder, 'launch.json')
    writeFileSync(file, JSON.stringify({ method: 'slurm', jobId: await jobId() }))
    vi.stubEnv('TUTTI_LAUNCH', file)
    vi.stubEnv('SLURM_CONF', cluster.conf)
    vi.stubEnv('TMPDIR', folder)
  }
  return {
    slurm,
    jobId,
    folder,
    enter,
    async create(given = {}) {
      await enter()
      setStartMethod('slurm')
      return HpcBackend.create(given)
    },
  }
}
