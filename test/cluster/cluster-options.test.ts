import { hostname, networkInterfaces } from 'node:os'
import { fileURLToPath } from 'node:url'
import { describe, expect, it, onTestFinished } from 'vitest'
import { startAgent } from '../../src/cluster/io/agent/agent-options.ts'
import { ClusterBackend } from '../../src/cluster/cluster-backend.ts'
import { usableMemoryMb } from '../../src/backends/local/node-capacity.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { startProgram } from '../cli/run-command.ts'
import { token } from './test-token.ts'

const servers = 'nats://127.0.0.1:4222'

const ownAddresses = (): string[] =>
  Object.values(networkInterfaces()).flatMap((found = []) => found.map(({ address }) => address))

describe('the options of a cluster', () => {
  it.each([
    ['clock', { clock: 5 }, 'clock', 'an object with now()'],
    ['log', { log: {} }, 'log', 'an object with warn()'],
    ['a label without a name', { largestNode: { labels: { '': 'x' } } }, 'largestNode.labels', ''],
    ['a server without a host', { servers: 'nats://' }, 'servers', 'nats://host:4222'],
    ['no TLS in place of its files', { tls: null }, 'tls', 'an object'],
    ['a list with a bad server', { servers: [servers, 'tls://'] }, 'servers[1]', 'nats://host'],
  ])('wrong options of a cluster are refused by name: %s', async (_, options, field, text) => {
    await expect(
      ClusterBackend.create({ servers, token, ...(options as object) }),
    ).rejects.toMatchObject({ name: 'ValueError', field, message: expect.stringContaining(text) })
  })

  it.each([
    ['clock', { clock: 5 }, 'clock'],
    ['a label without a name', { labels: { '': 'x' } }, 'labels'],
    ['a work folder that is no text', { workDir: 7 }, 'workDir'],
    ['a rule that is no list', { allow: null }, 'allow'],
    ['a rule that is a number', { allow: 5 }, 'allow'],
  ])('wrong options of an agent are refused by name: %s', async (_, options, field) => {
    await expect(startAgent({ servers, token, ...(options as object) })).rejects.toMatchObject({
      name: 'ValueError',
      field,
    })
  })

  it('unencrypted messages cause one warning, however many backends there are', async () => {
    const warnings: string[] = []
    const log = { warn: (code: string): void => void warnings.push(code) }
    for (const port of [1, 2]) {
      // Nobody listens there, on an address of this machine that does not look like one.
      const other = `nats://[::ffff:127.0.0.1]:${port}`
      const creating = ClusterBackend.create({ servers: other, token, plaintext: true, log })
      await expect(creating).rejects.toMatchObject({ code: 'BrokerUnavailableError' })
    }
    expect(warnings).toEqual(['PlaintextBroker'])
  })

  it.each([null, 5, 'text', [], true])(
    'wrong options of a cluster are a ValueError: %j',
    async (options) => {
      for (const at of ['local', 'create', 'agent'] as const) {
        const error = { name: 'ValueError', field: 'options' }
        const given = options as never
        const started = at === 'agent' ? startAgent(given) : ClusterBackend[at](given)
        await expect(started).rejects.toMatchObject(error)
      }
    },
  )

  it('a server at an address of this machine needs no TLS', async () => {
    const codes = new Map<string, unknown>()
    for (const address of ownAddresses()) {
      const host = address.includes(':') ? `[${address}]` : address
      const creating = ClusterBackend.create({ servers: `nats://${host}:1`, token })
      codes.set(address, await creating.catch(({ code }: { code: unknown }) => code))
    }
    // Other tests add and remove interfaces meanwhile.
    const kept = ownAddresses().filter((address) => codes.has(address))
    expect(kept).toContain('127.0.0.1')
    expect(new Set(kept.map((address) => codes.get(address)))).toEqual(
      new Set(['BrokerUnavailableError']),
    )
    // An address for documents, which no machine has.
    await expect(ClusterBackend.create({ servers: 'nats://192.0.2.1:1', token })).rejects.toThrow(
      '192.0.2.1:1 is not on this machine and needs TLS',
    )
  })

  it('wrong options of a local cluster are refused by name', async () => {
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
  it('ClusterBackend.local without the NATS client only says how to install it', async () => {
    const preload = new URL('fixtures/no-peers.ts', import.meta.url).href
    const program = fileURLToPath(new URL('fixtures/local-start.ts', import.meta.url))
    const started = startProgram(program, [], { NODE_OPTIONS: `--import ${preload}` })
    onTestFinished(() => void started.child.kill('SIGKILL'))
    const { stdout, stderr, code } = await started.ended
    expect([stderr, code]).toEqual(['', 0])
    expect(JSON.parse(stdout)).toEqual({
      code: 'PeerMissingError',
      hint: 'npm install @nats-io/transport-node @nats-io/jetstream',
    })
  })

  it('ClusterBackend.local divides the memory of the machine by its agents', async () => {
    const backend = await ClusterBackend.local({ agents: 2, cores: 1 })
    onTestFinished(() => backend.close())
    const memoryMb = Math.floor(usableMemoryMb() / 2)
    const capacity = expect.objectContaining({ cores: 1, memoryMb }) as object
    const nodes = backend.nodes.map((node) => [node.nodeId, node.capacity] as const)
    expect(Object.fromEntries(nodes)).toEqual({
      [`${hostname()}-1`]: capacity,
      [`${hostname()}-2`]: capacity,
    })
  })

  it('ClusterBackend.local starts a killed agent again, which runs further tasks', async () => {
    const warnings: string[] = []
    const log = { warn: (code: string, text: string) => void warnings.push(`${code}: ${text}`) }
    const session = new Session([await ClusterBackend.local({ agents: 1, cores: 1, log })])
    onTestFinished(() => session.close())
    // The launcher of the program is a child of the agent.
    const script = 'cut -d " " -f 4 /proc/$PPID/stat'
    const findAgent = async (): Promise<number> => {
      const task = new ComputeTask({ executable: '/bin/sh', arguments: ['-c', script] })
      await session.submitTasks([task])
      return Number((await task).stdout)
    }
    const killed = await findAgent()
    process.kill(killed, 'SIGKILL')
    expect(await findAgent()).not.toBe(killed)
    expect(warnings).toContain(`AgentLost: agent ${hostname()}-1: SIGKILL; it is started again`)
  })

  it('ClusterBackend.local has all of its agents when it resolves', async () => {
    const backend = await ClusterBackend.local({ agents: 4, cores: 1 })
    onTestFinished(() => backend.close())
    const names = backend.nodes.map(({ nodeId }) => nodeId).toSorted()
    expect(names).toEqual([1, 2, 3, 4].map((number) => `${hostname()}-${number}`))
  })
})
