import { spawnSync } from 'node:child_process'
import { chmodSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { WorkerLost } from '../../../../src/events/library-events.ts'
import { sleep, systemClock } from '../../../../src/foundation/clock.ts'
import { WorkerLostError } from '../../../../src/foundation/errors.ts'
import { ManualClock } from '../../../../src/testing/manual-clock.ts'
import { eventually } from '../../../eventually.ts'
import {
  expectCompleted,
  expectFailed,
  type LastReport,
  launchersOf,
  openPool,
  processes,
} from './pool-driver.ts'

const sleeper = { executable: 'sleep', arguments: ['1010'] }
const sleepers = () => processes().filter(({ command }) => command === 'sleep 1010')
const launcherPid = () => launchersOf(process.pid)[0]?.pid ?? 0

function tempFolder(): string {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'tutti-watch-')))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

describe.each(['auto', 'plain'] as const)('watching launchers with the %s spawner', (spawner) => {
  it('row 108: a launcher that does not answer is replaced and its programs end', async () => {
    const clock = new ManualClock()
    const driver = openPool({ spawner, clock, answerTimeoutSeconds: 30, maxProcesses: 3 })
    const begun = [driver.submit(sleeper), driver.submit(sleeper)]
    for (const { started } of begun) await started
    await eventually(() => expect(sleepers()).toHaveLength(2))
    const stopped = launcherPid()
    process.kill(stopped, 'SIGSTOP')
    const waiting = driver.submit({ executable: 'echo', arguments: ['moved'] })
    await clock.advance(39_000)
    expect(driver.notices).toEqual([])
    await clock.advance(1000)
    for (const { ended } of begun) {
      const error = expectFailed(await ended)
      expect(error).toBeInstanceOf(WorkerLostError)
      expect(error.message).toBe('launcher n/p1 was lost: it did not answer for 30 s')
    }
    const tasks = begun.map(({ job }) => job.uid)
    const fields = { worker_id: 'n/p1', reason: 'it did not answer for 30 s', tasks }
    expect(driver.notices).toMatchObject([{ type: WorkerLost, fields }])
    expect(expectCompleted(await waiting.ended).stdout).toBe('moved\n')
    expect(await waiting.started).toMatchObject({ workerId: 'n/p2' })
    await eventually(() => expect(sleepers()).toEqual([]))
    await eventually(() => expect(processes().map(({ pid }) => pid)).not.toContain(stopped))
    expect(driver.givenBack).toEqual([waiting.job])
    for (const { job } of begun) expect(driver.reportsOf(job)).toHaveLength(2)
  })

  it('row 108: a launcher that answered between two checks is replaced as early', async () => {
    const clock = new ManualClock()
    const driver = openPool({ spawner, clock, answerTimeoutSeconds: 30, maxProcesses: 3 })
    const first = driver.submit(sleeper)
    await first.started
    await clock.advance(400)
    const second = driver.submit(sleeper)
    await second.started
    process.kill(launcherPid(), 'SIGSTOP')
    await clock.advance(39_600)
    for (const { ended } of [first, second]) {
      expect(expectFailed(await ended).message).toContain('it did not answer for 30 s')
    }
  })

  it('row 108: a launcher that answers is kept however long its programs run', async () => {
    const clock = new ManualClock()
    const driver = openPool({ spawner, clock, answerTimeoutSeconds: 30 })
    const long = driver.submit(sleeper)
    await long.started
    for (let minute = 0; minute < 10; minute++) {
      for (let step = 0; step < 6; step++) {
        await clock.advance(10_000)
        // Its answer is read before this one's end.
        expectCompleted(await driver.run({ executable: 'true' }))
      }
    }
    expect(driver.notices).toEqual([])
    driver.pool.cancel(long.job, 'over')
    expect((await long.ended).kind).toBe('cancel')
  })

  it('row 108: a program that no launcher answers about is given up after three', async () => {
    const clock = new ManualClock()
    const driver = openPool({
      spawner,
      clock,
      answerTimeoutSeconds: 30,
      maxProcesses: 3,
      launchers: 3,
    })
    const first = [1, 2, 3].map(() => driver.submit(sleeper))
    for (const { started } of first) await started
    for (const { job } of first) driver.pool.cancel(job, 'enough')
    for (const { ended } of first) await ended
    for (const { pid } of launchersOf(process.pid)) process.kill(pid, 'SIGSTOP')
    const run = driver.submit({ executable: 'true' })
    await clock.advance(120_000)
    const error = expectFailed(await run.ended)
    expect(error).toBeInstanceOf(WorkerLostError)
    expect(error.message).toBe('launcher n/p3 was lost: it did not answer for 30 s')
    expect(driver.givenBack).toEqual([run.job, run.job])
    expect(driver.reportsOf(run.job)).toHaveLength(1)
  })

  it('a launcher that is stopped while it starts is replaced', async () => {
    const node = process.execPath
    const stub = join(tempFolder(), 'node')
    writeFileSync(stub, `#!/bin/sh\nkill -STOP $$; exec ${node} "$@"\n`)
    chmodSync(stub, 0o755)
    onTestFinished(() => {
      process.execPath = node
    })
    const clock = new ManualClock()
    const driver = openPool({ spawner, clock, answerTimeoutSeconds: 30 })
    process.execPath = stub
    const run = driver.submit({ executable: 'true', timeoutSeconds: 1000 })
    await eventually(() => {
      const states = processes().filter(({ parent }) => parent === process.pid)
      expect(states).toContainEqual(expect.objectContaining({ state: 'T' }))
    })
    process.execPath = node
    const lost = driver.nextNotice()
    await clock.advance(60_000)
    await lost
    // The delay after a start that failed.
    await clock.advance(1000)
    expectCompleted(await run.ended)
    expect(driver.givenBack).toEqual([run.job])
  })

  it('a program that ended while its launcher was stopped has not timed out', async () => {
    const fifo = join(tempFolder(), 'fifo')
    expect(spawnSync('mkfifo', [fifo]).status).toBe(0)
    const driver = openPool({ spawner })
    const isReading = () => processes().some(({ command }) => command === `cat ${fifo}`)
    let timeoutSeconds = 0.5
    let outcome: LastReport | null = null
    while (outcome === null) {
      // Longer on a machine that is too busy to do all of this in time.
      timeoutSeconds *= 2
      const from = systemClock.monotonicMs()
      const isInTime = () => systemClock.monotonicMs() - from < timeoutSeconds * 1000
      const run = driver.submit({ executable: 'cat', arguments: [fifo], timeoutSeconds })
      await run.started
      process.kill(launcherPid(), 'SIGSTOP')
      const wasStoppedInTime = isInTime()
      if (wasStoppedInTime) writeFileSync(fifo, 'in time\n')
      if (wasStoppedInTime) await eventually(() => expect(isReading()).toBe(false))
      const hasEndedInTime = wasStoppedInTime && isInTime()
      if (hasEndedInTime) await sleep(systemClock, timeoutSeconds * 1000)
      process.kill(launcherPid(), 'SIGCONT')
      const report = await run.ended
      if (hasEndedInTime) outcome = report
    }
    expect(expectCompleted(outcome).stdout).toBe('in time\n')
  })
})
