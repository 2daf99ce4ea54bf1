import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, realpathSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { type Clock, systemClock } from '../../../../src/foundation/clock.ts'
import { ComputeTask } from '../../../../src/tasks/compute-task.ts'
import type { ProgramSpec } from '../../../../src/tasks/spec.ts'
import { eventually } from '../../../eventually.ts'
import { expectCompleted, expectFailed, openPool, processes, sharedPool } from './pool-driver.ts'

function tempFolder(): string {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'tutti-launchers-')))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

const shell = (script: string) => ({ executable: 'sh', arguments: ['-c', script] })

/** Uses this much processor time and 200 MB, however fast the machine is, and then waits. */
function busy(cpuSeconds: number, holdMs: number) {
  const script = `while (process.cpuUsage().user < ${cpuSeconds * 1e6});
    const bytes = Buffer.alloc(200_000_000, 1)
    setTimeout(() => bytes, ${holdMs})`
  return { executable: process.execPath, arguments: ['-e', script] }
}

describe.each(['auto', 'plain'] as const)('a launcher pool with the %s spawner', (spawner) => {
  const shared = sharedPool({ spawner, maxProcesses: 3 })

  it('a launcher pool runs a program and reports its start, end and output', async () => {
    const driver = shared()
    const before = systemClock.monotonicMs()
    const { job, started, ended } = driver.submit(shell('echo out; echo err >&2'))
    const last = await ended
    expect(expectCompleted(last)).toEqual({ stdout: 'out\n', stderr: 'err\n', exitCode: 0 })
    const start = await started
    expect(start).toMatchObject({ workerId: 'n/p1', nodeId: 'n' })
    expect(driver.reportsOf(job)).toEqual([start, last])
    const [began = 0, over = 0] = [start.at?.monotonicMs, last.at?.monotonicMs]
    expect(before).toBeLessThan(began)
    expect(began).toBeLessThan(over)
    expect(over).toBeLessThan(systemClock.monotonicMs())
    expect(Math.abs((start.at?.wallSeconds ?? 0) - systemClock.now())).toBeLessThan(60)
    expect(driver.finished).toHaveLength(1)
  })

  it('row 98: a launcher pool fails an incomplete spec, and runs the next program', async () => {
    const driver = shared()
    const { captureStdio: _, ...spec } = new ComputeTask({ executable: 'true' }).spec as ProgramSpec
    const job = { sessionId: 's', uid: 'incomplete', attempt: 1, spec: spec as ProgramSpec }
    expect(expectFailed(await driver.submitJob(job).ended)).toBeInstanceOf(TypeError)
    expect(expectCompleted(await driver.run(shell('echo next')))).toMatchObject({ exitCode: 0 })
  })

  it('a launcher pool reports the start of a long program before its end', async () => {
    const driver = shared()
    const { started, ended, job } = driver.submit({ executable: 'cat', arguments: ['/dev/zero'] })
    expect(await started).toMatchObject({ kind: 'start' })
    expect(driver.reportsOf(job)).toHaveLength(1)
    driver.pool.cancel(job, 'enough')
    expect(await ended).toMatchObject({ kind: 'cancel', reason: 'enough' })
  })

  it('a launcher pool gives a program its folder, arguments and environment changes', async () => {
    const folder = tempFolder()
    process.env['LAUNCHER_KEPT'] = 'kept'
    process.env['LAUNCHER_REMOVED'] = 'removed'
    onTestFinished(() => {
      delete process.env['LAUNCHER_KEPT']
      delete process.env['LAUNCHER_REMOVED']
    })
    const driver = openPool({ spawner })
    const script = 'pwd; echo "$LAUNCHER_KEPT,${LAUNCHER_REMOVED-none},$OWN"; printf "%s|" "$@"'
    const { stdout } = expectCompleted(
      await driver.run({
        executable: 'sh',
        arguments: ['-c', script, 'sh', 'a b', '', 'ü\n'],
        cwd: folder,
        env: { OWN: 'ö', LAUNCHER_REMOVED: undefined },
      }),
    )
    expect(stdout).toBe(`${folder}\nkept,none,ö\na b||ü\n|`)
  })

  it('a launcher pool passes variables that configure Node on to programs', async () => {
    process.env['NODE_OPTIONS'] = '--no-deprecation'
    onTestFinished(() => {
      delete process.env['NODE_OPTIONS']
    })
    const driver = openPool({ spawner })
    const script = 'echo "$NODE_OPTIONS,${NODE_CHANNEL_FD-none}"'
    const { stdout } = expectCompleted(await driver.run(shell(script)))
    expect(stdout).toBe('--no-deprecation,none\n')
  })

  it('a launcher pool runs a program in its folder, also with a relative path', async () => {
    const driver = shared()
    const run = driver.run({ executable: './sh', arguments: ['-c', 'pwd'], cwd: '/usr/bin' })
    expect(expectCompleted(await run).stdout).toBe('/usr/bin\n')
  })

  it('a launcher pool sets CUDA_VISIBLE_DEVICES only for a task that asked for GPUs', async () => {
    const driver = shared()
    const echo = shell('echo "${CUDA_VISIBLE_DEVICES-none}"')
    const asked = driver.submit({ ...echo, resources: { gpus: 2 } }, [0, 3])
    const other = driver.submit(echo, [])
    expect(expectCompleted(await asked.ended).stdout).toBe('0,3\n')
    expect(expectCompleted(await other.ended).stdout).toBe('none\n')
  })

  it('a launcher pool writes stdin of any size; without one it is empty', async () => {
    const driver = shared()
    const bytes = new Uint8Array(3_000_000).fill(120)
    const [small, big, none] = await Promise.all([
      driver.run({ executable: 'cat', stdin: 'grüße' }),
      driver.run({ executable: 'wc', arguments: ['-c'], stdin: bytes }),
      driver.run({ executable: 'cat' }),
    ])
    expect(expectCompleted(small).stdout).toBe('grüße')
    expect(expectCompleted(big).stdout.trim()).toBe('3000000')
    expect(expectCompleted(none).stdout).toBe('')
  })

  it('a program whose stdin and stdout are both full does not deadlock', async () => {
    const driver = openPool({ spawner, capture: { headBytes: 4_000_000, tailBytes: 1 } })
    const text = 'y'.repeat(2_000_000)
    expect(expectCompleted(await driver.run({ executable: 'cat', stdin: text })).stdout).toBe(text)
  })

  it('a launcher pool runs a shell command on demand, with literal arguments', async () => {
    const driver = shared()
    const run = driver.run({
      executable: 'echo "$1" | tr a-z A-Z',
      arguments: ['$(x) `y`'],
      shell: true,
    })
    expect(expectCompleted(await run).stdout).toBe('$(X) `Y`\n')
  })

  it('a launcher pool writes output to the files of captureStdio', async () => {
    const folder = tempFolder()
    const [out, both] = [join(folder, 'out'), join(folder, 'both')]
    const driver = shared()
    const first = driver.run({ ...shell('echo 1; echo 2 >&2'), captureStdio: { stdout: out } })
    expect(expectCompleted(await first)).toEqual({ stdout: '', stderr: '2\n', exitCode: 0 })
    expect(readFileSync(out, 'utf8')).toBe('1\n')
    await driver.run({
      ...shell('echo 1; echo 2 >&2; echo 3'),
      cwd: folder,
      captureStdio: { stdout: 'both', stderr: both },
    })
    expect(readFileSync(both, 'utf8')).toBe('1\n2\n3\n')
    const missing = await driver.run({
      ...shell('true'),
      captureStdio: { stderr: join(folder, 'no/x') },
    })
    expect(expectFailed(missing)).toMatchObject({ code: 'OutputFileError' })
  })

  it('a program inherits no open file but its three streams', async () => {
    const driver = shared()
    await driver.run({ executable: 'true' })
    const long = driver.submit({ executable: 'sleep', arguments: ['100'] })
    await long.started
    const script = 'ls /proc/$$/fd'
    const { stdout } = expectCompleted(await driver.run(shell(script)))
    // This process may have inherited open files.
    expect(stdout).toBe(execFileSync('sh', ['-c', script], { encoding: 'utf8' }))
    expect(stdout.startsWith('0\n1\n2\n')).toBe(true)
    driver.pool.cancel(long.job, 'over')
    await long.ended
  })

  it('a launcher pool restores default signals: a writer without a reader ends', async () => {
    const driver = shared()
    const script = 'yes | head -n 1; grep SigIgn /proc/self/status; grep SigBlk /proc/self/status'
    const { stdout } = expectCompleted(await driver.run(shell(script)))
    expect(stdout).toMatch(/^y\nSigIgn:\t0+\nSigBlk:\t0+\n$/)
  })

  it('a launcher pool reports the processor time and the peak memory of a program', async () => {
    const driver = shared()
    let holdMs = 100
    // Without koffi, usage is sampled while the program runs: it has to run long enough for that.
    await eventually(async () => {
      holdMs *= 2
      const last = await driver.run(busy(0.2, holdMs))
      expectCompleted(last)
      expect(last.facts?.cpuSeconds).toBeGreaterThanOrEqual(0.2)
      expect(last.facts?.peakMemoryBytes).toBeGreaterThan(200_000_000)
    })
    await eventually(async () => {
      const small = await driver.run({ executable: 'sleep', arguments: [`${holdMs / 1000}`] })
      expect(small.facts?.cpuSeconds).toBeLessThan(0.2)
      expect(small.facts?.peakMemoryBytes).toBeLessThan(20_000_000)
      expect(small.facts?.workerId).toBe('n/p1')
    })
  })

  it('a launcher pool runs at most maxProcesses programs at once', async () => {
    const driver = shared()
    expect(driver.pool.freeSlots).toBe(3)
    const runs = Array.from({ length: 9 }, () => driver.submit(shell('sleep 0.05')))
    expect(driver.pool.freeSlots).toBe(0)
    expect(driver.assigned).toBe(3)
    for (const { ended } of runs) expectCompleted(await ended)
    expect(driver.pool.freeSlots).toBe(3)
    expect(driver.finished).toHaveLength(9)
  })

  it('a launcher pool spreads programs over launchers, all children of this process', async () => {
    const driver = openPool({ spawner, launchers: 2, maxProcesses: 2 })
    const runs = [1, 2].map(() => driver.submit({ executable: 'sleep', arguments: ['100'] }))
    const workers = await Promise.all(runs.map(async ({ started }) => (await started).workerId))
    expect(workers.toSorted()).toEqual(['n/p1', 'n/p2'])
    const children = processes().filter(({ parent }) => parent === process.pid)
    expect(children.filter(({ command }) => command.startsWith('sleep'))).toEqual([])
  })
})

it('a launcher pool reports the usage of the shortest program, if koffi is installed', async () => {
  const driver = openPool()
  const { facts } = await driver.run({ executable: '/bin/true' })
  const script = 'while (process.cpuUsage().user < 2e5);'
  const longer = await driver.run({ executable: process.execPath, arguments: ['-e', script] })
  expect(facts?.cpuSeconds).toBeGreaterThan(0)
  expect(facts?.cpuSeconds).toBeLessThan(longer.facts?.cpuSeconds ?? 0)
})

it('a launcher pool sends the jobs that one turn assigns in one message', async () => {
  let turns = 0
  const clock: Clock = {
    now: () => systemClock.now(),
    monotonicMs: () => systemClock.monotonicMs(),
    after: (ms, callback, options) => systemClock.after(ms, callback, options),
    nextTurn(callback) {
      turns++
      systemClock.nextTurn(callback)
    },
  }
  const driver = openPool({ clock, maxProcesses: 50, launchers: 1 })
  const runs = Array.from({ length: 50 }, () => driver.submit({ executable: 'true' }))
  expect(turns).toBe(1)
  for (const { ended } of runs) expectCompleted(await ended)
})
