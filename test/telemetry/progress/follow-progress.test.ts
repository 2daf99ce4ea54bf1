import { once } from 'node:events'
import { PassThrough, Writable } from 'node:stream'
import { stripVTControlCharacters } from 'node:util'
import { describe, expect, it } from 'vitest'
import { ComputeTask, ConcurrentBackend, currentTask } from '../../../src/index.ts'
import { followProgress, Session, ValueError } from '../../../src/index.ts'
import { showProgress } from '../../../src/telemetry/progress/follow-progress.ts'
import { FakeBackend } from '../../../src/testing/fake-backend.ts'
import { eventually } from '../../eventually.ts'
import { quick } from '../../session/open-session.ts'

class FakeStream {
  readonly isTTY = false
  text = ''

  write(text: string): void {
    this.text += text
  }
}

async function open() {
  const backend = new FakeBackend({ name: 'local' })
  const session = new Session([backend], { id: 's-1' })
  const telemetry = await session.startTelemetry()
  return { backend, session, telemetry }
}

describe('followProgress', () => {
  it('progress: shows the final numbers and the failures by cause when it stops', async () => {
    const { backend, session, telemetry } = await open()
    const stream = new FakeStream()
    const stop = followProgress(telemetry, { stream })
    const tasks = [quick(), quick(), quick()]
    await session.submitTasks(tasks)
    for (const task of tasks) backend.start(task)
    backend.complete(tasks[0] ?? quick())
    backend.fail(tasks[1] ?? quick(), new RangeError('bad seed'))
    await session.close()
    stop()
    const [block = '', summary = '', failure = '', ...more] = stream.text.trimEnd().split('\n')
    expect(stripVTControlCharacters(block)).toMatch(
      /^session s-1 \| \S+ {2}2\/3 {2}ok 1 {2}failed 1 {2}canceled 1/,
    )
    expect(summary).toMatch(/^3 tasks in [\d.]+ m?s, 1 done, 1 failed, 1 canceled$/)
    expect(failure).toMatch(/^ {2}1 x .*: RangeError "bad seed" \(first: /)
    expect(more).toEqual([])
    stop()
    expect(stream.text.trimEnd().split('\n')).toHaveLength(3)
  })

  it('progress: a run that is followed after its start was told has its length', async () => {
    const local = await ConcurrentBackend.create({ name: 'local' })
    const session = new Session([local], { id: 's-1' })
    const telemetry = await session.startTelemetry()
    telemetry.dispatchNow()
    const stream = new FakeStream()
    const stop = followProgress(telemetry, { stream })
    const task = new ComputeTask({ executable: 'sleep', arguments: ['0.2'] })
    await session.submitTasks([task])
    await session.waitTasks([task])
    // The run has not ended yet, so its end does not show its duration.
    stop()
    await session.close()
    const [, value = '', unit = ''] = /^1 task in ([\d.]+) (m?s),/m.exec(stream.text) ?? []
    expect(Number(value) / (unit === 'ms' ? 1000 : 1)).toBeGreaterThanOrEqual(0.2)
    const [, rate = ''] = /ok 1 {2}([\d.]+)\/s$/m.exec(stream.text) ?? []
    expect(Number(rate)).toBeLessThanOrEqual(5)
  })

  it('progress: stop shows the state of everything emitted before it, in order', async () => {
    const { backend, session, telemetry } = await open()
    const stream = new FakeStream()
    const stop = followProgress(telemetry, { stream })
    const others: string[] = []
    telemetry.subscribe((event) => void others.push(event.event_type))
    const tasks = [quick(), quick()]
    await session.submitTasks(tasks)
    for (const task of tasks) backend.start(task)
    for (const task of tasks) backend.complete(task)
    await session.waitTasks(tasks)
    stop()
    expect(stripVTControlCharacters(stream.text)).toMatch(/2\/2 {2}ok 2.*\n2 tasks in .*, 2 done, /)
    await session.close()
    const opened = ['TaskCreated', 'TaskSubmitted', 'TaskQueued']
    const ended = ['TaskStarted', 'TaskStarted', 'TaskCompleted', 'TaskCompleted']
    const lifecycle = others.filter((type) => type.startsWith('Task'))
    expect(lifecycle).toEqual([...opened, ...opened, ...ended])
  })

  it('progress: a stream that is no terminal gets lines as often as the command says', async () => {
    const { session, telemetry } = await open()
    const stream = new FakeStream()
    const stop = showProgress(telemetry, stream, 0.01)
    const task = quick()
    await session.submitTasks([task])
    const lines = (): string[] => stream.text.split('\n').filter((line) => line !== '')
    await eventually(() => expect(lines().length).toBeGreaterThanOrEqual(3))
    expect(new Set(lines().map((line) => line.slice(0, 11)))).toEqual(new Set(['session s-1']))
    await session.close()
    stop()
  })

  it('progress: redraws in place on a terminal, while the run goes on', async () => {
    const { session, telemetry } = await open()
    const drawn = new PassThrough()
    const stream = Object.assign(drawn, { isTTY: true, columns: 80 })
    const stop = followProgress(telemetry, { stream })
    // The timer does not keep a process alive; the test does.
    const alive = setInterval(() => {}, 1000)
    let text = ''
    while (!text.includes('\u001B[1A\u001B[K')) {
      const [chunk] = (await once(drawn, 'data')) as [Buffer]
      text += chunk.toString()
    }
    clearInterval(alive)
    stop()
    await session.close()
    expect(text).toContain('session s-1\n')
  })

  it('progress: bars that became narrow stay so until the terminal is resized', async () => {
    const { backend, session, telemetry } = await open()
    const written: string[] = []
    const stream = { isTTY: true, columns: 60, write: (text: string) => void written.push(text) }
    const stop = followProgress(telemetry, { stream })
    const last = (): string => stripVTControlCharacters(written.at(-1) ?? '')
    const barOf = (block: string): number => /[█░]+/.exec(block)?.[0].length ?? 0
    const drawn = (text: string): Promise<number> =>
      eventually(() => {
        expect(last()).toContain(text)
        return barOf(last())
      })
    const tasks = Array.from({ length: 4 }, () => quick())
    const [first = quick(), second = quick(), ...others] = tasks
    await session.submitTasks(tasks)
    const widest = await drawn('0/4')
    for (const task of tasks) backend.start(task)
    backend.fail(first, new RangeError('bad seed'))
    backend.complete(second)
    const narrow = await drawn('failed 1  running 2')
    for (const task of others) backend.complete(task)
    const afterwards = await drawn('4/4  ok 3  failed 1')
    expect([widest, afterwards]).toEqual([20, narrow])
    expect(narrow).toBeLessThan(20)
    stream.columns = 100
    await eventually(() => expect(barOf(last())).toBe(20))
    await session.close()
    stop()
  })

  it('progress: what a task reports about itself is shown while it runs', async () => {
    await using session = new Session([await ConcurrentBackend.create()])
    const telemetry = await session.startTelemetry()
    const stream = new FakeStream()
    const stop = followProgress(telemetry, { stream })
    const reported = Promise.withResolvers<void>()
    telemetry.subscribe((event) => {
      if (event.event_type === 'tutti.TaskProgress') reported.resolve()
    })
    const task = new ComputeTask({
      function: async () => {
        currentTask()?.progress(0.25, 'a quarter')
        await new Promise(() => {})
      },
    })
    await session.submitTasks([task])
    await reported.promise
    stop()
    expect(stripVTControlCharacters(stream.text)).toContain('running 1  at 25 % (a quarter)')
  })

  it('progress: an error of the stream ends the display, not the program', async () => {
    const { backend, session, telemetry } = await open()
    const broken = new Writable({
      write(_chunk, _encoding, done) {
        done(new Error('EPIPE'))
      },
    })
    const throwing = {
      write(): never {
        throw new Error('no such stream')
      },
    }
    const stops = [broken, throwing].map((stream) => followProgress(telemetry, { stream }))
    const task = quick()
    await session.submitTasks([task])
    backend.complete(task)
    await session.close()
    for (const stop of stops) stop()
    await new Promise((resolve) => setImmediate(resolve))
    expect([task.state, broken.destroyed]).toEqual(['DONE', true])
  })

  it('progress: names wrong arguments', async () => {
    const { session, telemetry } = await open()
    expect(() => followProgress(telemetry, { strem: process.stderr } as never)).toThrow(ValueError)
    expect(() => followProgress(telemetry, { stream: {} as never })).toThrow(
      /`stream` to be a stream/,
    )
    expect(() => followProgress({} as never)).toThrow(/`telemetry` to be the telemetry/)
    await session.close()
  })
})
