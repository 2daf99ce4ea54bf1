import { describe } from 'vitest'
import { backendContract } from '../../src/testing/backend-contract.ts'
import { needs } from '../require.ts'
import { launchedOnSlurm } from './launched.ts'
import { slurmNeeds } from './slurm.ts'

describe('four nodes of Slurm fulfil the contract of backends', () => {
  const { create } = launchedOnSlurm()
  backendContract(needs(...slurmNeeds), () => create())
})
