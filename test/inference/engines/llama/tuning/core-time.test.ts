import { spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import {
  hasWaited,
  readCoreTime,
} from '../../../../../src/inference/engines/llama/tuning/core-time.ts'

it('the times of all threads are summed, and a thread without times counts as 0', () => {
  const tasks = mkdtempSync(join(tmpdir(), 'tutti-tasks-'))
  onTestFinished(() => rmSync(tasks, { recursive: true, force: true }))
  expect(readCoreTime(tasks)).toBeNull()
  for (const [thread, text] of Object.entries({ 1: '500 20 7\n', 2: '300 10 2\n' })) {
    mkdirSync(join(tasks, thread))
    writeFileSync(join(tasks, thread, 'schedstat'), text)
  }
  mkdirSync(join(tasks, '3'))
  expect(readCoreTime(tasks)).toEqual({ used: 800, waited: 30 })
  expect(readCoreTime(join(tasks, 'none'))).toBeNull()
})

it.each([
  ['nothing is known', null, false],
  ['it waited a little', { used: 1100, waited: 250 }, false],
  ['it waited for a tenth of the time and more', { used: 1100, waited: 301 }, true],
])('whether a process has waited if %s', (_, after, expected) => {
  expect(hasWaited({ used: 100, waited: 200 }, after)).toBe(expected)
})

it.runIf(process.platform === 'linux')('a process beside others that use all cores waits', () => {
  const rivals = Array.from({ length: 2 * availableParallelism() }, () =>
    spawn(process.execPath, ['-e', 'for (;;);']),
  )
  onTestFinished(() => rivals.forEach((rival) => void rival.kill('SIGKILL')))
  const before = readCoreTime()
  // Ends only when the scheduler has let the others run.
  while (!hasWaited(before, readCoreTime()));
})
