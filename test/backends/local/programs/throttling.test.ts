import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { ConcurrencyLimit } from '../../../../src/backends/local/programs/launcher-pool.ts'
import { isResourceShortage } from '../../../../src/backends/local/programs/protocol.ts'
import { byRun, hangMs } from '../../../long-run.ts'
import { needs, requirement } from '../../../require.ts'
import { expectCompleted, openPool } from './pool-driver.ts'

/** Runs programs in a process of its own under limits, and gives its last line. */
function runLimited(limits: string, ...args: string[]) {
  return runFixture('run-programs.ts', limits, args)
}

function runFixture(name: string, limits: string, args: readonly string[]) {
  const file = join(import.meta.dirname, 'fixtures', name)
  const script = `${limits}; exec "$@"`
  const command = ['-c', script, 'bash', process.execPath, file, ...args]
  const { stdout, stderr } = spawnSync('bash', command, {
    encoding: 'utf8',
    maxBuffer: 1 << 26,
    timeout: hangMs * 0.9,
  })
  const last = stdout.trim().split('\n').at(-1) ?? ''
  if (!last.startsWith('{')) throw new Error(`no result: ${last} ${stderr}`)
  return { ...(JSON.parse(last) as Record<string, number>), stderr }
}

describe.each(['auto', 'plain'])('few file descriptors, with the %s spawner', (spawner) => {
  it('row 29: too few file descriptors slow the pool down and lose nothing', () => {
    const count = spawner === 'auto' ? 2000 : 400
    const result = runLimited('ulimit -n 64', spawner, '64', String(count), '/bin/true')
    expect(result).toMatchObject({ complete: count, fail: 0, cancel: 0, stderr: '' })
    expect(result).toMatchObject({ throttled: expect.any(Number), lowest: expect.any(Number) })
    expect(Reflect.get(result, 'throttled')).toBeGreaterThan(0)
    expect(Reflect.get(result, 'lowest')).toBeLessThan(64)
  })
})

const canDropRights = requirement(process.getuid?.() === 0, 'needs root, to become another user')
needs(canDropRights)('row 29: too few processes slow the pool down and lose nothing', () => {
  const become =
    'setpriv --reuid 54321 --clear-groups -- bash -c \'ulimit -u 40; exec "$@"\' bash "$@"; exit'
  const result = runLimited(become, 'auto', '64', '300', '/bin/sleep', '0.02')
  expect(result).toMatchObject({ complete: 300, fail: 0, cancel: 0 })
  expect(Reflect.get(result, 'throttled')).toBeGreaterThan(0)
})

it('row 29: programs wait while the system refuses to start their launcher', () => {
  const result = runFixture('without-descriptors.ts', 'ulimit -n 100', [])
  const seen = ['the system refused to start a launcher: EMFILE']
  expect(result).toMatchObject({ seen, completed: 22, stderr: '' })
})

it('row 29: many programs in one go all succeed with 1024 file descriptors', () => {
  const count = byRun(3000, 50_000)
  const result = runLimited('ulimit -n 1024', 'auto', '32', String(count), '/bin/true')
  expect(result).toMatchObject({ complete: count, fail: 0, throttled: 0, places: 32 })
})

it('the pool accepts more jobs than slots in one turn', async () => {
  const driver = openPool({ maxProcesses: 2 })
  const runs = Array.from({ length: 300 }, () => driver.submit({ executable: 'true' }))
  for (const { ended } of runs) expectCompleted(await ended)
  expect(driver.finished).toHaveLength(300)
})

const succeed = (limit: ConcurrencyLimit, times: number) => {
  for (let count = 0; count < times; count++) limit.recordSuccess()
}

it('row 29: a limit falls to what the system allows and reports each new minimum once', () => {
  const limit = new ConcurrencyLimit(10)
  expect(limit.recordRefusal(6)).toBe(true)
  expect(limit.limit).toBe(6)
  expect(limit.recordRefusal(6)).toBe(false)
  expect(limit.recordRefusal(9)).toBe(false)
  expect(limit.limit).toBe(6)
  expect(limit.recordRefusal(0)).toBe(true)
  expect(limit.limit).toBe(1)
})

it('row 29: a limit rises by one with each round of successes, up to where it began', () => {
  const limit = new ConcurrencyLimit(4)
  limit.recordRefusal(2)
  succeed(limit, 1)
  expect(limit.limit).toBe(2)
  succeed(limit, 1)
  expect(limit.limit).toBe(3)
  expect(limit.recordRefusal(2)).toBe(false)
  succeed(limit, 2 + 3 + 100)
  expect(limit.limit).toBe(4)
  expect(limit.recordRefusal(2)).toBe(true)
})

it('row 29: a limit pauses twice as long after each refusal in a row, up to a second', () => {
  const limit = new ConcurrencyLimit(4)
  const pauses = Array.from({ length: 8 }, () => limit.nextPauseMs())
  expect(pauses).toEqual([20, 40, 80, 160, 320, 640, 1000, 1000])
  limit.recordSuccess()
  expect(limit.nextPauseMs()).toBe(20)
})

it('row 29: the pool waits for temporary shortages, and reports all other failures', () => {
  const lacks = ['EMFILE', 'ENFILE', 'EAGAIN', 'ENOMEM']
  expect([...lacks, 'ENOENT', 'EACCES', 'E2BIG'].filter(isResourceShortage)).toEqual(lacks)
})
