import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { MeterProvider, MetricReader } from '@opentelemetry/sdk-metrics'
import { describe, expect, it } from 'vitest'
import {
  TaskCanceled,
  TaskCreated,
  TaskStarted,
  TaskSubmitted,
} from '../../src/events/vocabulary.ts'
import { CheckpointError, StateError, ValueError } from '../../src/foundation/errors.ts'
import { systemClock } from '../../src/foundation/clock.ts'
import { TelemetryManager } from '../../src/telemetry/manager.ts'
import {
  eventsIn,
  linesIn,
  metricsIn,
  openTelemetry,
  spansIn,
  emitTaskEvent,
  typesOf,
} from './open-telemetry.ts'

class ManualReader extends MetricReader {
  protected override async onForceFlush(): Promise<void> {}
  protected override async onShutdown(): Promise<void> {}
}

describe('row 41: start and stop', () => {
  const calls = ['start', 'stop', 'start', 'stop'] as const
  const orders = [
    ['start', 'stop'],
    ['start', 'start', 'stop', 'stop'],
    ['stop', 'start'],
    calls,
    ['stop'],
  ] as const

  it('row 41: start and stop in any order, concurrently or not, run at most once', async () => {
    for (const isConcurrent of [true, false]) {
      for (const order of orders) {
        const { telemetry } = openTelemetry()
        const received: string[] = []
        telemetry.subscribe(({ event_type: type }) => void received.push(type))
        const promises: Promise<void>[] = []
        for (const call of order) {
          const isLate = call === 'start' && order.slice(0, promises.length).includes('stop')
          const called = telemetry[call]()
          if (isLate) await expect(called).rejects.toBeInstanceOf(StateError)
          promises.push(isLate ? Promise.resolve() : called)
          if (!isConcurrent) await promises.at(-1)
        }
        await Promise.all(promises)
        await telemetry.stop()
        const wasStarted = order[0] === 'start'
        expect(received).toEqual(wasStarted ? ['SessionStarted', 'SessionEnded'] : [])
      }
    }
  })

  it('row 41: every call returns one promise, and stop is complete when it resolves', async () => {
    const { telemetry, folder } = openTelemetry()
    expect(telemetry.start()).toBe(telemetry.start())
    const stopping = telemetry.stop()
    expect(telemetry.stop()).toBe(stopping)
    expect(telemetry[Symbol.asyncDispose]()).toBe(stopping)
    await stopping
    expect(linesIn(folder).at(-1)?.section).toBe('metric')
    expect(readdirSync(folder).filter((name) => name.endsWith('.lock'))).toEqual([])
  })

  it('row 41: an event emitted during stop is delivered or counted', async () => {
    const { telemetry, clock, folder } = openTelemetry()
    await telemetry.start()
    const stopping = telemetry.stop()
    emitTaskEvent({ sink: telemetry, clock }, TaskCreated, 'a')
    await stopping
    const inFile = eventsIn(folder).filter(({ name }) => name === 'TaskCreated').length
    expect(inFile + telemetry.droppedEvents).toBe(1)
    expect(typesOf(eventsIn(folder)).at(-1)).toBe('SessionEnded')
  })

  it('row 41: a failed start rejects with the reason, and stop after it resolves', async () => {
    const { folder } = openTelemetry()
    const file = join(folder, 'a-file')
    writeFileSync(file, '')
    const telemetry = new TelemetryManager({ sessionId: 's1', checkpointPath: file })
    const stream = telemetry.events()
    await expect(telemetry.start()).rejects.toBeInstanceOf(CheckpointError)
    await telemetry.stop()
    expect(await stream.next()).toEqual({ done: true, value: undefined })
  })

  it('row 41: a metric reader bound elsewhere fails the start and leaves no lock', async () => {
    const reader = new ManualReader()
    const provider = new MeterProvider({ readers: [reader] })
    const { telemetry, folder } = openTelemetry({ metricReaders: [reader] })
    await expect(telemetry.start()).rejects.toMatchObject({ field: 'metricReaders[0]' })
    await telemetry.stop()
    expect(readdirSync(folder).filter((name) => name.endsWith('.lock'))).toEqual([])
    await provider.shutdown()
  })
})

describe('row 46: stop with open tasks', () => {
  it('row 46: stop ends the spans of open tasks, without events, and none is running', async () => {
    const { telemetry, clock, folder } = openTelemetry()
    await telemetry.start()
    const to = { sink: telemetry, clock }
    for (const one of [TaskCreated, TaskSubmitted, TaskStarted]) emitTaskEvent(to, one, 'running')
    emitTaskEvent(to, TaskCreated, 'created')
    await clock.advance(500)
    expect(telemetry.readMetrics()['tasks_running']).toBe(1)
    await telemetry.stop()
    const types = typesOf(eventsIn(folder))
    expect(types.filter((type) => /Completed|Failed|Canceled/.test(type))).toEqual([])
    const lines = linesIn(folder)
    const at = (name: string) => lines.findIndex((line) => line['name'] === name)
    const spans = spansIn(folder)
    expect(spans.map(({ name }) => name)).toEqual(['task', 'task', 'session'])
    expect(at('task')).toBeLessThan(at('SessionEnded'))
    for (const span of spans.slice(0, 2)) {
      expect(span).toMatchObject({ status_code: 'UNSET', end_time: 1_700_000_000.5 })
      expect(span.attributes).not.toHaveProperty('status')
    }
    expect(metricsIn(folder).at(-1)).toMatchObject({
      tasks_running: 0,
      tasks_started: 1,
      tasks_canceled: 0,
      task_duration_seconds_count: 0,
    })
    expect(telemetry.taskSpans()).toHaveLength(2)
  })

  it('row 46: tasks canceled before stop have their end before SessionEnded', async () => {
    const { telemetry, clock, folder } = openTelemetry()
    await telemetry.start()
    const to = { sink: telemetry, clock }
    for (const one of [TaskCreated, TaskSubmitted, TaskStarted]) emitTaskEvent(to, one, 'a')
    emitTaskEvent(to, TaskCanceled, 'a', { attributes: { reason: 'session closed' } })
    await telemetry.stop()
    expect(typesOf(eventsIn(folder)).slice(-2)).toEqual(['TaskCanceled', 'SessionEnded'])
    expect(metricsIn(folder).at(-1)).toMatchObject({ tasks_running: 0, tasks_canceled: 1 })
    expect(spansIn(folder)).toHaveLength(2)
  })
})

describe('the checkpoint file', () => {
  it('checkpoint file: is named after session and second and overwrites none', async () => {
    const { telemetry, clock, folder } = openTelemetry()
    const taken = join(folder, 's1.1700000000.telemetry.jsonl')
    writeFileSync(taken, 'precious\n')
    await telemetry.start()
    await clock.advance(0)
    await telemetry.stop()
    expect(readdirSync(folder).toSorted()).toEqual([
      's1.1700000000-2.telemetry.jsonl',
      's1.1700000000.telemetry.jsonl',
    ])
    expect(readFileSync(taken, 'utf8')).toBe('precious\n')
  })

  it('checkpoint file: gets a metric line every checkpointSeconds and one at stop', async () => {
    const { telemetry, clock, folder } = openTelemetry({ checkpointSeconds: 10 })
    await telemetry.start()
    const to = { sink: telemetry, clock }
    emitTaskEvent(to, TaskSubmitted, 'a')
    await clock.advance(9_999)
    expect(metricsIn(folder)).toEqual([])
    await clock.advance(1)
    emitTaskEvent(to, TaskStarted, 'a')
    await clock.advance(10_000)
    await clock.advance(5_000)
    await telemetry.stop()
    const seen = metricsIn(folder).map((line) => [line.checkpoint_time, line['tasks_running']])
    expect(seen).toEqual([
      [1_700_000_010, 0],
      [1_700_000_020, 1],
      [1_700_000_025, 0],
    ])
    expect(clock.pendingTimers).toBe(0)
  })
})

describe('options', () => {
  it('options: wrong ones are rejected by name', () => {
    const cyclic: Record<string, unknown> = {}
    cyclic['self'] = cyclic
    const { proxy: revoked, revoke } = Proxy.revocable({}, {})
    revoke()
    const throwing = {
      get name(): string {
        throw new Error('do not look')
      },
    }
    const wrong: [object | null, string][] = [
      [null, 'options'],
      [{}, 'sessionId'],
      [{ sessionId: '../x' }, 'sessionId'],
      [{ sessionId: 'a', checkpointPath: '' }, 'checkpointPath'],
      [{ sessionId: 'a', checkpointSeconds: 0 }, 'checkpointSeconds'],
      [{ sessionId: 'a', checkpointSeconds: 1e9 }, 'checkpointSeconds'],
      [{ sessionId: 'a', durability: 'none' }, 'durability'],
      [{ sessionId: 'a', spanProcessors: {} }, 'spanProcessors'],
      [{ sessionId: 'a', spanProcessors: [{}] }, 'spanProcessors[0]'],
      [{ sessionId: 'a', spanProcessors: revoked }, 'spanProcessors'],
      [{ sessionId: 'a', spanProcessors: [revoked] }, 'spanProcessors[0]'],
      [{ sessionId: 'a', resource: revoked }, 'resource'],
      [{ sessionId: 'a', resource: throwing }, 'resource'],
      [revoked, 'options'],
      [{ sessionId: 'a', metricReaders: [null] }, 'metricReaders[0]'],
      [{ sessionId: 'a', stopDeadlineSeconds: -1 }, 'stopDeadlineSeconds'],
      [{ sessionId: 'a', resource: 'x' }, 'resource'],
      [{ sessionId: 'a', resource: { self: cyclic } }, 'resource.self'],
      [{ sessionId: 'a', resource: { big: 1n } }, 'resource.big'],
      [{ sessionId: 'a', clock: 5 }, 'clock'],
      [{ sessionId: 'a', clock: { ...systemClock, now: () => 1 } }, 'clock'],
      [{ sessionId: 'a', log: {} }, 'log'],
    ]
    for (const [options, field] of wrong) {
      const make = () => new TelemetryManager(options as never)
      expect(make, field).toThrow(ValueError)
      expect(make, field).toThrow(expect.objectContaining({ field }))
    }
    expect(() => new TelemetryManager({ sessionid: 'a' } as never)).toThrow(
      'TelemetryManager has no `sessionid`; did you mean "sessionId"?',
    )
  })
})

describe('the resource', () => {
  const program = `
    import { TelemetryManager } from '${new URL('../../src/index.ts', import.meta.url).href}'
    const telemetry = new TelemetryManager(JSON.parse(process.argv[1]))
    await telemetry.start()
    await telemetry.stop()
    process.stdout.write(telemetry.exportAsOtlp())
  `
  const resourceOf = (options: object, env: Record<string, string>): Record<string, string> => {
    const args = ['--input-type=module', '-e', program, JSON.stringify(options)]
    const text = execFileSync(process.execPath, args, {
      encoding: 'utf8',
      env: { ...process.env, ...env },
    })
    const { resourceSpans } = JSON.parse(text) as {
      resourceSpans: [
        { resource: { attributes: { key: string; value: { stringValue: string } }[] } },
      ]
    }
    const { attributes } = resourceSpans[0].resource
    return Object.fromEntries(attributes.map(({ key, value }) => [key, value.stringValue]))
  }

  it('resource: the default, overridden by the environment, overridden by the option', () => {
    const env = { OTEL_SERVICE_NAME: 'climate', OTEL_RESOURCE_ATTRIBUTES: 'team=ocean,site=here' }
    expect(resourceOf({ sessionId: 'a' }, {})).toMatchObject({ 'service.name': 'tutti' })
    expect(resourceOf({ sessionId: 'a' }, env)).toMatchObject({
      'service.name': 'climate',
      team: 'ocean',
      site: 'here',
    })
    const resource = { 'service.name': 'given', site: 'there' }
    expect(resourceOf({ sessionId: 'a', resource }, env)).toMatchObject({
      'service.name': 'given',
      team: 'ocean',
      site: 'there',
    })
  })
})
