import { describe, it } from 'vitest'
import { backendContract } from '../../src/testing/backend-contract.ts'
import { sharedCluster } from './local-cluster.ts'

describe('a cluster of two agents fulfils the contract of backends', () => {
  const connect = sharedCluster({ agents: 2, cores: 1 })
  backendContract(it, () => connect())
})
