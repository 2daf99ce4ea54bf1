import { describe, expect, it } from 'vitest'
import type { ResourceSampler } from '../../src/backends/sampling/sampler.ts'
import { unknownReadings } from '../../src/backends/sampling/sampler.ts'
import { Session } from '../../src/session/session.ts'
import { FakeBackend } from '../../src/testing/fake-backend.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { attribute, openSession, quick, rejection, turns, typesOf } from './open-session.ts'

/** Answers no cancel, no release; its close is only counted. */
class HangingBackend extends FakeBackend {
  closes = 0

  override connect(...args: Parameters<FakeBackend['connect']>) {
    return { ...super.connect(...args), release: () => new Promise<void>(() => {}) }
  }

  override close(): Promise<void> {
    this.closes++
    return new Promise(() => {})
  }
}

describe('close()', () => {
  it('row 25: close() cancels open tasks, each with its event, before SessionEnded', async () => {
    const { session, backend, clock, all } = await openSession()
    const [done, waiting, running] = [quick(), quick(), quick()]
    await session.submitTasks([done, waiting, running])
    backend.complete(done)
    backend.start(running)
    await clock.advance(2000)
    const ends = [rejection(waiting), rejection(running)]
    await session.close()
    for (const end of await Promise.all(ends))
      expect(end).toMatchObject({ reason: 'session closed' })
    expect(done.state).toBe('DONE')
    const last = all.slice(-4)
    const rest = ['ResourceUpdate', 'SessionEnded']
    expect(typesOf(last)).toEqual(['TaskCanceled', 'TaskCanceled', ...rest])
    const [first, second] = last
    expect([first?.task_id, second?.task_id]).toEqual([waiting.uid, running.uid])
    expect(first).toMatchObject({ duration_seconds: 0 })
    expect(attribute(first, 'incomplete_lifecycle')).toBe(true)
    expect(second).toMatchObject({ duration_seconds: 2 })
    expect(attribute(second, 'reason')).toBe('session closed')
    expect(session.telemetry?.readMetrics()).toMatchObject({ tasks_running: 0, tasks_canceled: 2 })
  })

  it('row 25: close() is idempotent and returns the same promise', async () => {
    const { session, all } = await openSession()
    const closing = session.close()
    expect(session.close({ keepBackends: true })).toBe(closing)
    await closing
    expect(session[Symbol.asyncDispose]()).toBe(closing)
    await closing
    expect(typesOf(all).filter((type) => type === 'SessionEnded')).toHaveLength(1)
  })

  const wrong: readonly [unknown, string][] = [
    [null, 'options'],
    [[], 'options'],
    [{ keepBackend: true }, 'keepBackend'],
    [{ keepBackends: 'x' }, 'keepBackends'],
    [{ keepBackends: null }, 'keepBackends'],
  ]
  it.each(wrong)('close: %j is refused, and close() still works', async (options, field) => {
    const { session } = await openSession()
    const task = quick()
    const closing = session.close(options as object)
    await expect(closing).rejects.toMatchObject({ name: 'ValueError', field })
    await session.submitTasks([task])
    await session.close()
    expect(task.state).toBe('CANCELED')
  })

  it('row 25: tasks of a backend that hangs are canceled after 10 s', async () => {
    const clock = new ManualClock()
    const [hanging, sound] = [new HangingBackend({ name: 'hangs' }), new FakeBackend()]
    const session = new Session([hanging, sound], { clock })
    const telemetry = await session.startTelemetry()
    const heard: string[] = []
    telemetry.subscribe((event) => void heard.push(event.event_type))
    const [stuck, other] = [quick({ backend: 'hangs' }), quick({ backend: 'fake' })]
    await session.submitTasks([stuck, other])
    hanging.start(stuck)
    let isClosed = false
    const closing = session.close().then(() => (isClosed = true))
    await clock.advance(9999)
    expect([stuck.state, other.state, isClosed]).toEqual(['RUNNING', 'CANCELED', false])
    await clock.advance(1)
    await closing
    expect(stuck.error).toMatchObject({ name: 'TaskCanceledError', reason: 'session closed' })
    expect(heard.slice(-3)).toEqual(['TaskCanceled', 'ResourceUpdate', 'SessionEnded'])
    expect(hanging.closes).toBe(1)
    const before = heard.length
    hanging.complete(stuck)
    await turns()
    expect([stuck.state, heard.length]).toEqual(['CANCELED', before])
    expect(clock.pendingTimers).toBe(0)
  })

  it('row 25: a backend that fails to close does not stop close()', async () => {
    class Failing extends FakeBackend {
      override connect(...args: Parameters<FakeBackend['connect']>) {
        const release = (): Promise<void> => {
          throw new Error('cannot release')
        }
        return { ...super.connect(...args), release }
      }
      override close(): Promise<void> {
        return Promise.reject(new Error('cannot close'))
      }
    }
    const [failing, sound] = [new Failing({ name: 'ill' }), new FakeBackend()]
    const session = new Session([failing, sound])
    const tasks = [quick({ backend: 'ill' }), quick({ backend: 'fake' })]
    await session.submitTasks(tasks)
    await session.close()
    expect(tasks.map(({ state }) => state)).toEqual(['CANCELED', 'CANCELED'])
  })

  it('close: works on an unused session, and by `await using`', async () => {
    await new Session([]).close()
    const backend = new FakeBackend()
    const task = quick()
    {
      await using session = new Session([backend])
      await session.submitTasks([task])
    }
    expect(task.error).toMatchObject({ reason: 'session closed' })
  })
})

describe('a backend that two sessions share', () => {
  it("shared backend: keepBackends ends only this session's tasks", async () => {
    const backend = new FakeBackend()
    const [one, two] = [new Session([backend]), new Session([backend])]
    const [mine, theirs] = [quick(), quick()]
    await one.submitTasks([mine])
    await two.submitTasks([theirs])
    await one.close({ keepBackends: true })
    expect([mine.state, theirs.state]).toEqual(['CANCELED', 'QUEUED'])
    const next = quick()
    await two.submitTasks([next])
    for (const task of [theirs, next]) backend.complete(task, 'still here')
    expect([await theirs, await next]).toEqual(['still here', 'still here'])
    await two.close()
    const late = quick()
    await using three = new Session([backend])
    await three.submitTasks([late])
    expect(await rejection(late)).toMatchObject({ reason: 'backend closed' })
  })
})

describe('polling of nodes', () => {
  class Sampled extends FakeBackend {
    readonly log: string[] = []
    override readonly nodes = [
      {
        nodeId: `node-of-${this.name}`,
        createSampler: (seconds: number) => this.#sampler(seconds),
      },
    ]

    #sampler(seconds: number): ResourceSampler {
      this.log.push(`create ${seconds}`)
      return {
        prime: async () => void this.log.push('prime'),
        sample: async () => ({ node: { ...unknownReadings, cpu_percent: 50 }, gpus: [] }),
        close: async () => void this.log.push('close'),
      }
    }
  }

  it('polling: covers backends that are added later, and ends with close()', async () => {
    const clock = new ManualClock()
    const [early, late] = [new Sampled({ name: 'early' }), new Sampled({ name: 'late' })]
    const session = new Session([early], { clock })
    expect(early.log).toEqual([])
    const telemetry = await session.startTelemetry({ resourcePollSeconds: 2 })
    const heard: string[] = []
    telemetry.subscribe((event) => {
      if (event.event_type === 'ResourceUpdate') heard.push(`${event.backend} ${event.node_id}`)
    })
    session.addBackend(late)
    await turns()
    await clock.advance(2000)
    await turns()
    await telemetry.flush()
    expect(heard).toEqual(['early node-of-early', 'late node-of-late'])
    await session.close()
    expect(early.log).toEqual(['create 2', 'prime', 'close'])
    expect(late.log).toEqual(['create 2', 'prime', 'close'])
    expect(clock.pendingTimers).toBe(0)
  })

  it('polling: without telemetry no sampler is created', async () => {
    const backend = new Sampled({ name: 'a' })
    await using session = new Session([])
    session.addBackend(backend)
    expect(backend.log).toEqual([])
  })

  it('polling: wrong options are refused before anything starts', async () => {
    const session = new Session([new Sampled({ name: 'a' })])
    for (const resourcePollSeconds of [0, -1, Number.NaN, 1e9, '5' as never]) {
      await expect(session.startTelemetry({ resourcePollSeconds })).rejects.toMatchObject({
        field: 'resourcePollSeconds',
      })
      expect(session.telemetry).toBeNull()
    }
    const wrong: [unknown, string][] = [
      [null, 'options'],
      ['x', 'options'],
      [{ keepResults: 'x' }, 'keepResults'],
      [{ keepResults: null }, 'keepResults'],
      [{ resourcePollSecond: 1 }, 'resourcePollSecond'],
      [{ checkpointDir: 'x' }, 'checkpointDir'],
      [{ sessionId: 'x' }, 'sessionId'],
    ]
    for (const [options, field] of wrong) {
      const error = await rejection(session.startTelemetry(options as object))
      expect(error).toMatchObject({ name: 'ValueError', field })
      expect(session.telemetry).toBeNull()
    }
    expect(await session.startTelemetry()).toBe(session.telemetry)
    await session.close()
  })

  it('polling: does not start when the session is closed while telemetry starts', async () => {
    const clock = new ManualClock()
    const backend = new Sampled({ name: 'a' })
    const session = new Session([backend], { clock })
    const starting = rejection(session.startTelemetry())
    await session.close()
    expect(await starting).toMatchObject({ code: 'SessionClosedError' })
    await turns()
    expect([backend.log, clock.pendingTimers]).toEqual([[], 0])
  })
})
