import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { connect, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { nkeys } from '@nats-io/transport-node'
import { ClusterBackend } from '../../src/cluster/cluster-backend.ts'
import type { BrokerOptions } from '../../src/cluster/cluster-options.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { runCommand, runHere } from '../cli/run-command.ts'
import { startAgentHere, startAgentOf } from './agents.ts'
import { createCertificates } from './certificates.ts'
import { work } from './fixtures/cluster-tasks.ts'
import { createJwtAccess } from './jwt-access.ts'
import { freePort } from '../free-port.ts'
import { RestartableServer, type ServerOptions } from './restartable-server.ts'
import { token } from './test-token.ts'

async function startServer(options: ServerOptions): Promise<RestartableServer> {
  const server = new RestartableServer(await freePort(), options)
  await server.start()
  return server
}

/** A task runs: agent and driver both reach the broker, and so does a command with its options. */
async function expectWork(
  server: RestartableServer,
  options: readonly string[],
  access: Partial<BrokerOptions>,
): Promise<void> {
  const { url: servers, folder } = server
  await startAgentHere(server, { name: 'only', ...access })
  const tokenFile = join(folder, 'token')
  writeFileSync(tokenFile, token, { mode: 0o600 })
  const connection = ['--connect', servers, '--token-file', tokenFile]
  const listed = await runHere(folder, ['--json', 'agents', ...connection, ...options])
  expect(JSON.parse(listed.stdout)).toMatchObject({ agents: [{ name: 'only', state: 'ready' }] })
  await runWork(server, access)
}

async function runWork(
  { url: servers, folder }: RestartableServer,
  access: Partial<BrokerOptions>,
): Promise<void> {
  const session = new Session([await ClusterBackend.create({ servers, token, ...access })])
  onTestFinished(() => session.close())
  const begun = join(folder, 'begun')
  const task = new ComputeTask({ function: work, args: [begun, 'reached', 0] })
  await session.submitTasks([task])
  expect(await task).toBe('reached')
}

const greeting = 'INFO {"server_id":"x","version":"2.9.10","max_payload":1048576}\r\n'

/** It takes connections, and says nothing else. */
async function startGreetingServer(greet: (client: Socket) => void): Promise<string> {
  const server = createServer((client) => {
    onTestFinished(() => void client.destroy())
    client.on('error', () => {})
    greet(client)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void server.close())
  const address = server.address()
  return `nats://127.0.0.1:${typeof address === 'object' ? address?.port : 0}`
}

/**
 * A proxy in front of a server: the first client gets the announcements, then nothing for a long
 * time.
 */
async function startSlowServer(port: number): Promise<string> {
  let clients = 0
  const slow = createServer((client) => {
    const server = connect(port, '127.0.0.1')
    const isFirst = clients++ === 0
    onTestFinished(() => void server.destroy())
    onTestFinished(() => void client.destroy())
    server.on('data', (data) => client.write(data))
    client.on('data', (data) => isFirst || server.write(data))
    client.on('error', () => server.destroy())
    client.on('close', () => server.destroy())
    server.on('close', () => client.destroy())
  })
  await new Promise<void>((resolve) => slow.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void slow.close())
  const address = slow.address()
  return `nats://127.0.0.1:${typeof address === 'object' ? address?.port : 0}`
}

const pairOf = (file: string): BrokerOptions['tls'] => ({ cert: file, key: file })

describe('the broker is reached', () => {
  it('a broker with TLS and a private authority is refused without the authority', async () => {
    const { ca, cert, key } = createCertificates()
    const settings = `tls { cert_file: "${cert}", key_file: "${key}" }`
    const server = await startServer({ settings })
    await expectWork(server, ['--tls-ca', ca], { tls: { ca } })
    const foreign = createCertificates()
    for (const tls of [{}, { ca: foreign.ca }]) {
      await expect(
        ClusterBackend.create({ servers: server.url, token, tls }),
      ).rejects.toMatchObject({
        code: 'BrokerUnavailableError',
        message: expect.stringMatching(/127\.0\.0\.1:\d+ cannot be used: .*certificate/) as string,
        hint: expect.stringContaining('`tls.ca` (--tls-ca)') as string,
      })
    }
  })

  it('a broker that asks for a client certificate gets it', async () => {
    const { ca, cert, key } = createCertificates()
    const server = await startServer({
      settings: `tls { cert_file: "${cert}", key_file: "${key}", ca_file: "${ca}", verify: true }`,
    })
    const files = ['--tls-ca', ca, '--tls-cert', cert, '--tls-key', key]
    await expectWork(server, files, { tls: { ca, cert, key } })
    await expect(
      ClusterBackend.create({ servers: server.url, token, tls: { ca } }),
    ).rejects.toMatchObject({
      code: 'BrokerUnavailableError',
      message: expect.stringContaining('it wants a certificate of the client') as string,
      hint: expect.stringContaining('--tls-cert') as string,
    })
    // Found by the host's name, which the certificate does not have.
    const servers = server.url.replace('127.0.0.1', 'localhost')
    await expect(
      ClusterBackend.create({ servers, token, tls: { ca, cert, key } }),
    ).rejects.toMatchObject({ hint: expect.stringContaining('a name that') as string })
  })

  it('a tls:// URL uses TLS or fails', async () => {
    const server = await startServer({})
    const servers = server.url.replace('nats:', 'tls:')
    await expect(ClusterBackend.create({ servers, token })).rejects.toMatchObject({
      code: 'BrokerUnavailableError',
      message: expect.stringContaining('tls') as string,
    })
  })

  it('a broker with a user and a password refuses the token', async () => {
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

  it('missing permissions for a subject: agents and drivers name it', async () => {
    const permissions = '{ publish: ["$JS.>", "_INBOX.>"], subscribe: ["$JS.>", "_INBOX.>"] }'
    const ann = `{ user: "ann", password: "a long password", permissions: ${permissions} }`
    const server = await startServer({ authorization: `authorization { users: [${ann}] }` })
    const passwordFile = join(server.folder, 'password')
    writeFileSync(passwordFile, 'a long password\n', { mode: 0o600 })
    const user = ['--user', 'ann', '--password-file', passwordFile]
    const agent = await startAgentOf(server.url, server.folder, 'deaf', '--cores', '1', ...user)
    await agent.seen('BrokerPermissionMissing: the broker does not allow this user to subscribe')
    const connection = ['--connect', server.url, '--token-file', join(server.folder, 'token')]
    const { stderr } = await runCommand('agents', ...connection, ...user)
    expect(stderr).toMatch(/does not allow this user to publish to tutti\.\S+; docs\/cluster\.md/)
  })

  it('a user name does not replace the token of the agents that are there', async () => {
    const server = await startServer({
      authorization: 'authorization { users: [{ user: "ann", password: "a long password" }] }',
    })
    const passwordFile = join(server.folder, 'password')
    writeFileSync(passwordFile, 'a long password\n', { mode: 0o600 })
    const wrong = join(server.folder, 'wrong')
    writeFileSync(wrong, 'the token of another cluster\n', { mode: 0o600 })
    const user = ['--user', 'ann', '--password-file', passwordFile]
    const withWrong = ['--connect', server.url, '--token-file', wrong, ...user]
    await startAgentHere(server, { name: 'right', user: 'ann', passwordFile })
    const listed = await runHere(process.cwd(), ['--json', 'agents', ...withWrong])
    expect(JSON.parse(listed.stdout)).toEqual({
      agents: [],
      unusable: [
        {
          name: null,
          code: 'TokenMismatchError',
          reason: 'an agent announces itself with another token',
        },
      ],
      complete: true,
    })
    const end = await runHere(process.cwd(), [
      'agent',
      ...withWrong,
      '--name',
      'wrong',
      '--cores',
      '1',
    ])
    expect(end.stderr).toMatch(
      /TokenMismatchError {2}agent "wrong" has another token .*127\.0\.0\.1/,
    )
    expect(end.code).toBe(3)
    // The first one has heard no other agent with its token, and may have left.
    await startAgentHere(server, { name: 'only', user: 'ann', passwordFile })
    await runWork(server, { user: 'ann', passwordFile })
  })

  it('the seed of an NKey in a file opens the broker', async () => {
    const pair = nkeys.createUser()
    const server = await startServer({
      authorization: `authorization { users: [{ nkey: "${pair.getPublicKey()}" }] }`,
    })
    const credentials = join(server.folder, 'seed')
    writeFileSync(credentials, Buffer.from(pair.getSeed()), { mode: 0o600 })
    await expectWork(server, ['--credentials', credentials], { credentials })
  })

  it('a .creds file opens a server with operators and accounts', async () => {
    const { authorization, credentials: content, strangers } = createJwtAccess()
    const server = await startServer({ authorization })
    const credentials = join(server.folder, 'user.creds')
    writeFileSync(credentials, content, { mode: 0o600 })
    await expectWork(server, ['--credentials', credentials], { credentials })
    const foreign = join(server.folder, 'stranger.creds')
    writeFileSync(foreign, strangers, { mode: 0o600 })
    await expect(
      ClusterBackend.create({ servers: server.url, token, credentials: foreign }),
    ).rejects.toMatchObject({
      code: 'BrokerUnavailableError',
      message: expect.stringMatching(/authorization/i) as string,
    })
  })

  it.each([
    ['credentials that others can read', { credentials: 'open' }, 'credentials', 'others can read'],
    ['credentials that are none', { credentials: 'text' }, 'credentials', 'no NKey seed'],
    ['credentials that are missing', { credentials: 'none' }, 'credentials', 'cannot be read'],
    ['an authority that is missing', { tls: { ca: 'none' } }, 'tls.ca', 'cannot be read'],
    ['an authority that is a folder', { tls: { ca: '.' } }, 'tls.ca', 'cannot be read'],
    ['an authority that is none', { tls: { ca: 'text' } }, 'tls.ca', 'text has no certificate'],
    ['an authority that is torn', { tls: { ca: 'torn' } }, 'tls.ca', 'torn has a certificate that'],
    ['a certificate that is none', { tls: pairOf('text') }, 'tls.cert', 'text has no certificate'],
    ['a certificate as its key', { tls: pairOf('right') }, 'tls.key', 'right has no private key'],
    ['a certificate without its key', { tls: { cert: 'text' } }, 'tls.key', '`tls.cert`'],
  ])('the broker is never reached with %s', async (_, given, field, text) => {
    const folder = mkdtempSync(join(tmpdir(), 'tutti-access-'))
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
    writeFileSync(join(folder, 'open'), nkeys.createUser().getSeed(), { mode: 0o644 })
    writeFileSync(join(folder, 'text'), 'no secret', { mode: 0o600 })
    const certificate = readFileSync(createCertificates().ca, 'utf8')
    writeFileSync(join(folder, 'right'), certificate)
    writeFileSync(join(folder, 'torn'), certificate.replace(/\n.{30}/, '\n'))
    const inFolder = (_key: string, value: unknown): unknown =>
      typeof value === 'string' ? join(folder, value) : value
    const files = JSON.parse(JSON.stringify(given, inFolder)) as Partial<BrokerOptions>
    await expect(
      ClusterBackend.create({ servers: 'nats://127.0.0.1:4222', token, ...files }),
    ).rejects.toMatchObject({
      name: 'ValueError',
      field,
      message: expect.stringContaining(text) as string,
    })
  })

  it('an invalid authority of a command is refused by the name of the option', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'tutti-access-'))
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
    const [text, tokenFile] = [join(folder, 'text'), join(folder, 'token')]
    writeFileSync(text, 'no certificate')
    writeFileSync(tokenFile, token, { mode: 0o600 })
    const connection = ['--connect', 'tls://127.0.0.1:1', '--token-file', tokenFile]
    for (const file of [folder, text, join(folder, 'missing')]) {
      const { stderr, code } = await runHere(process.cwd(), [
        'agents',
        ...connection,
        '--tls-ca',
        file,
      ])
      expect([code, stderr]).toEqual([2, expect.stringContaining(`--tls-ca: ${file} `)])
    }
  })

  it('a broker that is too slow for the first attempt is reached', async () => {
    const server = await startServer({})
    const servers = await startSlowServer(server.port)
    const backend = await ClusterBackend.create({ servers, token })
    onTestFinished(() => backend.close())
    expect(backend.nodes).toEqual([])
  })

  it('a broker that ended the first attempt, too slow for its TLS, is reached', async () => {
    const { ca, cert, key } = createCertificates()
    const settings = `tls { cert_file: "${cert}", key_file: "${key}", timeout: 0.5 }`
    const server = await startServer({ settings })
    const servers = await startSlowServer(server.port)
    const backend = await ClusterBackend.create({ servers, token, tls: { ca } })
    onTestFinished(() => backend.close())
    expect(backend.nodes).toEqual([])
  })

  it('a connection is given up when none of several servers answers', async () => {
    const silent = await Promise.all([1, 2, 3].map(() => startGreetingServer(() => {})))
    await expect(ClusterBackend.create({ servers: silent, token })).rejects.toMatchObject({
      code: 'BrokerUnavailableError',
      message: `the broker at ${silent.join(', ')} cannot be used: it does not answer`,
    })
  })

  it.each([
    ['no server of NATS', (client: Socket) => client.write('220 mail'), 'is not a NATS server'],
    ['ended by the server', (client: Socket) => client.end(greeting), 'ends the connection'],
  ])('a connection is given up immediately when the broker is %s', async (_, greet, why) => {
    const servers = await startGreetingServer(greet)
    await expect(ClusterBackend.create({ servers, token })).rejects.toMatchObject({
      code: 'BrokerUnavailableError',
      message: expect.stringContaining(why) as string,
    })
  })

  it('a connection is given up immediately when the broker takes no more', async () => {
    const { url: servers } = await startServer({ settings: 'max_connections: 1' })
    const backend = await ClusterBackend.create({ servers, token })
    onTestFinished(() => backend.close())
    await expect(ClusterBackend.create({ servers, token })).rejects.toMatchObject({
      message: `the broker at ${servers} cannot be used: maximum connections exceeded`,
      hint: expect.stringContaining('max_connections') as string,
    })
  })

  it('a broker on another host needs TLS or plaintext, which warns', async () => {
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

  it('a broker without JetStream is refused within seconds', async () => {
    const server = await startServer({ jetstream: '\n' })
    await expect(ClusterBackend.create({ servers: server.url, token })).rejects.toMatchObject({
      code: 'BrokerUnavailableError',
      message: expect.stringMatching(new RegExp(`${server.port}.*JetStream`)) as string,
    })
  })
})
