import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { describe, expect, it, onTestFinished } from 'vitest'
import { ConcurrentBackend } from '../../../../src/backends/local/concurrent-backend.ts'
import type { BaseEvent } from '../../../../src/events/event.ts'
import { BackendThrottled, WorkerLost } from '../../../../src/events/library-events.ts'
import { TimeoutError, WorkerLostError } from '../../../../src/foundation/errors.ts'
import { systemClock } from '../../../../src/foundation/clock.ts'
import type {
  ProgramUpdate,
  ProgramRequest,
  LauncherCommand,
} from '../../../../src/backends/local/programs/protocol.ts'
import { Session } from '../../../../src/session/session.ts'
import { ComputeTask } from '../../../../src/tasks/compute-task.ts'
import { ManualClock } from '../../../../src/testing/manual-clock.ts'
import { eventually } from '../../../eventually.ts'
import { type ChildExit, SupervisedChild } from '../../../../src/runtime/supervised-child.ts'
import { expectCompleted, expectFailed, launchersOf, openPool, processes } from './pool-driver.ts'

const shell = (script: string) => ({ executable: 'sh', arguments: ['-c', script] })
const sleeper = { executable: 'sleep', arguments: ['1000'] }
const membersOf = (group: number) => processes().filter((each) => each.group === group)
const isAlive = (pid: number) => processes().some((each) => each.pid === pid)

/** Resolves when the condition holds; otherwise the test's own time limit ends the wait. */
async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setImmediate(resolve))
}

/** A process of its own with a pool, and the lines that it prints. */
function startFixture(...args: string[]) {
  const file = join(import.meta.dirname, 'fixtures/run-programs.ts')
  const child = spawn(process.execPath, [file, ...args], { stdio: ['ignore', 'pipe', 'inherit'] })
  onTestFinished(() => {
    child.kill('SIGKILL')
  })
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  const exited = once(child, 'exit')
  return { child, pid: child.pid ?? 0, lines, exited }
}

describe('launchers that do not start', () => {
  /** No launcher starts until the returned function was called. */
  function breakLaunchers(): () => void {
    const node = process.execPath
    const restore = (): void => {
      process.execPath = node
    }
    onTestFinished(restore)
    process.execPath = '/bin/false'
    return restore
  }

  it('row 22: starts that fail come with growing delays, one at a time', async () => {
    const warnings: string[] = []
    const clock = new ManualClock()
    const log = { warn: (code: string) => void warnings.push(code) }
    const driver = openPool({ clock, log, launchers: 2 })
    const restore = breakLaunchers()
    const runs = [1, 2, 3].map(() => driver.submit({ executable: 'true' }))
    const ofType = (type: unknown) =>
      driver.notices.filter((notice) => notice.kind === 'event' && notice.type === type)
    const lost = (): number => ofType(WorkerLost).length
    await eventually(() => expect(lost()).toBe(2))
    let starts = 2
    for (const delayMs of [1000, 2000, 4000, 8000, 16_000, 30_000]) {
      expect(ofType(BackendThrottled)).toHaveLength(starts - 1)
      expect(driver.pool.freeSlots).toBe(0)
      await clock.advance(delayMs - 1)
      expect(lost()).toBe(starts)
      await clock.advance(1)
      starts++
      await eventually(() => expect(lost()).toBe(starts))
      if (starts < 5) expect(driver.pool.refusal()).toBeNull()
      else expect(driver.pool.refusal()).toMatchObject({ code: 'WorkersDoNotStartError' })
    }
    expect(warnings).toEqual(['LaunchersBroken'])
    const reason = expect.stringMatching(/exit code 1; the next one is started in 1 s/) as string
    expect(ofType(BackendThrottled)[0]).toMatchObject({ fields: { reason, limit: 0 } })
    for (const { job } of runs) expect(driver.reportsOf(job)).toEqual([])
    restore()
    await clock.advance(30_000)
    for (const { ended } of runs) expectCompleted(await ended)
    expect(driver.pool.refusal()).toBeNull()
  })

  it('row 112: queued programs wait until launchers start again, without a retry', async () => {
    const clock = new ManualClock()
    const backend = await ConcurrentBackend.create({ maxProcesses: 3, clock })
    const session = new Session([backend])
    onTestFinished(() => session.close())
    const events: BaseEvent[] = []
    const telemetry = await session.startTelemetry()
    telemetry.subscribe((event) => void events.push(event))
    const count = (type: string) => events.filter(({ event_type }) => event_type === type).length
    const restore = breakLaunchers()
    const tasks = Array.from({ length: 20 }, () => new ComputeTask({ executable: 'true' }))
    await session.submitTasks(tasks)
    for (let starts = 1; starts <= 5; starts++) {
      await eventually(() => expect(count('tutti.BackendThrottled')).toBe(starts))
      if (starts < 5) await clock.advance(1000 * 2 ** (starts - 1))
    }
    const late = new ComputeTask({ executable: 'true' })
    await expect(session.submitTasks([late])).rejects.toMatchObject({
      code: 'WorkersDoNotStartError',
      message: expect.stringContaining('exit code 1') as string,
    })
    restore()
    await clock.advance(16_000)
    for (const task of tasks) expect(await task).toMatchObject({ exitCode: 0 })
    await session.submitTasks([late])
    expect(await late).toMatchObject({ exitCode: 0 })
    await telemetry.flush()
    expect([count('tutti.TaskAttempt'), count('TaskFailed')]).toEqual([0, 0])
  })

  it('a program that kills every launcher before its start is reported fails', async () => {
    const driver = openPool()
    const killer = { executable: 'sh', arguments: ['-c', 'kill -KILL $PPID; sleep 1000'] }
    const error = expectFailed(await driver.run(killer))
    expect(error).toBeInstanceOf(WorkerLostError)
    expectCompleted(await driver.run({ executable: 'true' }))
  })
})

it('row 19: a launcher that ends by an error of its own kills its programs first', async () => {
  const started = Promise.withResolvers<number>()
  const exited = Promise.withResolvers<ChildExit>()
  const { PATH = '' } = process.env
  const capture = { headBytes: 10, tailBytes: 10 }
  const launcher = new SupervisedChild<LauncherCommand, ProgramUpdate>({
    program: new URL('../../../../src/backends/local/programs/launcher.ts', import.meta.url),
    clock: systemClock,
    isDetached: true,
    stderr: 'capture',
    firstMessage: {
      kind: 'setup',
      setup: { graceMs: 60_000, capture, spawner: 'auto', environment: { PATH } },
    },
    onMessages: ([update]) => update?.kind === 'started' && started.resolve(update.pid),
    onExit: exited.resolve,
  })
  onTestFinished(() => launcher.kill())
  const spec = { arguments: ['1003'], cwd: '/', env: null, stdin: null, shell: false }
  const files = { stdoutFile: null, stderrFile: null, timeoutMs: null }
  const rest = { cores: null, killBackground: false, isFollowed: false, owner: 's', ...files }
  launcher.post({ kind: 'start', request: { id: 1, executable: 'sleep', ...spec, ...rest } })
  const pid = await started.promise
  expect(isAlive(pid)).toBe(true)
  launcher.post({ kind: 'start', request: null as unknown as ProgramRequest })
  expect(await exited.promise).toMatchObject({ code: 1, signal: null })
  await until(() => !isAlive(pid))
})

describe.each(['auto', 'plain'] as const)('stopping programs with the %s spawner', (spawner) => {
  it('row 11: programs that ignore SIGTERM end with their grandchildren, once', async () => {
    const driver = openPool({ spawner, graceSeconds: 0.2 })
    const script = "trap '' TERM; sleep 1000 & sleep 1000 & wait; wait; sleep 1000"
    const run = driver.submit(shell(script))
    await run.started
    const group = processes().find(({ command }) => command.includes(script))?.pid ?? 0
    await until(() => membersOf(group).length === 3)
    driver.pool.cancel(run.job, 'enough')
    driver.pool.cancel(run.job, 'again')
    const last = await run.ended
    expect(last).toMatchObject({ kind: 'cancel', reason: 'enough', facts: { workerId: 'n/p1' } })
    expect(membersOf(group)).toEqual([])
    await driver.pool.close('over')
    expect(driver.reportsOf(run.job).map(({ kind }) => kind)).toEqual(['start', 'cancel'])
    expect(driver.finished).toHaveLength(1)
  })

  it('row 11: grandchildren that ignore SIGTERM end when the program itself obeys', async () => {
    const driver = openPool({ spawner, graceSeconds: 0.1 })
    const run = driver.submit(shell("(trap '' TERM; sleep 1001; sleep 1001) & sleep 1001"))
    await run.started
    const find = () => processes().filter(({ command }) => command === 'sleep 1001')
    await until(() => find().length === 2)
    const group = find()[0]?.group ?? 0
    driver.pool.cancel(run.job, 'enough')
    expect((await run.ended).kind).toBe('cancel')
    expect(membersOf(group)).toEqual([])
  })

  it('a program that ends by itself within the grace is not killed', async () => {
    const driver = openPool({ spawner, graceSeconds: 1000 })
    const script = "trap 'echo bye; exit 0' TERM; echo hi; sleep 1004 & wait"
    const run = driver.submit(shell(script))
    await run.started
    const group = processes().find(({ command }) => command.includes(script))?.pid ?? 0
    // Before that, the signal may come while the shell forks, and miss the new process.
    await until(() => membersOf(group).some(({ command }) => command.startsWith('sleep')))
    driver.pool.cancel(run.job, 'enough')
    expect(await run.ended).toMatchObject({ kind: 'cancel', facts: { exitCode: 0 } })
  })

  it('a program is stopped at its time limit, and the error names the seconds', async () => {
    const driver = openPool({ spawner })
    let timeoutSeconds = 0.1
    let written: string | undefined
    // On a loaded machine the shell may need longer before it writes anything.
    while (written !== 'early\n') {
      timeoutSeconds *= 2
      const last = await driver.run({ ...shell('echo early; exec sleep 1000'), timeoutSeconds })
      const error = expectFailed(last)
      expect(error).toBeInstanceOf(TimeoutError)
      expect(error.message).toContain(`${timeoutSeconds} s`)
      expect(last.facts).toMatchObject({ signal: 'SIGTERM' })
      written = last.facts?.stdoutTail
    }
    expectCompleted(await driver.run({ executable: 'true', timeoutSeconds: 100 }))
  })

  it('row 23: a program that was not sent yet is canceled at once and never runs', async () => {
    const driver = openPool({ spawner })
    const run = driver.submit({ executable: 'true' })
    driver.pool.cancel(run.job, 'before')
    expect(driver.reportsOf(run.job)).toEqual([{ kind: 'cancel', reason: 'before' }])
    expect(driver.finished).toHaveLength(1)
    driver.pool.cancel(run.job, 'again')
    expectCompleted(await driver.run({ executable: 'true' }))
    expect(driver.reportsOf(run.job)).toHaveLength(1)
  })

  it('row 23: an exit and a cancellation at the same time give one report', async () => {
    const driver = openPool({ spawner, maxProcesses: 8 })
    const runs = Array.from({ length: 40 }, () => driver.submit({ executable: 'true' }))
    for (const { started, job } of runs) {
      void started.then(() => driver.pool.cancel(job, 'raced'))
    }
    for (const { ended } of runs) expect(['complete', 'cancel']).toContain((await ended).kind)
    for (const { job } of runs) driver.pool.cancel(job, 'late')
    for (const { job } of runs) {
      const kinds = driver.reportsOf(job).map(({ kind }) => kind)
      expect(kinds.filter((kind) => kind !== 'start')).toHaveLength(1)
      expect(kinds.at(-1)).not.toBe('start')
    }
    expect(driver.finished).toHaveLength(40)
  })

  it('close cancels everything, leaves no process, and gives all callers one promise', async () => {
    const driver = openPool({ spawner, maxProcesses: 3, launchers: 2 })
    const runs = [1, 2, 3].map(() => driver.submit(sleeper))
    await Promise.all(runs.map(({ started }) => started))
    const unsent = openPool({ spawner }).submit(sleeper)
    const launchers = launchersOf(process.pid).map(({ pid }) => pid)
    expect(launchers.length).toBeGreaterThanOrEqual(2)
    const closing = driver.pool.close('the end')
    expect(driver.pool.close('again')).toBe(closing)
    await closing
    for (const { job } of runs) {
      expect(driver.reportsOf(job).at(-1)).toMatchObject({ kind: 'cancel', reason: 'the end' })
    }
    expect(launchersOf(process.pid).filter(({ pid }) => launchers.includes(pid))).toEqual([])
    expect(driver.notices).toEqual([])
    const late = driver.submit(sleeper)
    expect(await late.ended).toMatchObject({ kind: 'cancel', reason: 'the end' })
    void unsent
  })

  it('a pool that never started a program can be closed', async () => {
    await openPool({ spawner }).pool.close('nothing to do')
    expect(launchersOf(process.pid)).toEqual([])
  })

  it('row 19: programs of a killed launcher are killed, and it is replaced', async () => {
    const driver = openPool({ spawner, maxProcesses: 3 })
    const runs = [1, 2].map(() => driver.submit(shell('sleep 1002 & sleep 1002')))
    await Promise.all(runs.map(({ started }) => started))
    const find = () => processes().filter(({ command }) => command === 'sleep 1002')
    await until(() => find().length === 4)
    const [launcher] = launchersOf(process.pid)
    process.kill(launcher?.pid ?? 0, 'SIGKILL')
    for (const { ended, job } of runs) {
      const error = expectFailed(await ended)
      expect(error).toBeInstanceOf(WorkerLostError)
      expect(error.message).toContain('n/p1')
      expect(error.message).toContain('SIGKILL')
      expect(driver.reportsOf(job)).toHaveLength(2)
    }
    await until(() => find().length === 0)
    const tasks = runs.map(({ job }) => job.uid)
    expect(driver.notices).toMatchObject([
      { type: WorkerLost, fields: { worker_id: 'n/p1', tasks } },
    ])
    const next = driver.submit({ executable: 'true' })
    expectCompleted(await next.ended)
    expect(await next.started).toMatchObject({ workerId: 'n/p2' })
    expect(driver.finished).toHaveLength(3)
  })

  it('the pool gets jobs back that a killed launcher had not begun', async () => {
    const driver = openPool({ spawner, maxProcesses: 3 })
    const first = driver.submit(sleeper)
    await first.started
    const [launcher] = launchersOf(process.pid)
    process.kill(launcher?.pid ?? 0, 'SIGSTOP')
    const second = driver.submit({ executable: 'true' })
    await new Promise((resolve) => setImmediate(() => setImmediate(resolve)))
    process.kill(launcher?.pid ?? 0, 'SIGKILL')
    expectFailed(await first.ended)
    expectCompleted(await second.ended)
    expect(driver.givenBack).toEqual([second.job])
    expect(driver.reportsOf(second.job).map(({ kind }) => kind)).toEqual(['start', 'complete'])
  })

  it('no program is left when the process of the pool is killed', async () => {
    const { pid, lines, child } = startFixture(spawner, '2', '2', 'sleep', '1003')
    await lines.next()
    await lines.next()
    const left = launchersOf(pid).map((launcher) => launcher.pid)
    expect(left).toHaveLength(1)
    child.kill('SIGKILL')
    await until(() => !left.some(isAlive))
    await until(() => !processes().some(({ command }) => command === 'sleep 1003'))
  })

  it('the pool keeps its process alive only while a program runs', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'tutti-alive-'))
    onTestFinished(() => rmSync(folder, { recursive: true }))
    const go = join(folder, 'go')
    const script = `until [ -e ${go} ]; do sleep 0.05; done`
    const { pid, lines, exited } = startFixture(spawner, '1', '2', 'sh', '-c', script)
    await lines.next()
    const launchers = launchersOf(pid).map((launcher) => launcher.pid)
    expect(launchers).toHaveLength(1)
    writeFileSync(go, '')
    expect(await exited).toEqual([0, null])
    await lines.next()
    expect(JSON.parse(String((await lines.next()).value))).toMatchObject({ complete: 2, fail: 0 })
    await until(() => !launchers.some(isAlive))
  })
})
