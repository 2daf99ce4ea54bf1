import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { describe, expect, it, onTestFinished } from 'vitest'
import { BackgroundGroups } from '../../../../src/backends/local/programs/background-groups.ts'
import { ComputeTask, type ExecutableOptions } from '../../../../src/tasks/compute-task.ts'
import type { ProgramSpec } from '../../../../src/tasks/spec.ts'
import { eventually } from '../../../eventually.ts'
import { byRun, chooseSeed, createRandom, hangMs } from '../../../long-run.ts'
import {
  expectCompleted,
  launchersOf,
  openPool,
  type PoolDriver,
  processes,
} from './pool-driver.ts'

const withCommand = (command: string) =>
  processes()
    .filter((each) => each.command.includes(command))
    .map(({ pid }) => pid)

/** Kills a driver after some starts of short programs; gives what is left of its programs. */
async function killDuringBurst(spawner: string, starts: number, mark: string): Promise<void> {
  // Every program leaves a background child, and every fifth does not end either.
  const script = `sleep ${mark} & [ $(($$ % 5)) = 0 ] && exec sleep ${mark}; exit 0`
  const file = join(import.meta.dirname, 'fixtures/run-programs.ts')
  const args = [file, spawner, '32', '400', 'sh', '-c', script]
  const driver = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  let seen = 0
  for await (const _ of createInterface({ input: driver.stdout })) if (++seen === starts) break
  const launchers = launchersOf(driver.pid ?? 0)
  expect(launchers).not.toEqual([])
  driver.kill('SIGKILL')
  await eventually(() => {
    const alive = new Set(processes().map(({ pid }) => pid))
    expect(launchers.filter(({ pid }) => alive.has(pid))).toEqual([])
  })
}

it.each(['auto', 'plain'])(
  'row 105: a driver that is killed during a burst leaves no program, with the %s spawner',
  async (spawner) => {
    const random = createRandom(chooseSeed())
    const mark = `100${spawner.length}.5`
    onTestFinished(() => {
      for (const pid of withCommand(`sleep ${mark}`)) process.kill(pid, 'SIGKILL')
    })
    for (let kill = 0; kill < byRun(3, 100); kill++) {
      await killDuringBurst(spawner, 1 + Math.floor(random() * 60), mark)
      await eventually(() => expect(withCommand(`sleep ${mark}`)).toEqual([]))
    }
  },
  byRun(1, 20) * hangMs,
)

const shell = (script: string) => ({ executable: 'sh', arguments: ['-c', script] })
const isAlive = (pid: number) => processes().some((each) => each.pid === pid)

describe.each(['auto', 'plain'] as const)('background children with the %s spawner', (spawner) => {
  /** Runs a program that leaves a child behind, and gives the child's id. */
  async function leaveBehind(pool: PoolDriver, options: Partial<ExecutableOptions> = {}) {
    const report = await pool.run({ ...shell('sleep 1006 & echo $!'), ...options })
    const pid = Number(expectCompleted(report).stdout)
    onTestFinished(() => {
      if (isAlive(pid)) process.kill(pid, 'SIGKILL')
    })
    return pid
  }

  it.each(['SIGKILL', 'SIGTERM'] as const)(
    'row 105: %s to a launcher ends what its programs left behind',
    async (signal) => {
      const driver = openPool({ spawner })
      const left = [await leaveBehind(driver), await leaveBehind(driver)]
      expect(left.map(isAlive)).toEqual([true, true])
      const [launcher] = launchersOf(process.pid)
      process.kill(launcher?.pid ?? 0, signal)
      await eventually(() => expect(left.map(isAlive)).toEqual([false, false]))
    },
  )

  it('row 105: a program that a killed launcher could not report is killed', async () => {
    const driver = openPool({ spawner, maxProcesses: 40, launchers: 1 })
    await driver.run({ executable: 'true' })
    const [launcher] = launchersOf(process.pid)
    const runs = Array.from({ length: 40 }, () =>
      driver.submit(shell('sleep 1007 & exec sleep 1007')),
    )
    onTestFinished(() => {
      for (const pid of withCommand('sleep 1007')) process.kill(pid, 'SIGKILL')
    })
    // In the middle of the burst: most starts are not reported yet.
    await eventually(() => expect(withCommand('sleep 1007')).not.toEqual([]))
    process.kill(launcher?.pid ?? 0, 'SIGKILL')
    await driver.nextNotice()
    for (const { job } of runs) driver.pool.cancel(job, 'over')
    for (const { ended } of runs) await ended
    await eventually(() => expect(withCommand('sleep 1007')).toEqual([]))
  })

  it('killBackground ends what a program leaves in its group before its task ends', async () => {
    const driver = openPool({ spawner, graceSeconds: 0.1 })
    const deaf = shell("(trap '' TERM; sleep 1006; sleep 1006) & echo $!")
    const pid = await leaveBehind(driver, { ...deaf, killBackground: true })
    expect(isAlive(pid)).toBe(false)
  })

  it.each(['its own end', 'a cancel', 'the end of its launcher'])(
    'a program that is followed takes what has left its group with it: %s',
    async (how) => {
      const driver = openPool({ spawner, graceSeconds: 0.1 })
      const folder = mkdtempSync(join(tmpdir(), 'tutti-followed-'))
      onTestFinished(() => rmSync(folder, { recursive: true }))
      const tell = 'echo \\$\\$ > pid.new; mv pid.new pid'
      const daemon = `setsid sh -c "trap '' TERM; ${tell}; sleep 1009"`
      const rest = how === 'its own end' ? 'until [ -e pid ]; do sleep 0.01; done' : 'sleep 1009'
      const { spec, uid } = new ComputeTask({ ...shell(`${daemon} & ${rest}`), cwd: folder })
      const followed = { ...spec, killBackground: true, isFollowed: true } as ProgramSpec
      const run = driver.submitJob({ sessionId: 's', uid, attempt: 1, spec: followed })
      const pid = await eventually(() => Number(readFileSync(join(folder, 'pid'), 'utf8')))
      onTestFinished(() => {
        if (isAlive(pid)) process.kill(pid, 'SIGKILL')
      })
      if (how === 'a cancel') driver.pool.cancel(run.job, 'enough')
      if (how === 'the end of its launcher') {
        process.kill(launchersOf(process.pid)[0]?.pid ?? 0, 'SIGTERM')
        return eventually(() => expect(isAlive(pid)).toBe(false))
      }
      await run.ended
      expect(isAlive(pid)).toBe(false)
    },
  )

  it('a background process lives until its own session or the pool closes', async () => {
    const driver = openPool({ spawner, graceSeconds: 0.1 })
    const deaf = shell("(trap '' TERM; sleep 1006; sleep 1006) & echo $!")
    const pids = [await leaveBehind(driver), await leaveBehind(driver, deaf)]
    const daemon = await leaveBehind(driver, shell('setsid sleep 1006 & echo $!'))
    await eventually(() => {
      expect(processes()).toContainEqual(expect.objectContaining({ pid: daemon, group: daemon }))
    })
    await driver.pool.endBackground('another session')
    expect(pids.map(isAlive)).toEqual([true, true])
    await driver.pool.endBackground('s')
    expect(pids.map(isAlive)).toEqual([false, false])
    const later = await leaveBehind(driver)
    await driver.pool.close('over')
    expect(isAlive(later)).toBe(false)
    // A process that left its group is not ours to end.
    expect(isAlive(daemon)).toBe(true)
  })

  it.each([
    ['a child that comes late', '(until [ -e $1 ]; do sleep 0.05; done; sleep $2 &) & exit 0'],
    ['children that replace each other', '(sleep 0.2; sh -c "$0" "$0" $1 $2) & exit 0'],
  ])(
    'a session that closes ends the processes that a program left behind: %s',
    async (_, script) => {
      const driver = openPool({ spawner, graceSeconds: 0.1 })
      const mark = `1009.${process.pid}${spawner.length}`
      const members = () => {
        const groups = processes().filter(({ command }) => command.endsWith(mark))
        return processes().filter(({ group }) => groups.some((each) => each.group === group))
      }
      onTestFinished(() => {
        for (const { pid } of members()) process.kill(pid, 'SIGKILL')
      })
      const folder = mkdtempSync(join(tmpdir(), 'tutti-late-'))
      onTestFinished(() => rmSync(folder, { recursive: true }))
      const go = join(folder, 'go')
      await driver.run({ executable: 'sh', arguments: ['-c', script, script, go, mark] })
      // Between two of them there may be none for a moment.
      const first = await eventually(() => {
        const pids = members().map(({ pid }) => pid)
        expect(pids).not.toEqual([])
        return pids
      })
      // Only now: a busy machine would not see what was there before the child.
      writeFileSync(go, '')
      await eventually(() => {
        expect(members()).not.toEqual([])
        expect(members().filter(({ pid }) => first.includes(pid))).toEqual([])
      })
      await driver.pool.endBackground('s')
      expect(members()).toEqual([])
    },
  )
})

describe('BackgroundGroups', () => {
  function startGroup() {
    const child = spawn('sleep', ['1008'], { detached: true, stdio: 'ignore' })
    onTestFinished(() => {
      child.kill('SIGKILL')
    })
    return { pid: child.pid ?? 0, exited: once(child, 'exit') }
  }

  it('BackgroundGroups ends the groups of one owner, and forgets a reused group id', async () => {
    const [mine, other, renewed] = [startGroup(), startGroup(), startGroup()]
    const groups = new BackgroundGroups('TUTTI_LAUNCHER=none')
    groups.add(mine.pid, 'mine')
    groups.add(other.pid, 'other')
    groups.add(renewed.pid, 'mine')
    groups.delete(renewed.pid)
    await groups.end('mine', 60_000)
    expect(await mine.exited).toEqual([null, 'SIGTERM'])
    expect([isAlive(other.pid), isAlive(renewed.pid)]).toEqual([true, true])
    groups.killAll()
    expect(await other.exited).toEqual([null, 'SIGKILL'])
    expect(isAlive(renewed.pid)).toBe(true)
  })

  it('BackgroundGroups does not signal a group of which it knows no member', async () => {
    const script = 'read line; sleep 1008 & echo $!'
    const leader = spawn('sh', ['-c', script], {
      detached: true,
      stdio: ['pipe', 'pipe', 'ignore'],
    })
    const groups = new BackgroundGroups('TUTTI_LAUNCHER=none')
    groups.add(leader.pid ?? 0, 'owner')
    // Looks at all groups: the leader is the only member.
    await groups.end('somebody else', 0)
    leader.stdin.end('go\n')
    const [line] = await once(createInterface({ input: leader.stdout }), 'line')
    onTestFinished(() => void process.kill(Number(line), 'SIGKILL'))
    if (leader.exitCode === null) await once(leader, 'exit')
    await groups.end('owner', 0)
    groups.killAll()
    await once(spawn('true'), 'exit')
    expect(isAlive(Number(line))).toBe(true)
  })
})
