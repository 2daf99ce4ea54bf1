import { hostname } from 'node:os'
import { describe, expect, it, onTestFinished } from 'vitest'
import { startAgent } from '../../src/cluster/agent/agent-options.ts'
import { ClusterBackend } from '../../src/cluster/cluster-backend.ts'
import { usableMemoryMb } from '../../src/backends/local/node-capacity.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { eventually } from '../eventually.ts'
import { token } from './test-token.ts'

const servers = 'nats://127.0.0.1:4222'

describe('the options of a cluster', () => {
  it.each([
    ['clock', { clock: 5 }, 'clock', 'an object with now()'],
    ['log', { log: {} }, 'log', 'an object with warn()'],
    ['a label without a name', { largestNode: { labels: { '': 'x' } } }, 'largestNode.labels', ''],
    ['a server without a host', { servers: 'nats://' }, 'servers', 'nats://host:4222'],
    ['a list with a bad server', { servers: [servers, 'tls://'] }, 'servers[1]', 'nats://host'],
  ])('are refused by name: %s', async (_, options, field, text) => {
    await expect(
      ClusterBackend.create({ servers, token, ...(options as object) }),
    ).rejects.toMatchObject({ name: 'ValueError', field, message: expect.stringContaining(text) })
  })

  it.each([
    ['clock', { clock: 5 }, 'clock'],
    ['a label without a name', { labels: { '': 'x' } }, 'labels'],
    ['a work folder that is no text', { workDir: 7 }, 'workDir'],
  ])('are refused by name at an agent: %s', async (_, options, field) => {
    await expect(startAgent({ servers, token, ...(options as object) })).rejects.toMatchObject({
      name: 'ValueError',
      field,
    })
  })

  it('are refused by name at a local cluster', async () => {
    await expect(ClusterBackend.local({ clock: 5 as never })).rejects.toMatchObject({
      name: 'ValueError',
      field: 'clock',
    })
  })

  it('a task does not ask for a label without a name', () => {
    const ask = (): unknown =>
      new ComputeTask({ executable: '/bin/true', resources: { labels: { '': 'x' } } })
    expect(ask).toThrow('resources.labels')
  })
})

describe('ClusterBackend.local', () => {
  it('divides the memory of the machine by its agents', async () => {
    const backend = await ClusterBackend.local({ agents: 2, cores: 1 })
    onTestFinished(() => backend.close())
    const memoryMb = Math.floor(usableMemoryMb() / 2)
    const capacity = expect.objectContaining({ cores: 1, memoryMb }) as object
    await eventually(() => {
      const nodes = backend.nodes.map((node) => [node.nodeId, node.capacity] as const)
      expect(Object.fromEntries(nodes)).toEqual({
        [`${hostname()}-1`]: capacity,
        [`${hostname()}-2`]: capacity,
      })
    })
  })
})
