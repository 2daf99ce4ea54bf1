import { execFile } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { connect } from '@nats-io/transport-node'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { parse } from 'yaml'
import { ClusterBackend } from '../../src/cluster/cluster-backend.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { runHere } from '../cli/run-command.ts'
import { startAgentOf, startTestCluster } from './agents.ts'
import { createCertificates } from './certificates.ts'
import { echo } from './fixtures/value-tasks.ts'
import { freePort } from '../free-port.ts'
import { RestartableServer } from './restartable-server.ts'
import { token } from './test-token.ts'

const root = fileURLToPath(new URL('../../', import.meta.url))

/** The code block of docs/cluster.md that begins with this text. */
function blockOf(start: string): string {
  const documents = readFileSync(new URL('../../docs/cluster.md', import.meta.url), 'utf8')
  const blocks = [...documents.matchAll(/^```\w*\n(.*?)^```$/gms)].map(([, block = '']) => block)
  const found = blocks.filter((block) => block.startsWith(start))
  expect(found).toHaveLength(1)
  return found[0] ?? ''
}

/** The words as a shell splits them, without quotes or variables. */
const toArguments = (line: string): string[] =>
  line.replaceAll('"$POD_NAME"', 'pod-1').trim().split(/\s+/)

/** All options are known: what is missing is the token's file, which is looked for last. */
async function expectParsed(line: string): Promise<void> {
  const [command, ...args] = toArguments(line.slice(line.indexOf('.bin/tutti')))
  expect(command).toBe('.bin/tutti')
  const at = args.indexOf('--token-file') + 1
  const missing = args.with(at, '/nowhere/token')
  const { code, stderr } = await runHere(process.cwd(), [...missing])
  expect(stderr).toMatch(/^ValueError {2}--token-file: \/nowhere\/token cannot be read/)
  expect(code).toBe(2)
}

describe('docs/cluster.md', () => {
  it('docs/cluster.md has an example that runs as it is written', async () => {
    const cluster = await startTestCluster()
    await cluster.agent('only', '--cores', '1', '--label', 'disk=ssd')
    const folder = mkdtempSync(join(tmpdir(), 'tutti-document-'))
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
    mkdirSync(join(folder, 'node_modules'))
    symlinkSync(root, join(folder, 'node_modules', 'tutti'), 'dir')
    writeFileSync(join(folder, 'package.json'), '{ "type": "module" }')
    writeFileSync(join(folder, 'cluster.token'), token, { mode: 0o600 })
    writeFileSync(join(folder, 'simulate.ts'), blockOf('// simulate.ts'))
    const main = blockOf('// main.ts').replace('nats://127.0.0.1:4222', cluster.server.url)
    writeFileSync(join(folder, 'main.ts'), main)
    const { stdout } = await promisify(execFile)(process.execPath, ['main.ts'], { cwd: folder })
    let state = 42
    for (let step = 0; step < 1_000_000; step++) state = (state * 1_103_515_245 + 12_345) % 2 ** 31
    expect(stdout).toBe(`${state}\n`)
  })

  it('docs/cluster.md has permissions that suffice for a session, and for no more', async () => {
    const { ca, cert, key } = createCertificates()
    const server = new RestartableServer(await freePort())
    const passwords = { DRIVER_PASSWORD: 'of the driver', AGENT_PASSWORD: 'of the agent' }
    for (const [name, value] of Object.entries(passwords)) vi.stubEnv(name, `"${value}"`)
    onTestFinished(() => void vi.unstubAllEnvs())
    const settings = blockOf('# /etc/nats/server.conf')
      .replace('0.0.0.0:4222', `127.0.0.1:${server.port}`)
      .replace('/var/lib/nats', join(server.folder, 'store'))
      .replace('/etc/nats/server.pem', cert)
      .replace('/etc/nats/server.key', key)
    writeFileSync(join(server.folder, 'server.conf'), settings)
    await server.start()
    const [passwordFile, ofAgent] = [join(server.folder, 'driver'), join(server.folder, 'agent')]
    writeFileSync(passwordFile, passwords.DRIVER_PASSWORD, { mode: 0o600 })
    writeFileSync(ofAgent, passwords.AGENT_PASSWORD, { mode: 0o600 })
    const user = ['--user', 'agent', '--password-file', ofAgent, '--tls-ca', ca]
    await startAgentOf(server.url, server.folder, 'only', '--cores', '1', ...user)
    const access = { servers: server.url, token, tls: { ca }, user: 'driver', passwordFile }
    const session = new Session([await ClusterBackend.create({ ...access, modules: 'bundle' })])
    onTestFinished(() => session.close())
    // Through the object store, as the bundle.
    const large = 'x'.repeat(2 ** 20)
    const task = new ComputeTask({ function: echo, args: [large] })
    await session.submitTasks([task])
    expect(await task).toBe(large)
    await session.close()
    await expect(ClusterBackend.create({ ...access, user: 'stranger' })).rejects.toMatchObject({
      message: expect.stringMatching(/authorization/i) as string,
    })
    const pass = passwords.DRIVER_PASSWORD
    const tls = { caFile: ca, checkServerIdentity: () => undefined }
    const client = await connect({ servers: server.url, user: 'driver', pass, tls })
    onTestFinished(() => client.close())
    const listen = async (): Promise<void> => {
      for await (const _ of client.subscribe('other.>')) break
    }
    await expect(listen()).rejects.toThrow(/permissions/i)
  })

  it('docs/cluster.md has a systemd unit whose command line is understood', async () => {
    const unit = blockOf('# /etc/systemd/system/tutti-agent.service')
    await expectParsed(/^ExecStart=(.+)$/m.exec(unit)?.[1] ?? '')
  })

  it('docs/cluster.md has a Kubernetes Deployment whose command line is understood', async () => {
    const { spec } = parse(blockOf('apiVersion: apps/v1')) as Deployment
    const { containers, volumes } = spec.template.spec
    const [{ command, args, volumeMounts }] = containers
    expect(spec.selector.matchLabels).toEqual(spec.template.metadata.labels)
    expect(volumeMounts.map(({ name }) => name)).toEqual(volumes.map(({ name }) => name))
    expect(command).toEqual(['/bin/sh', '-c'])
    expect(args).toHaveLength(1)
    await expectParsed(args[0] ?? '')
  })
})

interface Deployment {
  readonly spec: {
    readonly selector: { readonly matchLabels: object }
    readonly template: {
      readonly metadata: { readonly labels: object }
      readonly spec: {
        readonly containers: readonly [
          {
            readonly command: readonly string[]
            readonly args: readonly string[]
            readonly volumeMounts: readonly { readonly name: string }[]
          },
        ]
        readonly volumes: readonly { readonly name: string }[]
      }
    }
  }
}
