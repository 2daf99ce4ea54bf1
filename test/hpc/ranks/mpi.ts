/** The MPI program of the tests, compiled where they run. */

import { execFileSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect } from 'vitest'
import type { ExecutableOptions } from '../../../src/tasks/compute-options.ts'
import { ComputeTask } from '../../../src/tasks/compute-task.ts'
import { requireCommand } from '../../require.ts'
import { slurmNeeds } from '../slurm.ts'

export const mpiNeeds = [...slurmNeeds, requireCommand('mpicc')]

/** Its path in this folder. */
export function compileRanks(folder: string): string {
  const program = join(folder, 'ranks')
  const source = fileURLToPath(new URL('../fixtures/ranks.c', import.meta.url))
  if (!existsSync(program)) execFileSync('mpicc', ['-o', program, source])
  return program
}

type Options = Omit<ExecutableOptions, 'executable'>

/**
 * With all transports, one in twelve programs of Debian's Open MPI 4.1.4 crashes or hangs while it
 * starts, when several start together on nodes that are namespaces; a bare `srun` does so too.
 */
export const transports = {
  OMPI_MCA_pml: 'ob1',
  OMPI_MCA_btl: 'tcp,self',
  PMIX_MCA_gds: 'hash',
}

/** Resolves when each rank of a task has made its file; fails when the task has ended. */
export async function ranksWait(task: ComputeTask, file: string, ranks: number): Promise<void> {
  const made = (): number =>
    Array.from({ length: ranks }, (_, rank) => `${file}.${rank}`).filter((one) => existsSync(one))
      .length
  await expect.poll(() => task.error?.message ?? made()).toBe(ranks)
}

export const ranksTask = (folder: string, mode: string, options: Options): ComputeTask =>
  new ComputeTask({
    ...options,
    executable: compileRanks(folder),
    arguments: mode.split(' '),
    env: transports,
  })
