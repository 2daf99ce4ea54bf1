import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { nkeys } from '@nats-io/transport-node'
import { ClusterBackend } from '../../src/cluster/cluster-backend.ts'
import type { BrokerOptions } from '../../src/cluster/cluster-options.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { runCommand } from '../cli/run-command.ts'
import { startAgentOf } from './agents.ts'
import { work } from './fixtures/cluster-tasks.ts'
import { freePort, RestartableServer, type ServerOptions } from './restartable-server.ts'
import { token } from './test-token.ts'

async function startServer(options: ServerOptions): Promise<RestartableServer> {
  const server = new RestartableServer(await freePort(), options)
  await server.start()
  return server
}

/** A task runs: agent and driver both reach the broker, each with what it was given. */
async function expectWork(
  server: RestartableServer,
  agentArguments: readonly string[],
  access: Partial<BrokerOptions>,
  url = server.url,
): Promise<void> {
  await startAgentOf(url, server.folder, 'only', '--cores', '1', ...agentArguments)
  const session = new Session([await ClusterBackend.create({ servers: url, token, ...access })])
  onTestFinished(() => session.close())
  const begun = join(server.folder, 'begun')
  const task = new ComputeTask({ function: work, args: [begun, 'reached', 0] })
  await session.submitTasks([task])
  expect(await task).toBe('reached')
}

/** An authority of our own, and a certificate of it for the loopback address. */
function createCertificates(): {
  readonly ca: string
  readonly cert: string
  readonly key: string
} {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-tls-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const file = (name: string): string => join(folder, name)
  const openssl = (...args: readonly string[]): void => {
    execFileSync('openssl', args, { stdio: ['ignore', 'ignore', 'pipe'] })
  }
  const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes']
  const ca = ['-keyout', file('ca.key'), '-out', file('ca.pem'), '-subj', '/CN=test authority']
  openssl('req', '-x509', ...newKey, '-days', '2', ...ca)
  const request = ['-keyout', file('key.pem'), '-out', file('request.pem'), '-subj', '/CN=broker']
  openssl('req', '-new', ...newKey, ...request)
  writeFileSync(file('names'), 'subjectAltName=IP:127.0.0.1')
  const signing = ['-CA', file('ca.pem'), '-CAkey', file('ca.key'), '-CAcreateserial']
  const result = ['-in', file('request.pem'), '-out', file('cert.pem'), '-extfile', file('names')]
  openssl('x509', '-req', '-days', '2', ...signing, ...result)
  return { ca: file('ca.pem'), cert: file('cert.pem'), key: file('key.pem') }
}

describe('the broker is reached', () => {
  it('with TLS and an authority of our own; without the authority it is refused', async () => {
    const { ca, cert, key } = createCertificates()
    const settings = `tls { cert_file: "${cert}", key_file: "${key}" }`
    const server = await startServer({ settings })
    await expectWork(server, ['--tls-ca', ca], { tls: { ca } })
    await expect(
      ClusterBackend.create({ servers: server.url, token, tls: {} }),
    ).rejects.toMatchObject({ code: 'BrokerUnavailableError' })
  })

  it('with a user and a password; such a server refuses the token', async () => {
    const server = await startServer({
      authorization: 'authorization { users: [{ user: "ann", password: "a long password" }] }',
    })
    const passwordFile = join(server.folder, 'password')
    writeFileSync(passwordFile, 'a long password\n', { mode: 0o600 })
    const user = ['--user', 'ann', '--password-file', passwordFile]
    await expectWork(server, user, { user: 'ann', passwordFile })
    await expect(ClusterBackend.create({ servers: server.url, token })).rejects.toMatchObject({
      code: 'BrokerUnavailableError',
      message: expect.stringMatching(/authorization/i) as string,
    })
  })

  it('with a user, but not with another token than the agents that are there', async () => {
    const server = await startServer({
      authorization: 'authorization { users: [{ user: "ann", password: "a long password" }] }',
    })
    const passwordFile = join(server.folder, 'password')
    writeFileSync(passwordFile, 'a long password\n', { mode: 0o600 })
    const wrong = join(server.folder, 'wrong')
    writeFileSync(wrong, 'the token of another cluster\n', { mode: 0o600 })
    const user = ['--user', 'ann', '--password-file', passwordFile]
    const withWrong = ['--connect', server.url, '--token-file', wrong, ...user]
    await startAgentOf(server.url, server.folder, 'right', '--cores', '1', ...user)
    const listed = await runCommand('--json', 'agents', ...withWrong)
    expect(JSON.parse(listed.stdout)).toEqual({
      agents: [],
      unusable: ['an agent announces itself with another token'],
    })
    const end = await runCommand('agent', ...withWrong, '--name', 'wrong', '--cores', '1')
    expect(end.stderr).toMatch(
      /TokenMismatchError {2}agent "wrong" has another token .*127\.0\.0\.1/,
    )
    expect(end.code).toBe(3)
    await expectWork(server, user, { user: 'ann', passwordFile })
  })

  it('with the seed of an NKey in a file', async () => {
    const pair = nkeys.createUser()
    const server = await startServer({
      authorization: `authorization { users: [{ nkey: "${pair.getPublicKey()}" }] }`,
    })
    const credentials = join(server.folder, 'seed')
    writeFileSync(credentials, Buffer.from(pair.getSeed()), { mode: 0o600 })
    await expectWork(server, ['--credentials', credentials], { credentials })
  })

  it('on another host only with TLS or plaintext, which warns', async () => {
    const servers = 'nats://192.0.2.1:4222'
    await expect(ClusterBackend.create({ servers, token })).rejects.toMatchObject({
      field: 'servers',
      hint: expect.stringContaining('plaintext') as string,
    })
    const warnings: string[] = []
    const server = await startServer({ host: '0.0.0.0' })
    const log = { warn: (code: string): void => void warnings.push(code) }
    const backend = await ClusterBackend.create({
      servers: [`nats://0.0.0.0:${server.port}`],
      token,
      plaintext: true,
      log,
    })
    await backend.close()
    expect(warnings.filter((code) => code === 'PlaintextBroker')).toHaveLength(1)
  })

  it('and refused within seconds when it has no JetStream', async () => {
    const server = await startServer({ jetstream: '\n' })
    await expect(ClusterBackend.create({ servers: server.url, token })).rejects.toMatchObject({
      code: 'BrokerUnavailableError',
      message: expect.stringMatching(new RegExp(`${server.port}.*JetStream`)) as string,
    })
  })
})
