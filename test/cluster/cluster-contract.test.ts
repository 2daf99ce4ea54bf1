import { describe, expect, it } from 'vitest'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { backendContract } from '../../src/testing/backend-contract.ts'
import { sharedCluster } from './local-cluster.ts'

describe('a cluster of two agents fulfils the contract of backends', () => {
  const connect = sharedCluster({ agents: 2, cores: 1 })
  backendContract(it, () => connect())

  it('a failed program keeps its output, also where it is too large for a message', async () => {
    await using session = new Session([await connect()])
    const write = (bytes: number): string => `head -c ${bytes} /dev/zero | tr '\\0' x`
    const run = (script: string): ComputeTask =>
      new ComputeTask({ executable: 'sh', arguments: ['-c', script] })
    const little = run('echo out; echo error >&2; exit 4')
    const much = run(`${write(131_072)}; ${write(140_000)} >&2; exit 5`)
    await session.submitTasks([little, much])
    await session.waitTasks([little, much])
    expect([little.stdout, little.stderr, little.exitCode]).toEqual(['out\n', 'error\n', 4])
    expect(little.error).toMatchObject({ name: 'ExecutableFailedError', stdout: 'out\n' })
    expect([much.stdout, much.exitCode]).toEqual(['x'.repeat(131_072), 5])
    expect(much.stderr).toMatch(/^x{65536}\n\[\.\.\. 8928 bytes left out \.\.\.\]\nx{65536}$/)
    expect([much.stdoutTruncated, much.stderrTruncated]).toEqual([false, true])
    expect(much.error).toMatchObject({ stderr: 'x'.repeat(16_384), exitCode: 5 })
  })
})
