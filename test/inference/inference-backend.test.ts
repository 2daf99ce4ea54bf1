import { once } from 'node:events'
import { connect } from 'node:net'
import { describe, expect, it } from 'vitest'
import {
  InferenceError,
  StateError,
  ValueError,
  WorkerLostError,
} from '../../src/foundation/errors.ts'
import { TaskFailedError } from '../../src/foundation/task-errors.ts'
import type { CreateEngine } from '../../src/inference/generation/inference-engine.ts'
import { InferenceBackend } from '../../src/inference/inference-backend.ts'
import { inferenceError } from '../../src/inference/generation/inference-errors.ts'
import { Session } from '../../src/session/session.ts'
import { AITask } from '../../src/tasks/ai-task.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { backendContract } from '../../src/testing/backend-contract.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { configWith, createObedientEngine, openBackend } from './open-backend.ts'

const ask = (prompt: string, options: object = {}) =>
  new AITask({ prompt, backend: 'llm', ...options })

describe('the inference backend under the backend contract', () => {
  backendContract(
    it,
    () =>
      InferenceBackend.create({
        name: 'llm',
        configFile: configWith(),
        modelName: 'tiny',
        useService: false,
        engine: createObedientEngine,
      }),
    {
      tasks: {
        quick: () => ask('hello'),
        failing: () => ask('fail on purpose'),
        endless: (options) => ask('endless', options),
      },
    },
  )
})

describe('AI tasks', () => {
  it('AI tasks return a string for a string, an array in prompt order for an array', async () => {
    await using session = new Session([await openBackend({ engine: createObedientEngine })])
    const one = ask('why?')
    const many = new AITask({ prompt: ['a', 'b', 'c'], backend: 'llm' })
    const none = new AITask({ prompt: [], backend: 'llm' })
    await session.submitTasks([one, many, none])
    expect(await one).toBe('re: why?')
    expect(await many).toEqual(['re: a', 're: b', 're: c'])
    expect(await none).toEqual([])
    expect(many.response).toEqual(['re: a', 're: b', 're: c'])
  })

  it('AI tasks are routed by their model to the backend that serves it', async () => {
    await using session = new Session([await openBackend({ engine: createObedientEngine })])
    const task = new AITask({ prompt: 'x', model: 'tiny' })
    await session.submitTasks([task])
    expect(await task).toBe('re: x')
    expect(task.backend).toBe('llm')
    await expect(session.submitTasks([new AITask({ prompt: 'x', model: 'huge' })])).rejects.toThrow(
      'tasks[0].model: "llm" serves "tiny"',
    )
    await expect(session.submitTasks([new ComputeTask({ executable: 'true' })])).rejects.toThrow(
      '"llm" runs prompts only',
    )
  })

  it('AI tasks reject with the original error', async () => {
    await using session = new Session([await openBackend({ engine: createObedientEngine })])
    const task = ask('fail here')
    await session.submitTasks([task])
    await session.waitTasks([task])
    expect(task.error).toBeInstanceOf(TaskFailedError)
    expect(task.error?.cause).toMatchObject({
      code: 'engine_error',
      cause: { name: 'RangeError', message: 'fail here' },
    })
  })

  it('AI tasks with a list fail if one prompt fails or is blocked, with all results', async () => {
    const rules = 'guardrails:\n  toggle_on: true\n  rules: [{ id: animals, keywords: [zebra] }]\n'
    const configFile = configWith(rules)
    const backend = await openBackend({ engine: createObedientEngine, configFile })
    await using session = new Session([backend])
    const prompt = ['fine', 'fail here', 'a zebra', 'fine as well']
    const task = new AITask({ prompt, backend: 'llm' })
    await session.submitTasks([task])
    await session.waitTasks([task])
    expect(task.state).toBe('FAILED')
    expect(task.error).toBeInstanceOf(TaskFailedError)
    const cause = task.error?.cause as InferenceError
    expect(cause).toBeInstanceOf(InferenceError)
    expect([cause.code, cause.message]).toEqual([
      'engine_error',
      '2 of 4 prompts failed; prompt[1]: the engine failed: fail here',
    ])
    const usage = { prompt_tokens: 2, completion_tokens: 3, total_tokens: 5 }
    expect(cause.results).toEqual([
      { text: 're: fine', finish_reason: 'stop', usage },
      { error: { code: 'engine_error', message: 'the engine failed: fail here' } },
      { error: { code: 'content_filter', message: expect.stringContaining('"animals"') } },
      { text: 're: fine as well', finish_reason: 'stop', usage },
    ])
  })

  it('AI tasks are retried as often as `retries` allows', async () => {
    await using session = new Session([await openBackend({ engine: createObedientEngine })])
    const telemetry = await session.startTelemetry()
    const attempts: string[] = []
    telemetry.subscribe(({ event_type: type }) => attempts.push(type))
    const task = ask('fail always', { retries: 2 })
    await session.submitTasks([task])
    await session.waitTasks([task])
    expect(attempts.filter((type) => type === 'tutti.TaskAttempt')).toHaveLength(2)
  })

  it('AI tasks with an invalid responseFormat are rejected before any submission', async () => {
    await using session = new Session([await openBackend({ engine: createObedientEngine })])
    await expect(
      session.submitTasks([ask('x', { responseFormat: { type: 'xml' } })]),
    ).rejects.toThrow(/tasks\[0\]\.responseFormat\.type: expected "text", "json_object"/)
  })

  it('AI tasks run on a backend that also serves HTTP', async () => {
    const backend = await openBackend({ port: 0 })
    await using session = new Session([backend])
    const task = ask('both ways')
    await session.submitTasks([task])
    expect(await task).toContain('both ways')
    const response = await fetch(`${backend.endpoint}/health`)
    expect(await response.json()).toMatchObject({ status: 'healthy', initialized: true })
  })
})

describe('generate', () => {
  it('generate returns a result for each prompt, in order', async () => {
    const backend = await openBackend({ engine: createObedientEngine })
    expect(await backend.generate(['a', 'b'], 10)).toEqual(
      ['re: a', 're: b'].map((text) => ({
        text,
        finish_reason: 'stop',
        usage: { prompt_tokens: 2, completion_tokens: 3, total_tokens: 5 },
      })),
    )
  })

  it.each([
    [0, '0'],
    [-1, '-1'],
    [Number.NaN, 'NaN'],
    [2 ** 31, '2147483648'],
    [Infinity, 'Infinity'],
    ['5', '"5"'],
    [[5], '`[5]` (array)'],
    [undefined, '`undefined`; call generate(prompts, timeout)'],
  ])('row 81: generate rejects a time-out of %j seconds', async (seconds, text) => {
    const backend = await openBackend({ engine: createObedientEngine })
    const attempt = backend.generate(['a'], seconds as number)
    await expect(attempt).rejects.toThrow(ValueError)
    await expect(attempt).rejects.toMatchObject({
      message: `timeout: expected 0 < s <= 86400, got ${text}`,
      field: 'timeout',
      code: 'RangeError',
    })
  })

  it('row 81: generate returns [] for [], and rejects a prompt that is not a string', async () => {
    const backend = await openBackend({ engine: createObedientEngine })
    expect(await backend.generate([], 1)).toEqual([])
    await expect(backend.generate(['a', 5 as unknown as string], 1)).rejects.toThrow('prompts[1]')
  })

  it('generate gives the other results if a prompt fails, is blocked or is too slow', async () => {
    const rules = 'guardrails:\n  toggle_on: true\n  rules: [{ id: animals, keywords: [zebra] }]\n'
    const clock = new ManualClock()
    const configFile = configWith(rules)
    const begun = Promise.withResolvers<void>()
    const engine: CreateEngine = (worker) => {
      const obedient = createObedientEngine(worker)
      const generate = obedient.generate.bind(obedient)
      return Object.assign(obedient, {
        generate(...args: Parameters<typeof generate>) {
          begun.resolve()
          return generate(...args)
        },
      })
    }
    const backend = await openBackend({ engine, configFile, clock })
    const prompts = ['a', 'fail', 'a zebra', 'endless', 'b']
    const generating = backend.generate(prompts, 5)
    await begun.promise
    await clock.advance(5000)
    const results = await generating
    expect(results.map(({ text, error }) => text ?? error?.code)).toEqual([
      're: a',
      'engine_error',
      'content_filter',
      'request_timeout',
      're: b',
    ])
    expect(results[1]?.error).toEqual({
      code: 'engine_error',
      message: 'the engine failed: fail',
    })
  })

  it('generate ends at its time-out, and aborts the request in the engine', async () => {
    const backend = await openBackend({ engine: createObedientEngine })
    expect(await backend.generate(['endless'], 0.05)).toEqual([
      { error: { code: 'request_timeout', message: 'no answer within 0.05 s' } },
    ])
    expect(await backend.generate(['next'], 5)).toHaveLength(1)
  })

  it('generate rejects with the endpoint when the backend serves HTTP', async () => {
    const backend = await openBackend({ port: 0 })
    const attempt = backend.generate(['a'], 1)
    await expect(attempt).rejects.toThrow(StateError)
    await expect(attempt).rejects.toThrow(`${backend.endpoint}`)
  })
})

describe('row 79: a backend whose engine is lost', () => {
  it('row 79: a task fails as with a lost worker', async () => {
    const lost = inferenceError('engine_lost', 'the engine is gone')
    const engine: CreateEngine = (worker) =>
      Object.assign(createObedientEngine(worker), { generate: () => Promise.reject(lost) })
    const clock = new ManualClock()
    await using session = new Session([await openBackend({ engine, clock })])
    const task = ask('hello')
    await session.submitTasks([task])
    const waiting = session.waitTasks([task])
    while (task.state !== 'FAILED') await clock.advance(1000)
    await waiting
    expect(task.error?.cause).toBeInstanceOf(WorkerLostError)
  })

  it('row 79: a backend that loses its engine emits an event and restarts it', async () => {
    const clock = new ManualClock()
    const losses: (() => void)[] = []
    const backend = await openBackend({
      port: 0,
      clock,
      engine: (worker) => {
        const { promise, resolve } = Promise.withResolvers<string>()
        losses.push(() => resolve('segmentation fault'))
        return Object.assign(createObedientEngine(worker), { lost: () => promise })
      },
    })
    await using session = new Session([backend])
    const telemetry = await session.startTelemetry()
    const lost = telemetry.events({ types: ['tutti.EngineLost'] })[Symbol.asyncIterator]()
    losses[0]?.()
    expect((await lost.next()).value).toMatchObject({
      worker_id: 'inference-0',
      reason: 'segmentation fault',
      backend: 'llm',
    })
    const health = await fetch(`${backend.endpoint}/health`)
    expect([health.status, await health.json()]).toMatchObject([503, { status: 'unhealthy' }])
    await clock.advance(1000)
    expect((await fetch(`${backend.endpoint}/health`)).status).toBe(200)
    expect(losses).toHaveLength(2)
  })
})

describe('the lifecycle of an inference backend', () => {
  it('an inference backend rejects work before initialize() and after close()', async () => {
    const options = { configFile: configWith(), modelName: 'tiny', name: 'llm', useService: false }
    const backend = new InferenceBackend(options)
    await using session = new Session([backend])
    await expect(session.submitTasks([ask('x')])).rejects.toThrow('is not initialized')
    await expect(backend.generate(['a'], 1)).rejects.toThrow(StateError)
    expect(backend.initialize()).toBe(backend.initialize())
    await backend.initialize()
    await backend.close()
    await expect(backend.generate(['a'], 1)).rejects.toThrow('is closed')
    await expect(backend.initialize()).rejects.toThrow('is closed')
  })

  it('an inference backend can be initialized again after a failure', async () => {
    let tries = 0
    const warnings: string[] = []
    const flaky = new InferenceBackend({
      configFile: configWith(),
      modelName: 'tiny',
      useService: false,
      log: { warn: (code) => warnings.push(code) },
      engine: (worker) => {
        if (++tries === 1) throw new RangeError('no model yet')
        return createObedientEngine(worker)
      },
    })
    await expect(flaky.initialize()).rejects.toThrow('no model yet')
    expect(warnings).toEqual([])
    await flaky.initialize()
    expect(await flaky.generate(['a'], 1)).toHaveLength(1)
    await flaky.close()
  })

  it('close() during initialize() ends the engines that are starting', async () => {
    let closes = 0
    const starting = Promise.withResolvers<void>()
    const backend = new InferenceBackend({
      configFile: configWith(),
      modelName: 'tiny',
      useService: false,
      engine: (worker) =>
        Object.assign(createObedientEngine(worker), {
          start() {
            starting.resolve()
            return new Promise(() => {})
          },
          async close() {
            closes++
          },
        }),
    })
    const initializing = backend.initialize().catch((error: unknown) => error)
    await starting.promise
    await backend.close()
    expect(await initializing).toBeInstanceOf(Error)
    expect(closes).toBe(1)
  })

  it('close() waits for an unfinished request no longer than drainSeconds', async () => {
    const backend = await openBackend({ port: 0, drainSeconds: 0.1 })
    const socket = connect(Number(new URL(backend.endpoint ?? '').port), '127.0.0.1')
    socket.on('error', () => {})
    socket.write('POST /generate HTTP/1.1\r\nhost: localhost\r\n')
    socket.write(
      'content-type: application/json\r\ncontent-length: 100\r\nexpect: 100-continue\r\n\r\n',
    )
    await once(socket, 'data')
    const closed = once(socket, 'close')
    await backend.close()
    await closed
  })

  it('a host that other machines can reach requires an apiKey, with a hint', async () => {
    const open = { configFile: configWith(), modelName: 'tiny', host: '0.0.0.0' }
    await expect(InferenceBackend.create(open)).rejects.toMatchObject({
      field: 'apiKey',
      hint: 'Give an `apiKey`, or `host: "127.0.0.1"` to serve only programs on this machine.',
    })
  })

  it.each([
    [{ modelName: undefined }, 'modelName'],
    [{ configFile: '' }, 'configFile'],
    [{ port: 70_000 }, 'port'],
    [{ useService: 'yes' }, 'useService'],
    [{ useService: true, host: '0.0.0.0' }, 'apiKey'],
    [{ maxBatchSise: 5 }, 'maxBatchSise'],
    [{ drainSeconds: -1 }, 'drainSeconds'],
    [{ numNodes: 0 }, 'numNodes'],
    [{ numNodes: 1.5 }, 'numNodes'],
    [{ numGpus: -1 }, 'numGpus'],
    [{ tpSize: Number.NaN }, 'tpSize'],
    [{ offset: '1' }, 'offset'],
    [{ maxBatchSize: 0 }, 'maxBatchSize'],
    [{ maxBatchSize: '8' }, 'maxBatchSize'],
    [{ maxBatchWaitMs: -1 }, 'maxBatchWaitMs'],
    [{ maxBatchWaitMs: Infinity }, 'maxBatchWaitMs'],
    [{ port: '8000' }, 'port'],
    [{ port: -1, useService: false }, 'port'],
    [{ engineTimeoutSeconds: Number.NaN }, 'engineTimeoutSeconds'],
    [{ limits: { maxConnections: 0 } }, 'limits.maxConnections'],
    [{ limits: { slowReaderSeconds: Number.NaN }, useService: false }, 'limits.slowReaderSeconds'],
    [{ limits: { bodyBites: 5 } }, 'limits.bodyBites'],
    [{ engine: 'gpt' }, 'engine'],
    [{ engine: null }, 'engine'],
    [{ engine: { kind: 'llama', sequences: 0 } }, 'engine'],
    [{ engine: { kind: 'echo', latencyMs: '5' } }, 'engine'],
    [{ engine: { kind: 'openai', baseUrl: 'http://x', maxConcurrency: 1.5 } }, 'engine'],
  ])('an inference backend refuses %j by the name of the field', (wrong, field) => {
    const options = { configFile: configWith(), modelName: 'tiny', ...wrong }
    const attempt = () => new InferenceBackend(options as never)
    expect(attempt).toThrow(ValueError)
    expect(attempt).toThrow(expect.objectContaining({ field }))
  })
})
