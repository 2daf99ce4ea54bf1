import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { ManualClock } from '../../../../src/testing/manual-clock.ts'
import { byRun } from '../../../long-run.ts'
import { nothing, spin } from './fixtures/functions.ts'
import { PoolDriver } from './pool-driver.ts'

const fixture = join(import.meta.dirname, 'fixtures', 'run-pool.ts')

function startProgram(...args: string[]) {
  return startNode([fixture, ...args])
}

function startNode(args: string[]) {
  const program = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] })
  let [output, problems] = ['', '']
  const firstLine = Promise.withResolvers<void>()
  program.stdout.on('data', (data: Buffer) => {
    output += data.toString()
    firstLine.resolve()
  })
  program.stderr.on('data', (data: Buffer) => (problems += data.toString()))
  const closed = once(program, 'close').then(([code, signal]: unknown[]) => {
    firstLine.resolve()
    return { code, signal, output, problems }
  })
  onTestFinished(() => void program.kill('SIGKILL'))
  return { program, firstLine: firstLine.promise, closed }
}

const threads = (): number => readdirSync('/proc/self/task').length
const children = (): string[] =>
  readFileSync(`/proc/self/task/${process.pid}/children`, 'utf8').split(' ')

describe.for(['thread', 'process'] as const)('what is left, isolation %s', (isolation) => {
  it.for(['idle', 'pending'])(
    'a program whose pool is %s ends by itself after its work',
    async (what) => {
      const { closed } = startProgram(what, isolation)
      expect(await closed).toMatchObject({ code: 0, output: 'start\ncomplete\n', problems: '' })
    },
  )

  it('a program ends by itself whose only job was canceled before it began', async () => {
    const { closed } = startProgram('canceled', isolation)
    expect(await closed).toMatchObject({ code: 0, output: 'cancel\n', problems: '' })
  })

  it('a program that was given as text runs once, not again in its workers', async () => {
    const text = `process.argv.splice(1, 0, ''); import(${JSON.stringify(fixture)})`
    const { closed } = startNode(['--input-type=commonjs', '-e', text, 'idle', isolation])
    expect(await closed).toMatchObject({ code: 0, output: 'start\ncomplete\n', problems: '' })
  })

  it('workers die with a program that is killed, even while a function spins', async () => {
    const { program, firstLine, closed } = startProgram('spin', isolation)
    await firstLine
    program.kill('SIGKILL')
    // The workers write to the same pipe, which closes when the last of them is gone.
    expect(await closed).toMatchObject({ signal: 'SIGKILL', output: 'start\n', problems: '' })
  })

  it('nothing of a pool is left when it was closed', async () => {
    const useOnce = async (): Promise<void> => {
      const driver = new PoolDriver({ isolation, size: 2 })
      await driver.allEnded(driver.submit(nothing, [[], []]))
      const [running] = driver.submit(spin, [[]])
      await driver.started(running)
      driver.cancel(running)
      await driver.pool.close('enough')
      await driver.expectAllOver()
    }
    // With the first, Node starts threads of its own, which stay.
    await useOnce()
    const childrenBefore = children()
    const threadsBefore = threads()
    for (let round = 0; round < byRun(1, 3); round++) await useOnce()
    await expect.poll(threads).toBeLessThanOrEqual(threadsBefore)
    expect(children().filter((pid) => !childrenBefore.includes(pid))).toEqual([])
    expect(process.getActiveResourcesInfo()).not.toContain('MessagePort')
  })
})

it('timers wait only while there is work', async () => {
  const clock = new ManualClock()
  const driver = new PoolDriver({ size: 1, clock })
  expect(clock.pendingTimers).toBe(0)
  await driver.run(nothing)
  await clock.advance(100)
  expect(clock.pendingTimers).toBe(0)
})
