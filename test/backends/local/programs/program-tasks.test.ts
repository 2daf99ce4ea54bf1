import { mkdtemp, readFile, realpath, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { deserialize, serialize } from 'node:v8'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import type { Job } from '../../../../src/backends/backend.ts'
import { ConcurrentBackend } from '../../../../src/backends/local/concurrent-backend.ts'
import type { BaseEvent } from '../../../../src/events/event.ts'
import type { ExecutableFailedError } from '../../../../src/foundation/task-errors.ts'
import { Session } from '../../../../src/session/session.ts'
import { ComputeTask, type ExecutableOptions } from '../../../../src/tasks/compute-task.ts'
import type { TaskSpec } from '../../../../src/tasks/spec.ts'
import { eventually } from '../../../eventually.ts'
import { expectCompleted, openPool, processes } from './pool-driver.ts'

const shell = (script: string, options: Partial<ExecutableOptions> = {}) =>
  new ComputeTask({ executable: 'sh', arguments: ['-c', script], ...options })
const isAlive = (pid: number) => processes().some((each) => each.pid === pid)

async function openSession() {
  const session = new Session([await ConcurrentBackend.create({ name: 'local', cores: 4 })])
  onTestFinished(() => session.close())
  const telemetry = await session.startTelemetry()
  const events: BaseEvent[] = []
  telemetry.subscribe((event) => void events.push(event))
  const endOf = async ({ uid }: { uid: string }): Promise<BaseEvent['attributes']> => {
    await telemetry.flush()
    const end = events.findLast(({ task_id }) => task_id === uid)
    expect(end?.event_type).toMatch(/^Task(Completed|Failed|Canceled)$/)
    return end?.attributes ?? {}
  }
  return { session, endOf }
}

describe('output of programs', () => {
  it('output is kept after an exit code, a signal, a time-out and a cancellation', async () => {
    const { session, endOf } = await openSession()
    const much = `echo begin; echo error >&2; head -c 100000 /dev/zero | tr '\\0' x >&2`
    const failed = shell(`${much}; exit 4`)
    const killed = shell(`${much}; kill -9 $$`)
    const late = shell(`${much}; exec sleep 600`, { timeoutSeconds: 3 })
    const folder = await mkdtemp(join(tmpdir(), 'tutti-output-'))
    onTestFinished(() => rm(folder, { recursive: true }))
    const marker = join(folder, 'begun')
    const obeying = new ComputeTask({
      executable: 'sh',
      arguments: [
        '-c',
        `trap 'exit 0' TERM; ${much}; exec 2>&-; echo > "$0"; while :; do sleep 0.02; done`,
        marker,
      ],
    })
    const tasks = [failed, killed, late, obeying]
    await session.submitTasks(tasks)
    await eventually(() => readFile(marker))
    session.cancel(obeying)
    await session.waitTasks(tasks)
    expect(tasks.map(({ state }) => state)).toEqual(['FAILED', 'FAILED', 'FAILED', 'CANCELED'])
    for (const task of tasks) {
      expect(task.stdout).toBe('begin\n')
      expect(task.stderr).toBe(`error\n${'x'.repeat(100_000)}`)
      expect([task.stdoutTruncated, task.stderrTruncated]).toEqual([false, false])
      expect(await endOf(task)).not.toHaveProperty('stderr_truncated')
    }
    expect(tasks.map(({ exitCode }) => exitCode)).toEqual([4, undefined, undefined, 0])
    // Only the last part of the error.
    expect(failed.error).toMatchObject({ stdout: 'begin\n', stderrTruncated: true })
    expect((failed.error as ExecutableFailedError).stderr).toBe('x'.repeat(16_384))
    expect(await endOf(failed)).toMatchObject({ stdout_tail: 'begin\n' })
    expect((await endOf(failed))['stderr_tail']).toBe('x'.repeat(2048))
  })

  it('a program that never began has no output', async () => {
    const { session } = await openSession()
    const missing = new ComputeTask({ executable: '/no/such/program' })
    await session.submitTasks([missing])
    await session.waitTasks([missing])
    expect([missing.state, missing.stdout, missing.stdoutTruncated]).toEqual([
      'FAILED',
      undefined,
      undefined,
    ])
  })

  it('output beyond the bound is cut, and task, value, error and event say so', async () => {
    const { session, endOf } = await openSession()
    const much = (bytes: number) => `head -c ${bytes} /dev/zero | tr '\\0' x`
    const out = shell(much(131_073))
    const err = shell(`{ ${much(200_000)}; } >&2; exit 3`)
    const whole = shell(`${much(131_072)}; echo short >&2`)
    await session.submitTasks([out, err, whole])
    await session.waitTasks([out, err, whole])
    expect(await out).toMatchObject({ exitCode: 0, stdoutTruncated: true })
    expect(await out).not.toHaveProperty('stderrTruncated')
    expect([out.stdoutTruncated, out.stderrTruncated]).toEqual([true, false])
    expect(await endOf(out)).toMatchObject({ stdout_truncated: true })
    expect(await endOf(out)).not.toHaveProperty('stderr_truncated')

    expect(err.error).toMatchObject({ exitCode: 3, stderrTruncated: true })
    expect([err.stdoutTruncated, err.stderrTruncated]).toEqual([false, true])
    expect(await endOf(err)).toMatchObject({ stderr_truncated: true })

    expect(await whole).toEqual({
      stdout: 'x'.repeat(131_072),
      stderr: 'short\n',
      exitCode: 0,
    })
    expect([whole.stdoutTruncated, whole.stderrTruncated]).toEqual([false, false])
    expect(await endOf(whole)).not.toHaveProperty('stdout_truncated')
  })

  it('captureStdio keeps everything, and the end of the task names the files', async () => {
    const cwd = await realpath(await mkdtemp(join(tmpdir(), 'tutti-capture-')))
    onTestFinished(() => rm(cwd, { recursive: true }))
    const { session, endOf } = await openSession()
    const captureStdio = { stdout: 'out.txt', stderr: 'err.txt' }
    const script = 'head -c 1000000 /dev/zero; echo why >&2'
    const good = shell(script, { cwd, captureStdio })
    const bad = shell('echo no; exit 2', { cwd, captureStdio: { stdout: 'bad.txt' } })
    await session.submitTasks([good, bad])
    await session.waitTasks([good, bad])
    const [stdout, stderr] = [join(cwd, 'out.txt'), join(cwd, 'err.txt')]
    expect((await readFile(stdout)).length).toBe(1_000_000)
    expect(await readFile(stderr, 'utf8')).toBe('why\n')
    expect(good.stdoutTruncated).toBe(false)
    expect(await endOf(good)).toMatchObject({ stdout_path: stdout, stderr_path: stderr })
    expect(await endOf(bad)).toMatchObject({ stdout_path: join(cwd, 'bad.txt') })
    expect(await endOf(bad)).not.toHaveProperty('stderr_path')
  })
})

it('a program of a task that names its cores sees them, unless it was told otherwise', async () => {
  vi.stubEnv('OMP_NUM_THREADS', undefined)
  vi.stubEnv('TUTTI_CORES', undefined)
  onTestFinished(() => void vi.unstubAllEnvs())
  const { session } = await openSession()
  const show = (options: Partial<ExecutableOptions>) =>
    shell('echo "${TUTTI_CORES-none} ${OMP_NUM_THREADS-none}"', options)
  const tasks = [
    show({}),
    show({ resources: { memoryMb: 1 } }),
    show({ resources: { cores: 1 } }),
    show({ resources: { cores: 3 } }),
    show({ resources: { cores: 3 }, env: { OMP_NUM_THREADS: '7', TUTTI_CORES: '9' } }),
    show({ resources: { cores: 3 }, env: { OMP_NUM_THREADS: undefined } }),
  ]
  await session.submitTasks(tasks)
  await session.waitTasks(tasks)
  const seen = tasks.map(({ stdout }) => stdout?.trim())
  expect(seen).toEqual(['none none', 'none none', '1 1', '3 3', '3 7', '3 none'])
})

describe("the spec of a program's task is data", () => {
  const copies: [string, (spec: TaskSpec) => TaskSpec][] = [
    ['structuredClone', (spec) => structuredClone(spec)],
    ['v8.serialize', (spec) => deserialize(serialize(spec)) as TaskSpec],
    ['JSON', (spec) => JSON.parse(JSON.stringify(spec)) as TaskSpec],
  ]
  it.each(copies)('a copy by %s runs like the original', async (_, copy) => {
    vi.stubEnv('TUTTI_TEST_REMOVED', 'still here')
    onTestFinished(() => void vi.unstubAllEnvs())
    const bytes = Buffer.from([0, 255, 10, 128]).subarray(1, 4)
    const options: ExecutableOptions = {
      executable: 'sh',
      arguments: ['-c', 'od -An -tx1; echo "${TUTTI_TEST_REMOVED-removed} $A $TUTTI_CORES"'],
      env: { TUTTI_TEST_REMOVED: undefined, A: 'added' },
      stdin: bytes,
      resources: { cores: 2 },
      timeoutSeconds: 1000,
    }
    const { uid, spec, stdin, env } = new ComputeTask(options)
    expect(copy(spec)).toEqual(spec)
    expect([stdin, env]).toEqual([new Uint8Array(bytes), options.env])
    // Its bytes are its own.
    bytes.fill(1)
    const driver = openPool()
    const job: Job = { sessionId: 's', uid, attempt: 1, spec: copy(spec) }
    const { stdout } = expectCompleted(await driver.submitJob(job).ended)
    expect(stdout).toBe(' ff 0a 80\nremoved added 2\n')
  })
})

describe('what a program leaves in its process group', () => {
  it('a background process lives until its session closes, not the backend', async () => {
    const backend = await ConcurrentBackend.create({ name: 'local', cores: 2 })
    onTestFinished(() => backend.close())
    const [first, second] = [new Session([backend]), new Session([backend])]
    onTestFinished(() => second.close())
    const leave = async (session: Session, options: Partial<ExecutableOptions> = {}) => {
      const task = shell('sleep 1013 & echo $!', options)
      await session.submitTasks([task])
      return Number((await task).stdout)
    }
    const [mine, other] = [await leave(first), await leave(second)]
    const killed = await leave(first, { killBackground: true })
    expect([mine, other, killed].map(isAlive)).toEqual([true, true, false])
    await first.close({ keepBackends: true })
    expect([mine, other].map(isAlive)).toEqual([false, true])
    await second.close()
    expect(isAlive(other)).toBe(false)
  })
})
