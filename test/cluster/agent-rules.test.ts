import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect } from '@nats-io/transport-node'
import { describe, expect, it, onTestFinished } from 'vitest'
import { agentSubject, toToken } from '../../src/cluster/wire/subjects.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { defineTask } from '../../src/tasks/define-task.ts'
import { type RunningCommand, runHere, startCommand } from '../cli/run-command.ts'
import { sessionElsewhere, sharedTestCluster, startAgentHere, type TestCluster } from './agents.ts'
import { work } from './fixtures/cluster-tasks.ts'
import { echo } from './fixtures/value-tasks.ts'
import { freePort } from '../free-port.ts'
import { token } from './test-token.ts'

const sharedServer = sharedTestCluster()

async function openSession(cluster: TestCluster, more = {}): Promise<Session> {
  const session = new Session([await cluster.connect(more)], { workDir: cluster.folder })
  onTestFinished(() => session.close())
  return session
}

async function run(session: Session, options: object): Promise<unknown> {
  const task = new ComputeTask<unknown>(options as never)
  await session.submitTasks([task])
  await session.waitTasks([task])
  if (task.state === 'DONE') return task.returnValue
  const { code, message } = (task.error?.cause ?? task.error) as Error & { code?: string }
  return { code, message }
}

const refused = (text: string): object => ({
  code: 'NotAllowedError',
  message: expect.stringContaining(text) as string,
})

describe('tutti agent --only', () => {
  it('tutti agent --only runs one kind of task, and the refusal names agent and task', async () => {
    const cluster = await sharedServer()
    await startAgentHere(cluster, { name: 'narrow', only: 'programs' })
    const session = await openSession(cluster)
    expect(await run(session, { function: echo, args: ['x'] })).toEqual(
      refused('agent "narrow" runs programs only, not echo'),
    )
    const program = { executable: '/bin/echo', arguments: ['yes'] }
    expect(JSON.stringify(await run(session, program))).toContain('yes')
  })
})

describe('tutti agent --allow', () => {
  it('tutti agent --allow matches real paths, and a refusal names agent and path', async () => {
    const cluster = await sharedServer()
    const allowed = join(cluster.folder, 'allowed')
    mkdirSync(allowed)
    writeFileSync(join(allowed, 'own.sh'), '#!/bin/sh\necho own\n', { mode: 0o755 })
    writeFileSync(join(cluster.folder, 'other.sh'), '#!/bin/sh\necho other\n', { mode: 0o755 })
    symlinkSync(join(cluster.folder, 'other.sh'), join(allowed, 'link.sh'))
    const modules = new URL('fixtures/value-*', import.meta.url).pathname
    await startAgentHere(cluster, { name: 'narrow', allow: [`${allowed}/*`, modules] })
    const session = await openSession(cluster)
    const other = refused(`agent "narrow" does not allow ${join(cluster.folder, 'other.sh')}`)
    expect(JSON.stringify(await run(session, { executable: join(allowed, 'own.sh') }))).toContain(
      'own',
    )
    expect(JSON.stringify(await run(session, { executable: 'allowed/own.sh' }))).toContain('own')
    expect(await run(session, { executable: join(allowed, 'link.sh') })).toEqual(other)
    expect(await run(session, { executable: 'sh', arguments: ['-c', 'true'] })).toEqual(
      refused('does not allow /'),
    )
    const shell = { executable: `${allowed}/own.sh; echo more`, shell: true }
    expect(await run(session, shell)).toEqual(refused('with `shell: true`, which can run any'))
    expect(await run(session, { function: echo, args: ['x'] })).toBe('x')
    const begun = join(cluster.folder, 'begun')
    expect(await run(session, { function: work, args: [begun, 'x', 0] })).toEqual(
      refused('fixtures/cluster-tasks.ts'),
    )
  })

  it('tutti agent --allow lets tasks set only the variables of --allow-env', async () => {
    const cluster = await sharedServer()
    const allowEnv = ['OMP_PLACES', 'LANG']
    await startAgentHere(cluster, { name: 'narrow', allow: ['/**'], allowEnv })
    const session = await openSession(cluster)
    const withVariables = (env: object): Promise<unknown> =>
      run(session, { executable: '/usr/bin/env', env })
    for (const env of [{ LD_PRELOAD: '/tmp/x.so' }, { OMP_PLACES: 'cores', omp_places: 'x' }]) {
      const name = Object.keys(env).at(-1)
      expect(await withVariables(env)).toEqual(
        refused(`agent "narrow" does not allow tasks to set ${name}`),
      )
    }
    expect(await withVariables({ PATH: undefined })).toEqual(refused('tasks to set PATH'))
    const shown = JSON.stringify(await withVariables({ OMP_PLACES: 'cores', LANG: undefined }))
    expect(shown).toContain('OMP_PLACES=cores')
    expect(shown).not.toContain('LANG=')
  })

  it("tutti agent --allow writes output only below the agent's folder", async () => {
    const cluster = await sharedServer()
    const workDir = join(cluster.folder, 'work')
    const outside = join(cluster.folder, 'outside')
    await startAgentHere(cluster, { name: 'narrow', allow: ['/**'], workDir })
    const here = await openSession(cluster)
    const program = { executable: '/bin/echo', arguments: ['written'] }
    for (const stdout of [outside, 'outside', '../outside']) {
      expect(await run(here, { ...program, captureStdio: { stdout } })).toEqual(
        refused('agent "narrow" does not allow output to be written to /'),
      )
    }
    const elsewhere = sessionElsewhere(await cluster.connect())
    onTestFinished(() => elsewhere.close())
    const stderr = `${'../'.repeat(20)}${outside}`
    expect(await run(elsewhere, { ...program, captureStdio: { stderr } })).toEqual(
      refused(`to ${outside}`),
    )
    await run(elsewhere, { ...program, captureStdio: { stdout: 'inside' } })
    const [ofAgent = ''] = readdirSync(workDir)
    const [ofSession = ''] = readdirSync(join(workDir, ofAgent))
    expect(readFileSync(join(workDir, ofAgent, ofSession, 'inside'), 'utf8')).toBe('written\n')
    expect(existsSync(outside)).toBe(false)
  })

  it('tutti agent --allow lets a missing program fail that would be allowed', async () => {
    const cluster = await sharedServer()
    const allowed = join(cluster.folder, 'allowed')
    mkdirSync(allowed)
    symlinkSync('/bin/true', join(allowed, 'link'))
    symlinkSync('/bin/nowhere', join(allowed, 'broken'))
    await startAgentHere(cluster, { name: 'narrow', allow: [`${allowed}/*`] })
    const session = await openSession(cluster)
    expect(await run(session, { executable: join(allowed, 'missing') })).toMatchObject({
      code: 'ExecutableNotFoundError',
    })
    for (const executable of ['link', 'broken', '../missing', 'more/missing']) {
      expect(await run(session, { executable: join(allowed, executable) })).toEqual(
        refused('does not allow'),
      )
    }
    expect(await run(session, { executable: 'missing-in-path' })).toEqual(refused('does not allow'))
  })

  it('tutti agent --allow matches modules of bundles by their path in their project', async () => {
    const cluster = await sharedServer()
    await startAgentHere(cluster, { name: 'narrow', allow: ['test/cluster/fixtures/value-*.ts'] })
    const session = await openSession(cluster, { modules: 'bundle' })
    expect(await run(session, { function: echo, args: ['x'] })).toBe('x')
    const begun = join(cluster.folder, 'begun')
    expect(await run(session, { function: work, args: [begun, 'x', 0] })).toEqual(
      refused('agent "narrow" does not allow test/cluster/fixtures/cluster-tasks.ts'),
    )
  })
})

describe('tasks on an agent', () => {
  it('tasks on an agent see its environment without its credentials', async () => {
    const cluster = await sharedServer()
    const { server, tokenFile } = cluster
    const connection = ['--connect', server.url, '--token-file', tokenFile, '--name', 'first']
    const agent = startCommand(['agent', ...connection], {
      CLUSTER_SECRET: `Bearer ${token}`,
      CLUSTER_PLACE: 'here',
    })
    onTestFinished(() => void agent.child.kill('SIGKILL'))
    await agent.seen('is connected')
    const session = await openSession(cluster)
    const shown = JSON.stringify(await run(session, { executable: '/usr/bin/env' }))
    expect(shown).toContain('CLUSTER_PLACE=here')
    expect(shown).not.toContain('CLUSTER_SECRET')
  })

  it("tasks on an agent run in the session's folder, or in a temporary one", async () => {
    const cluster = await sharedServer()
    const workDir = join(cluster.folder, 'work')
    await startAgentHere(cluster, { name: 'first', workDir })
    const here = await openSession(cluster)
    expect(JSON.stringify(await run(here, { executable: '/bin/pwd' }))).toContain(cluster.folder)
    const elsewhere = sessionElsewhere(await cluster.connect())
    const telemetry = await elsewhere.startTelemetry()
    const ends: { node_id: string | null; attributes: object }[] = []
    telemetry.subscribe((event) => {
      if (event.event_type === 'TaskCompleted') ends.push(event)
    })
    const program = { executable: '/bin/pwd', captureStdio: { stdout: 'out.txt' } }
    const task = new ComputeTask(program)
    await elsewhere.submitTasks([task])
    await elsewhere.waitTasks([task])
    await telemetry.flush()
    const [ofAgent = ''] = readdirSync(workDir)
    const [ofSession = ''] = readdirSync(join(workDir, ofAgent))
    const folder = join(workDir, ofAgent, ofSession)
    expect(ends).toMatchObject([
      { node_id: 'first', attributes: { stdout_path: join(folder, 'out.txt') } },
    ])
    expect(readdirSync(folder)).toEqual(['out.txt'])
    await elsewhere.close()
    expect(readdirSync(join(workDir, ofAgent))).toEqual([])
  })

  it('tasks on an agent fail with node and module where the module is missing', async () => {
    const cluster = await sharedServer()
    await startAgentHere(cluster, { name: 'first' })
    const session = await openSession(cluster)
    const missing = defineTask('file:///nowhere/at/all.ts', function missing() {})
    const task = new ComputeTask({ function: missing })
    await session.submitTasks([task])
    await session.waitTasks([task])
    const cause = (task.error?.cause ?? task.error) as Error
    expect(cause.constructor.name).toBe('TaskImportError')
    expect(cause.message).toMatch(/^node first: the module file:\/\/\/nowhere\/at\/all\.ts/)
    expect((cause as { hint?: string }).hint).toMatch(/under the same path.*modules: 'bundle'/)
  })
})

function createFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-agent-input-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

const workDirFault = '--work-dir: /[^ ]+ cannot be used'

describe('tutti agent with bad input', () => {
  const faults: [string, string[], string][] = [
    ['GPUs that are not there', ['--gpus', '64'], '--gpus: asks for 64[^]*--gpus 0[^]*--gpus 0,1'],
    ['a GPU twice', ['--gpus', '0,0'], '--gpus: `0` \\(number\\) is named twice'],
    ['a GPU without an id', ['--gpus', '0,x'], 'Expected --gpus to be an index.*, got `x` '],
    ['a negative count', ['--gpus', '-1'], 'Expected --gpus to be an integer.*, got `-1` '],
    ['a long name', ['--name', 'x'.repeat(300)], 'Expected --name to be an id.*, got `xxx+\\.'],
    ['a label twice', ['--label', 'a=1', '--label', 'a=2'], '"a" was given twice'],
    ['a file as work folder', ['--work-dir', import.meta.filename], workDirFault],
    ['a work folder below a file', ['--work-dir', `${import.meta.filename}/x`], workDirFault],
    ['a work folder below /proc', ['--work-dir', '/proc/nope/x'], workDirFault],
    ['a work folder that takes nothing', ['--work-dir', '/proc'], workDirFault],
    ['an empty work folder', ['--work-dir', ''], '--work-dir'],
    ['a server without a host', ['--connect', 'nats://'], '--connect .*nats://host'],
    ['a server elsewhere', ['--connect', 'nats://192.0.2.1'], '--plaintext'],
    ['an unknown kind', ['--only', 'nothing'], '--only'],
    ['an unknown isolation', ['--isolation', 'fiber'], '--isolation.*expected thread or process'],
    ['a user without a password', ['--user', 'ann'], '--password-file: is needed with --user'],
    ['half of a certificate', ['--tls-cert', 'c.pem'], '--tls-key: is needed with --tls-cert'],
    ['two kinds', ['--only', 'functions', '--only', 'programs'], '--only.*given twice'],
    ['an empty glob', ['--allow', ''], '--allow.*not empty'],
    ['an empty glob among others', ['--allow', '/bin/*', '--allow', ''], '--allow.*not empty'],
  ]
  it.each(faults)(
    'bad input of tutti agent is named, with exit code 2: %s',
    async (_, args, text) => {
      const file = join(createFolder(), 'token')
      writeFileSync(file, token, { mode: 0o600 })
      // Reported before the server is contacted.
      const connection = ['--connect', 'nats://127.0.0.1:1', '--token-file', file]
      const { code, stderr } = await runHere(process.cwd(), ['agent', ...connection, ...args])
      expect(stderr).toMatch(new RegExp(text))
      expect(code).toBe(2)
    },
  )

  it.each([
    ['an empty one', '', 0o600, 'is empty'],
    ['one that others can read', token, 0o644, 'others can read'],
  ])(
    'a bad token file of tutti agent is named, with exit code 2: %s',
    async (_, content, mode, text) => {
      const file = join(createFolder(), 'token')
      writeFileSync(file, content, { mode })
      const connection = ['--connect', 'nats://127.0.0.1:1', '--token-file', file]
      const { code, stderr } = await runHere(process.cwd(), ['agent', ...connection])
      expect(stderr).toMatch(new RegExp(`--token-file: .*${text}`))
      expect(code).toBe(2)
    },
  )

  it('tutti agent takes a name whose last agent is leaving', async () => {
    const cluster = await sharedServer()
    const connection = await connect({ servers: cluster.server.url, token })
    onTestFinished(() => connection.close())
    connection.subscribe(agentSubject('left'), { max: 1 })
    await connection.flush()
    const { name } = await startAgentHere(cluster, { name: 'left' })
    expect(name).toBe('left')
  })

  it.each([
    ['a wrong token', [], 'a wrong token', 'Authorization.*\n.*compare the file of the token'],
    ['a name that is taken', ['--name', 'first'], token, 'is already connected'],
  ])('tutti agent ends with exit code 3 and a reason: %s', async (_, args, content, text) => {
    const cluster = await sharedServer()
    await startAgentHere(cluster, { name: 'first' })
    const file = join(cluster.folder, 'given')
    writeFileSync(file, content, { mode: 0o600 })
    const connection = ['--connect', cluster.server.url, '--token-file', file]
    const end = await runHere(process.cwd(), ['agent', ...connection, ...args])
    expect(end.stderr).toMatch(new RegExp(text, 'i'))
    expect(end.code).toBe(3)
  })

  it('tutti agent without a server ends with exit code 3 and says how to start one', async () => {
    const file = join(createFolder(), 'token')
    writeFileSync(file, token, { mode: 0o600 })
    const connection = ['--connect', `nats://127.0.0.1:${await freePort()}`, '--token-file', file]
    const { code, stderr } = await runHere(process.cwd(), ['agent', ...connection])
    expect(stderr).toMatch(/refused\n {2}hint: No server listens there: .* nats-server -c /)
    expect(code).toBe(3)
  })

  it('tutti agent has a safe default work folder, and removes dead ones', async () => {
    const cluster = await sharedServer()
    const connection = ['--connect', cluster.server.url, '--token-file', cluster.tokenFile]
    const start = async (name: string): Promise<RunningCommand> => {
      const words = ['agent', ...connection, '--name', name]
      const agent = startCommand(words, { TMPDIR: cluster.folder })
      onTestFinished(() => void agent.child.kill('SIGKILL'))
      await agent.seen('is connected')
      return agent
    }
    // Files that another user may create there; the first is a former name of the folder.
    const earlier = `tutti-agent-${process.getuid?.()}-${toToken('first')}`
    const foreign = [earlier, 'tutti-agent-first', 'tutti-agent']
    for (const name of foreign) {
      mkdirSync(join(cluster.folder, name))
      chmodSync(join(cluster.folder, name), 0o777)
    }
    const folders = (): string[] => {
      const all = readdirSync(cluster.folder).filter((name) => name.startsWith('tutti-agent'))
      return all.filter((name) => !foreign.includes(name))
    }
    const killed = await start('first')
    const [left = ''] = folders()
    expect(statSync(join(cluster.folder, left)).mode & 0o777).toBe(0o700)
    killed.child.kill('SIGKILL')
    await killed.ended
    expect(folders()).toEqual([left])
    const second = await start('second')
    expect(folders()).toHaveLength(1)
    expect(folders()).not.toContain(left)
    second.child.kill('SIGTERM')
    await second.ended
    expect(folders()).toEqual([])
  })

  it('tutti agent names the owner of a work folder that it cannot use', async () => {
    const cluster = await sharedServer()
    const connection = ['--connect', cluster.server.url, '--token-file', cluster.tokenFile]
    const words = ['agent', ...connection, '--work-dir', '/proc/none']
    const { code, stderr } = await startCommand(words).ended
    expect(stderr).toContain('--work-dir: /proc/none cannot be used: ENOENT')
    expect(stderr).toContain('(/proc belongs to user 0, with mode 555)')
    expect(stderr).toContain('hint: Name another one: --work-dir of tutti agent and tutti launch.')
    expect(code).toBe(2)
  })

  it('tutti agent accepts more than the machine has, with a warning', async () => {
    const cluster = await sharedServer()
    const more = ['--label', 'disk=ssd', '--only', 'functions', '--memory-mb', String(8 * 2 ** 20)]
    const agent = await cluster.agent('first', '--cores', '4000', ...more)
    const connection = ['--connect', cluster.url, '--token-file', cluster.tokenFile]
    const { stdout } = await runHere(process.cwd(), ['agents', ...connection])
    const [header = '', row = '', ...rest] = stdout.trimEnd().split('\n')
    expect(header).toMatch(
      /^name {3}state {2}cores {2}gpus {2}memory MB {2}sessions {2}tutti +labels +rules$/,
    )
    expect(row).toMatch(
      /^first {2}ready +4000 +\d+ +8388608 +0 {2}\S+ +disk=ssd {2}only functions$/,
    )
    expect(rest).toEqual([])
    agent.child.kill('SIGTERM')
    const { code, stderr } = await agent.ended
    const lines = stderr.trimEnd().split('\n')
    expect(lines[0]).toMatch(/--cores 4000: more than this process may use, which is \d+/)
    expect(lines.map((line) => Date.parse(line.split(' ')[0] ?? ''))).not.toContain(NaN)
    expect(code).toBe(0)
  })
})
