import { existsSync, mkdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { expect, it } from 'vitest'
import { followFolderOf, outputPath, requestPath } from '../../../src/checkpoint/record-names.ts'
import { OutputFile } from '../../../src/cli/reading/logs/shown-output.ts'
import { ClusterBackend } from '../../../src/cluster/index.ts'
import { type Backend, ComputeTask, ConcurrentBackend, Session } from '../../../src/index.ts'
import { ManualClock } from '../../../src/testing/index.ts'
import { eventually } from '../../eventually.ts'
import { needs, requireCommand } from '../../require.ts'
import { runHere, startCommand } from '../run-command.ts'
import { tuttiHere, workFolder } from '../run/work-folder.ts'
import { showFromMemory, startInMemory, waiting } from './memory-output.ts'

const item = (uid: string, text: string, more = ''): string =>
  `- { uid: ${uid}, executable: sh, arguments: [-c, '${text}']${more} }\n`

it('logs: the output of a program that has ended is on stdout and stderr', async () => {
  const folder = workFolder()
  const long = 'seq 1 1000; seq 1 1000 >&2; exit 3'
  writeFileSync(
    join(folder, 'tasks.yaml'),
    item('a', 'echo out; printf "\\033[31mred\\n"; echo err >&2') +
      item('b', 'echo said; echo why >&2; exit 3') +
      item('long', long) +
      item('many', 'seq 1 3000'),
  )
  expect(await tuttiHere(folder, 'run', 'tasks.yaml')).toMatchObject({ code: 1 })
  const a = await runHere(folder, ['logs', 'a'])
  expect(a).toEqual({ code: 0, stdout: 'out\n\\u001b[31mred\n', stderr: 'err\n' })
  const b = await runHere(folder, ['logs', 'b'])
  expect(b).toEqual({ code: 0, stdout: 'said\n', stderr: 'why\n' })
  const failed = await runHere(folder, ['logs', 'lo'])
  expect(failed.stdout).toMatch(/\n999\n1000\n$/)
  expect(failed.stderr).toContain('only the end of the output is in the record')
  const many = await runHere(folder, ['logs', 'many', '-f'])
  expect(many.stdout.trimEnd().split('\n')).toHaveLength(3000)
  const { stdout } = await runHere(folder, ['logs', 'b', '--json'])
  expect(JSON.parse(stdout)).toEqual({
    uid: 'b',
    ended: true,
    stdout: 'said\n',
    stderr: 'why\n',
    source: { stdout: 'record', stderr: 'record' },
    notes: [],
  })
  const none = await runHere(folder, ['logs', 'x'])
  expect(none).toMatchObject({ code: 2, stdout: '' })
  expect(none.stderr).toContain('there is no task "x"')
})

it('logs: files of captureStdio are shown, once if both streams have one', async () => {
  const folder = workFolder()
  const both = ', capture_stdio: { stdout: all.txt, stderr: all.txt }'
  writeFileSync(join(folder, 'tasks.yaml'), item('a', 'echo out; echo err >&2', both))
  expect(await tuttiHere(folder, 'run', 'tasks.yaml')).toMatchObject({ code: 0 })
  const shown = await runHere(folder, ['logs', 'a'])
  expect(shown).toEqual({ code: 0, stdout: 'out\nerr\n', stderr: '' })
})

it('logs: the files of a further attempt are read from their beginning', () => {
  const path = join(workFolder(), 'out.txt')
  const file = new OutputFile(path)
  const read = (attempt: number): string => [...file.read(attempt)].join('')
  expect([read(1), file.isFound]).toEqual(['', false])
  writeFileSync(path, 'the first attempt ä')
  expect([read(1), read(1), file.isFound]).toEqual(['the first attempt ä', '', true])
  writeFileSync(path, 'shorter\n')
  expect([read(1), read(2)]).toEqual(['\nshorter\n', ''])
  const cut = Buffer.from('longer ä').subarray(0, -1)
  writeFileSync(path, cut)
  expect([read(2), read(3)]).toEqual(['longer ', ''])
  writeFileSync(path, 'has ä and more\n')
  expect([read(3), read(4)]).toEqual(['\uFFFD\nhas ä and more\n', ''])
  writeFileSync(path, 'has ä and more\n')
  expect([read(4), read(5)]).toEqual(['', 'has ä and more\n'])
})

it('logs -f: a further attempt that writes more than the first one is shown whole', async () => {
  const second = 'echo another; echo more; exit 0'
  const text = `test -e "$0" && { ${second}; }; echo first; printf ha; ${waiting}; exit 3`
  const { following, go } = await followFile(text, 'first\nha')
  await following.seen('first\n')
  await go()
  const stdout = 'first\nha\nanother\nmore\n'
  expect(await following.ended).toEqual({ code: 0, stdout, stderr: '' })
})

it('logs -f: a long line is shown before it ends', async () => {
  const long = 'x'.repeat(200_000)
  const text = `head -c 200000 /dev/zero | tr "\\0" x; ${waiting}; printf end`
  const { following, go } = await followFile(text, long)
  await following.seen('x'.repeat(100_000))
  await go()
  expect(await following.ended).toEqual({ code: 0, stdout: `${long}end\n`, stderr: '' })
})

it('logs --json: output that is too long for JSON is an error that says what to do', async () => {
  const folder = workFolder()
  const files = ', capture_stdio: { stdout: big.txt, stderr: err.txt }'
  writeFileSync(join(folder, 'tasks.yaml'), item('a', 'echo out', files))
  expect(await tuttiHere(folder, 'run', 'tasks.yaml')).toMatchObject({ code: 0 })
  truncateSync(join(folder, 'big.txt'), 2 ** 26 + 1)
  const { code, stdout, stderr } = await runHere(folder, ['logs', 'a', '--json'])
  expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
  expect(JSON.parse(stderr)).toEqual({
    error: {
      code: 'ValueError',
      message: 'logs --json: expected at most 67108864 characters of output, got more',
      hint: 'Without --json, output of any length is printed while it is read.',
    },
  })
})

it('logs: says which stream is missing, and why a task has no output', async () => {
  const folder = workFolder()
  // One program at a time: the first one keeps the others from starting.
  await using backend = await ConcurrentBackend.create({ maxProcesses: 1 })
  await using session = new Session([backend])
  const telemetry = await session.startTelemetry({ checkpointPath: folder })
  const go = join(folder, 'go')
  const sh = { executable: 'sh', arguments: ['-c', `${waiting}; echo one`, go] }
  const canceled = new ComputeTask({ uid: 'canceled', ...sh })
  const tasks = [
    new ComputeTask({ uid: 'half', ...sh, captureStdio: { stdout: join(folder, 'out.txt') } }),
    new ComputeTask({ uid: 'silent', executable: 'sh', arguments: ['-c', 'exit 3'] }),
    new ComputeTask({ uid: 'unknown', executable: 'tutti-no-such-program' }),
    canceled,
    new ComputeTask({ uid: 'code', function: () => 1 }),
  ]
  await session.submitTasks(tasks)
  session.cancel(canceled)
  writeFileSync(go, '')
  await Promise.allSettled(tasks)
  await telemetry.flush()
  const read = async (uid: string) =>
    await runHere(folder, ['logs', uid, telemetry.checkpointFile ?? ''])
  const half = await read('half')
  expect(half.stdout).toBe('one\n')
  expect(half.stderr).toMatch(/^stderr of half is not in the record; `tutti logs -f` shows it /)
  expect(await read('silent')).toEqual({ code: 0, stdout: '', stderr: '' })
  const unknown = 'unknown never ran: tutti-no-such-program was not found in PATH\n'
  expect((await read('unknown')).stderr).toBe(unknown)
  expect((await read('canceled')).stderr).toMatch(/^canceled never ran: it was canceled before/)
  expect((await read('code')).stderr).toMatch(/^code is a function: its output goes to /)
})

/** Follows a program that writes into a file, once it has written `before`. */
async function followFile(text: string, before: string) {
  const folder = workFolder()
  const [path, signal] = [join(folder, 'out.txt'), join(folder, 'go')]
  const backend = await ConcurrentBackend.create()
  const session = new Session([backend])
  const telemetry = await session.startTelemetry({ checkpointPath: folder })
  const task = new ComputeTask({
    uid: 'a',
    executable: 'sh',
    arguments: ['-c', text, signal],
    captureStdio: { stdout: path, stderr: path },
    retries: 1,
  })
  await session.submitTasks([task])
  const record = telemetry.checkpointFile ?? ''
  await eventually(async () => {
    await telemetry.flush()
    expect(readFileSync(record, 'utf8')).toContain('"stdout_path"')
    expect(readFileSync(path, 'utf8')).toBe(before)
  })
  const go = async (): Promise<void> => {
    writeFileSync(signal, '')
    await task
    await session.close()
    await backend.close()
  }
  return { following: startCommand(['logs', 'a', record, '-f']), go }
}

/** A program that writes, waits for the file `go`, and writes again. */
async function showWhileRunning(backend: Backend): Promise<void> {
  const folder = workFolder()
  await using session = new Session([backend])
  const telemetry = await session.startTelemetry({ checkpointPath: folder })
  const text = 'echo one; echo two >&2; until test -e "$0"; do sleep 0.05; done; echo three'
  const files = { stdout: join(folder, 'out.txt'), stderr: join(folder, 'err.txt') }
  const go = join(folder, 'go')
  const task = new ComputeTask({
    uid: 'a',
    executable: 'sh',
    arguments: ['-c', text, go],
    captureStdio: files,
  })
  await session.submitTasks([task])
  await eventually(() => expect(readFileSync(files.stderr, 'utf8')).toBe('two\n'))
  await eventually(async () => {
    await telemetry.flush()
    expect(readFileSync(telemetry.checkpointFile ?? '', 'utf8')).toContain('"stdout_path"')
  })
  const record = telemetry.checkpointFile ?? ''
  const now = await runHere(folder, ['logs', 'a', record])
  expect(now).toEqual({ code: 0, stdout: 'one\n', stderr: 'two\n' })
  const following = startCommand(['logs', 'a', record, '-f'])
  await following.seen('one\n')
  writeFileSync(go, '')
  await task
  await telemetry.flush()
  expect(await following.ended).toEqual({ code: 0, stdout: 'one\nthree\n', stderr: 'two\n' })
}

it('logs -f: shows what a program writes into files until it ends', async () => {
  await using backend = await ConcurrentBackend.create()
  await showWhileRunning(backend)
})

needs(requireCommand('nats-server'))(
  'logs -f: shows the files of a program on a node of a cluster while it runs',
  async () => {
    await using backend = await ClusterBackend.local({ agents: 1 })
    await showWhileRunning(backend)
  },
)

it('logs: output in memory is shown while its program runs, and -f shows all of it', async () => {
  await using backend = await ConcurrentBackend.create()
  await showFromMemory(backend)
})

needs(requireCommand('nats-server'))(
  'logs: output in the memory of a node of a cluster is shown while its program runs',
  async () => {
    await using backend = await ClusterBackend.local({ agents: 1 })
    await showFromMemory(backend)
  },
)

it('logs -f: all output of a failed program is shown, not only what the record has', async () => {
  await using backend = await ConcurrentBackend.create()
  await using session = new Session([backend])
  const { record, go } = await startInMemory(session, `echo first; ${waiting}; seq 5000; exit 3`)
  const following = startCommand(['logs', 'a.b', record, '-f'])
  await following.seen('first\n')
  await go()
  const numbers = Array.from({ length: 5000 }, (_, at) => `${at + 1}\n`)
  const stdout = ['first\n', ...numbers].join('')
  expect(await following.ended).toEqual({ code: 0, stdout, stderr: '' })
})

it('logs -f: output has no secrets, and goes when nobody renews the request for it', async () => {
  const clock = new ManualClock()
  await using backend = await ConcurrentBackend.create()
  await using session = new Session([backend], { clock })
  const text = `echo one; echo Bearer 0123456789abcdef; ${waiting}`
  const { record, go } = await startInMemory(session, text)
  const folder = followFolderOf(record)
  mkdirSync(folder)
  writeFileSync(requestPath(folder, 'a.b', 'killed'), '')
  const output = outputPath(folder, 'a.b', 'stdout')
  await eventually(async () => {
    await clock.advance(500)
    expect(readFileSync(output, 'utf8')).toBe('one\n[masked]\n')
  })
  await eventually(async () => {
    await clock.advance(1000)
    expect(existsSync(folder)).toBe(false)
  })
  await go()
})

it('logs: says why the output of a running program cannot be shown', async () => {
  await using backend = await ConcurrentBackend.create()
  await using session = new Session([backend])
  const { record, go } = await startInMemory(session, `echo one; ${waiting}`)
  writeFileSync(followFolderOf(record), 'a file in place of the folder')
  const now = await runHere(dirname(record), ['logs', 'a.b', record])
  expect(now).toMatchObject({ code: 0, stdout: '' })
  expect(now.stderr).toContain(
    'the output of a.b is in memory, and the folder of the record cannot',
  )
  expect(now.stderr).toContain('`captureStdio`')
  await go()
})
