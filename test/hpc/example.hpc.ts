import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { describe, expect } from 'vitest'
import { expectedOutput, firstDifference } from '../../scripts/example-output.ts'
import { startProgram } from '../cli/run-command.ts'
import { needs, requireCommand } from '../require.ts'
import { createLauncher } from './launcher.ts'
import { sharedSlurm, slurmNeeds } from './slurm.ts'

const example = fileURLToPath(new URL('../../examples/13-anywhere.ts', import.meta.url))

describe('one workflow on every backend', () => {
  const slurm = sharedSlurm()

  needs(...slurmNeeds, requireCommand('nats-server'))(
    'an example prints the same on threads, on a cluster and on the nodes of a job',
    async () => {
      const { start } = createLauncher(await slurm())
      const ends = {
        local: await startProgram(example, []).ended,
        cluster: await startProgram(example, ['cluster']).ended,
        hpc: await start('--nodes', '2', '--time', '10', example, 'hpc').ended,
      }
      const promised = expectedOutput(readFileSync(example, 'utf8')) ?? []
      expect(promised).toHaveLength(4)
      for (const [where, { code, stdout, stderr }] of Object.entries(ends)) {
        expect([where, code, firstDifference(promised, stdout), stderr]).toMatchObject([
          where,
          0,
          undefined,
          expect.any(String),
        ])
      }
    },
  )
})
