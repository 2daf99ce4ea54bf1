import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, vi } from 'vitest'
import { HpcBackend } from '../../src/hpc/hpc-backend.ts'
import { setStartMethod } from '../../src/hpc/start-method.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { networkNeeds, TestNetwork } from '../cluster/hosts.ts'
import { needs, requireCommand } from '../require.ts'
import { ranksTask } from './ranks/mpi.ts'
import { writeRemoteShell } from './remote-shell.ts'

const commands = ['mpicc', 'mpirun', 'unshare'].map(requireCommand)

needs(...networkNeeds, ...commands)(
  'hosts without a scheduler run tasks and MPI programs by a remote shell',
  async () => {
    const folder = mkdtempSync(join(tmpdir(), 'tutti-hosts-'))
    const network = new TestNetwork()
    onTestFinished(() => {
      network.close()
      vi.unstubAllEnvs()
      rmSync(folder, { recursive: true, force: true })
    })
    const there = [network.addHost(), network.addHost()]
    const hosts = there.map(({ address }) => address)
    const launch = join(folder, 'launch.json')
    writeFileSync(launch, JSON.stringify({ method: 'hosts', hosts }))
    vi.stubEnv('TUTTI_LAUNCH', launch)
    vi.stubEnv('TUTTI_REMOTE_SHELL', writeRemoteShell(there))
    setStartMethod('hosts')
    const backend = await HpcBackend.create()
    expect(backend.nodes.map(({ nodeId }) => nodeId).toSorted()).toEqual(hosts)
    await using session = new Session([backend])
    const task = new ComputeTask({ executable: 'echo', arguments: ['there'] })
    const ranks = ranksTask(folder, 'end', { resources: { ranks: 2, ranksPerNode: 1 } })
    const failing = ranksTask(folder, `abort ${join(folder, 'abort')} 1 7`, {
      resources: { ranks: 2, ranksPerNode: 1 },
    })
    await session.submitTasks([task, ranks, failing])
    expect(await task).toMatchObject({ stdout: 'there\n' })
    await session.waitTasks([ranks, failing])
    const line = (rank: number): string => `rank ${rank} of 2 on h${rank}, sum 1, gpus \n`
    expect([ranks.error, ranks.stdout]).toEqual([null, line(0) + line(1)])
    expect(failing.error).toMatchObject({ exitCode: 7, rank: 1 })
  },
)
