import { showFromMemory } from '../cli/reading/memory-output.ts'
import { needs } from '../require.ts'
import { launchedOnSlurm } from './launched.ts'
import { slurmNeeds } from './slurm.ts'

const { create } = launchedOnSlurm()

needs(...slurmNeeds)(
  'logs: output in the memory of a node of an allocation is shown while its program runs',
  async () => showFromMemory(await create()),
)
