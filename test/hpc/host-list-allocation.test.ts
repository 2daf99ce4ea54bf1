import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, vi } from 'vitest'
import { HpcBackend } from '../../src/hpc/hpc-backend.ts'
import { setStartMethod } from '../../src/hpc/start-method.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { networkNeeds, TestNetwork } from '../cluster/hosts.ts'
import { needs } from '../require.ts'

type Host = ReturnType<TestNetwork['addHost']>

/** A remote shell as `ssh`: a host, and one line for its shell. */
function writeShell(folder: string, hosts: readonly Host[]): string {
  const cases = hosts.map(({ address, enter }) => `${address}) ${enter.join(' ')} sh -c "$2";;`)
  const file = join(folder, 'remote-shell')
  writeFileSync(file, `#!/bin/sh\ncase "$1" in\n${cases.join('\n')}\n*) exit 255;;\nesac\n`)
  chmodSync(file, 0o755)
  return file
}

needs(...networkNeeds)('hosts without a scheduler run tasks by a remote shell', async () => {
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
  vi.stubEnv('TUTTI_REMOTE_SHELL', writeShell(folder, there))
  setStartMethod('hosts')
  const backend = await HpcBackend.create()
  expect(backend.nodes.map(({ nodeId }) => nodeId).toSorted()).toEqual(hosts)
  await using session = new Session([backend])
  const task = new ComputeTask({ executable: 'echo', arguments: ['there'] })
  await session.submitTasks([task])
  expect(await task).toMatchObject({ stdout: 'there\n' })
})
