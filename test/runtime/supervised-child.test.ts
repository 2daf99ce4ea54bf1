import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { describe, expect, it, onTestFinished } from 'vitest'
import { systemClock } from '../../src/foundation/clock.ts'
import {
  type ChildExit,
  type ChildOptions,
  exitReason,
  SupervisedChild,
} from '../../src/runtime/supervised-child.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import type { ToChild } from './fixtures/child.ts'
import { eventually } from '../eventually.ts'

const fixture = (name: string): URL => new URL(`fixtures/${name}.ts`, import.meta.url)

/** A child whose messages and exit can be awaited. */
function open(options: Partial<ChildOptions<ToChild, string>> = {}) {
  const messages: string[] = []
  const batches: (readonly string[])[] = []
  const exits: ChildExit[] = []
  const ignored = { count: 0 }
  const { promise: exited, resolve } = Promise.withResolvers<ChildExit>()
  const child = new SupervisedChild<ToChild, string>({
    program: fixture('child'),
    clock: systemClock,
    onMessages(batch) {
      batches.push(batch)
      messages.push(...batch)
    },
    onIgnored: () => void ignored.count++,
    onExit(exit) {
      exits.push(exit)
      resolve(exit)
    },
    ...options,
  })
  onTestFinished(() => child.kill())
  const said = (text: string): Promise<void> => eventually(() => expect(messages).toContain(text))
  return { child, messages, batches, exits, exited, said, ignored }
}

const isAlive = (pid: number): boolean => {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

describe('the start of a supervised child', () => {
  it('messages are held until the child is ready, and keep their order', async () => {
    const { child, messages, said } = open()
    child.post({ kind: 'echo', text: 'a' })
    child.send({ kind: 'echo', text: 'b' })
    child.post({ kind: 'echo', text: 'c' })
    expect(child.pid).toBeUndefined()
    await said('c')
    expect(messages).toEqual(['a', 'b', 'c'])
    await child.close()
  })

  it('a child is not started for a message that was withdrawn in the same turn', async () => {
    const clock = new ManualClock()
    const { child, exits } = open({ clock })
    child.post({ kind: 'echo', text: 'a' })
    expect(child.withdraw(({ kind }) => kind === 'echo')).toBe(true)
    expect(child.withdraw(({ kind }) => kind === 'echo')).toBe(false)
    await clock.advance(0)
    expect(child.pid).toBeUndefined()
    await child.close()
    expect(exits).toEqual([])
  })

  it('a start can be put off, and a close before it leaves nothing to wait for', async () => {
    const clock = new ManualClock()
    const { child, said } = open({ clock, startDelayMs: 500 })
    child.post({ kind: 'echo', text: 'late' })
    await clock.advance(499)
    expect(child.pid).toBeUndefined()
    await clock.advance(1)
    expect(child.pid).toBeGreaterThan(0)
    await said('late')

    const other = open({ clock, startDelayMs: 500 }).child
    other.post({ kind: 'echo', text: 'never' })
    await other.close()
    await clock.advance(500)
    expect(other.pid).toBeUndefined()
    expect(clock.pendingTimers).toBe(0)
  })

  it('a child that is not ready by its deadline is killed, and the exit says so', async () => {
    const clock = new ManualClock()
    const { child, exited } = open({ clock, program: fixture('silent'), readyDeadlineMs: 3000 })
    child.start()
    await clock.advance(2999)
    expect(isAlive(child.pid ?? 0)).toBe(true)
    await clock.advance(1)
    const exit = await exited
    expect(exit).toMatchObject({ code: null, signal: 'SIGKILL' })
    expect(exitReason(exit)).toBe('it was not ready within 3 s')
  })

  it('a program that cannot be started is an exit with the error', async () => {
    const node = process.execPath
    onTestFinished(() => {
      process.execPath = node
    })
    process.execPath = '/nowhere/node'
    const { child, exited } = open()
    child.post({ kind: 'echo', text: 'a' })
    expect(exitReason(await exited)).toContain('ENOENT')
    await child.close()
  })
})

describe('the messages of a supervised child', () => {
  it('messages of user code without the channel id are ignored and counted', async () => {
    const { child, messages, exits, said, ignored } = open()
    child.post({ kind: 'stray' })
    await said('honest')
    expect(messages).toEqual(['honest'])
    expect(ignored.count).toBe(7)
    expect(exits).toEqual([])
  })

  it('user code and its own children do not see the channel in the environment', async () => {
    const { child, messages } = open()
    child.post({ kind: 'variable' })
    await eventually(() => expect(messages).toEqual(['undefined']))
  })

  it('a child of another version of the protocol is ended, and the exit says so', async () => {
    const { child, messages, exited } = open()
    child.post({ kind: 'newer' })
    expect(exitReason(await exited)).toBe('the other end has version 2 of the protocol, not 1')
    expect(messages).toEqual([])
  })

  it('the exit comes once, after the last message', async () => {
    const { child, batches, exits, exited } = open()
    for (const text of ['a', 'b']) child.post({ kind: 'echo', text })
    child.post({ kind: 'exit', code: 3 })
    expect(await exited).toEqual({ code: 3, signal: null, error: null, output: '' })
    expect(batches).toEqual([['a', 'b']])
    child.post({ kind: 'echo', text: 'too late' })
    child.kill()
    await child.close()
    expect(exits).toHaveLength(1)
  })

  it('captured output is passed on by lines, and its end belongs to the exit', async () => {
    const lines: string[] = []
    const { child, exited } = open({ stderr: 'capture', onLine: (line) => void lines.push(line) })
    child.post({ kind: 'write', text: 'one\ntwo\r' })
    child.post({ kind: 'fail', text: 'broken' })
    const exit = await exited
    expect([exit.code, exitReason(exit)]).toEqual([1, 'exit code 1'])
    expect(exit.output).toMatch(/^one\ntwo\r[^]*Error: broken/)
    expect(lines.slice(0, 2)).toEqual(['one', 'two'])
    expect(child.output).toBe(exit.output)
  })
})

describe('the end of a supervised child', () => {
  it('close asks the child to end, once, and waits for its exit', async () => {
    const { child, exits, said } = open()
    child.post({ kind: 'echo', text: 'a' })
    await said('a')
    const closing = child.close()
    expect(child.close()).toBe(closing)
    await closing
    expect(exits).toMatchObject([{ code: 0, signal: null }])
  })

  it('a child that does not end gets SIGTERM and then SIGKILL, each after the grace', async () => {
    const clock = new ManualClock()
    const { child, exits, said } = open({ clock, graceMs: 700, isDetached: true })
    child.post({ kind: 'stay' })
    await said('staying')
    const closing = child.close()
    await said('no')
    await clock.advance(700)
    await said('still no')
    expect(exits).toEqual([])
    await clock.advance(700)
    await closing
    expect(exits).toMatchObject([{ code: null, signal: 'SIGKILL' }])
    expect(clock.pendingTimers).toBe(0)
  })

  it('close before the child is ready does not wait for it', async () => {
    const { child, exits } = open({ program: fixture('silent'), clock: new ManualClock() })
    child.start()
    await child.close()
    expect(exits).toMatchObject([{ signal: 'SIGKILL' }])
  })

  const startParent = (kind: string) => {
    const file = fileURLToPath(fixture('parent'))
    const stdio = ['ignore', 'pipe', 'inherit'] as const
    const parent = spawn(process.execPath, [file, kind], { stdio: [...stdio] })
    onTestFinished(() => void parent.kill('SIGKILL'))
    const line = once(parent.stdout, 'data').then(([data]) => String(data).split(/\s/))
    return { parent, line, exited: once(parent, 'exit') }
  }

  it('a parent that awaits nothing is not kept alive, and its child ends with it', async () => {
    const { line, exited } = startParent('echo')
    const [pid, text] = await line
    expect(text).toBe('hello')
    expect(await exited).toEqual([0, null])
    await eventually(() => expect(isAlive(Number(pid))).toBe(false))
  })

  it('a child ends with a parent that is killed, even if its main thread is busy', async () => {
    const { parent, line, exited } = startParent('spin')
    const [pid, text] = await line
    expect([text, isAlive(Number(pid))]).toEqual(['spinning', true])
    parent.kill('SIGKILL')
    await exited
    await eventually(() => expect(isAlive(Number(pid))).toBe(false))
  })
})
