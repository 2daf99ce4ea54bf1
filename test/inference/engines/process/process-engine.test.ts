import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { describe, expect, it, onTestFinished } from 'vitest'
import {
  createProcessEngine,
  type ProcessEngineOptions,
} from '../../../../src/inference/engines/process.ts'
import { RecordingGeneration, toRequest } from '../generation.ts'
import { NoticedClock } from '../noticed-clock.ts'
import { holdAll, page, portOf } from './connections.ts'
import { engineOptions, serverCommand } from './engine-options.ts'

/** An engine, closed after the test, with all that it said meanwhile. */
function open(options: Partial<ProcessEngineOptions> = {}, index = 0) {
  const lines: string[] = []
  const warnings: string[] = []
  const listening = Promise.withResolvers<void>()
  const engine = createProcessEngine(
    engineOptions({
      onProgress: (line) => {
        lines.push(line)
        if (line === 'listening') listening.resolve()
      },
      log: { warn: (code, message) => warnings.push(`${code}: ${message}`) },
      ...options,
    }),
    { index, workerId: `w${index}` },
  )
  onTestFinished(() => engine.close())
  return {
    engine,
    lines,
    warnings,
    listener: new RecordingGeneration(),
    listening: listening.promise,
    /** As its own output tells, before it is ready. */
    toldPort: () => Number(/on port (\d+)/.exec(lines.join('\n'))?.[1]),
  }
}

describe('a server of its own', () => {
  it('is started, answers, and is gone with all it started after the close', async () => {
    const { engine, listener } = open()
    expect(engine.capacity).toEqual({ admits: 'step', slots: 4 })
    expect(await engine.start()).toEqual({
      name: 'tiny',
      contextLength: 2048,
      hasChatTemplate: true,
    })
    await engine.generate([toRequest('hello there')], listener)
    expect(listener.textOf()).toBe('hello there')
    expect(listener.ends).toMatchObject([{ kind: 'done', finishReason: 'stop' }])
    expect(await engine.tokenize('a b')).toEqual([0, 1])
    const released = await holdAll(await portOf(engine))
    const closing = engine.close()
    expect(engine.close()).toBe(closing)
    await closing
    await released()
  })

  it('is gone also when it is closed while it starts', async () => {
    const { engine, listening, toldPort, warnings } = open({ command: serverCommand('sick') })
    const failed = expect(engine.start()).rejects.toMatchObject({ code: 'closing' })
    await listening
    const released = await holdAll(toldPort())
    await engine.close()
    await Promise.all([failed, released()])
    expect(warnings).toEqual([])
  })

  it('serves another model than was asked for, and is ended', async () => {
    const { engine, warnings } = open({ modelName: 'huge' })
    await expect(engine.start()).rejects.toThrow(
      'the server does not serve "huge": it serves "tiny"',
    )
    expect(warnings).toEqual([])
  })

  it('sees its slice and what it needs, and nothing else of ours', async () => {
    process.env['CANARY_TOKEN'] = 'canary-in-a-mine'
    onTestFinished(() => void delete process.env['CANARY_TOKEN'])
    const { engine } = open(
      {
        command: serverCommand('ready', '{model}', '{host}', '{tp_size}', '{worker}', '{node}'),
        numGpus: 4,
        tpSize: 2,
        nodeOffset: 3,
        env: { EXTRA: 'yes', CUDA_VISIBLE_DEVICES: '4,5,6,7' },
        hubToken: 'hf_of_the_test',
      },
      1,
    )
    await engine.start()
    const port = await portOf(engine)
    const seen = (await page(port, '/environment')) as Record<string, string>
    expect(seen).toMatchObject({
      CUDA_VISIBLE_DEVICES: '6,7',
      TUTTI_NODE: '3',
      EXTRA: 'yes',
      HF_TOKEN: 'hf_of_the_test',
      PATH: process.env['PATH'],
    })
    expect(Object.keys(seen)).not.toContain('CANARY_TOKEN')
    expect(Object.keys(seen)).not.toContain('NODE_CHANNEL_FD')
    const values = ['ready', 'tiny', '127.0.0.1', '2', '1', '3']
    expect(await page(port, '/arguments')).toEqual([String(port), ...values])
  })

  it('on another node is for the HPC backend to start', async () => {
    const { engine } = open({ numGpus: 1 }, 1)
    await expect(engine.start()).rejects.toMatchObject({
      code: 'unsupported',
      message: 'worker 1 belongs on node 1, not on this one',
      hint: expect.stringContaining('HPC backend') as string,
    })
  })

  it('is not made from a template that cannot be filled', () => {
    expect(() => open({ command: ['serve', '{gpu}'] })).toThrow('unknown placeholder {gpu}')
  })
})

describe('row 79: a server that fails', () => {
  it('during its start fails it with the exit code and the end of its output', async () => {
    const hubToken = 'hf_secret_of_somebody'
    const { engine, lines, warnings } = open({ command: serverCommand('dies'), hubToken })
    await expect(engine.start()).rejects.toMatchObject({
      code: 'engine_error',
      message: 'the server of worker 0 ended with exit code 3',
      cause: { message: expect.stringContaining('CUDA error: no kernel image') as string },
    })
    expect(lines).toContain('loading weights')
    expect(warnings).toEqual([expect.stringMatching(/^ServerOutput: .*\n[^]*CUDA error/)])
    expect([...warnings, ...lines].join('\n')).not.toContain(hubToken)
    expect(warnings.join('\n')).toContain('token=[masked]')
    await engine.close()
  })

  it('because it does not exist is told by its name', async () => {
    const { engine } = open({ command: ['no-such-server', '{port}'] })
    await expect(engine.start()).rejects.toMatchObject({
      code: 'engine_error',
      message: 'the server program "no-such-server" cannot be started: ENOENT',
    })
  })

  it('to become healthy in time is ended, with all it started', async () => {
    const clock = new NoticedClock()
    const options = { clock, command: serverCommand('sick'), startTimeoutSeconds: 30 }
    const { engine, listening, toldPort, lines } = open(options)
    const starting = engine.start()
    const failed = expect(starting).rejects.toMatchObject({
      code: 'engine_timeout',
      message: 'the server of worker 0 was not ready within 30 s',
      cause: { message: expect.stringContaining('listening') as string },
    })
    await listening
    expect(lines).toEqual([`worker on port ${toldPort()}`, 'listening'])
    const released = await holdAll(toldPort())
    await clock.advance(30_000)
    await failed
    await released()
    expect(clock.pendingTimers).toBe(0)
  })

  it('by SIGKILL loses the engine: all under way reject, and its child is ended', async () => {
    const { engine, listener, warnings } = open()
    await engine.start()
    const port = await portOf(engine)
    const released = await holdAll(port)
    const { pid } = (await page(port, '/process')) as { pid: number }
    const endless = toRequest('hang')
    const generating = engine.generate([endless], listener)
    const rejected = expect(generating).rejects.toMatchObject({ code: 'engine_lost' })
    await listener.begun
    process.kill(pid, 'SIGKILL')
    await rejected
    expect(await engine.lost()).toBe('the server of worker 0 ended with SIGKILL')
    expect(listener.ends).toEqual([])
    await released()
    await expect(engine.generate([toRequest('x')], listener)).rejects.toMatchObject({
      code: 'engine_lost',
    })
    expect(warnings).toHaveLength(1)
  })

  it('its health checks again and again loses the engine', async () => {
    const clock = new NoticedClock()
    const { engine, listening, toldPort } = open({ clock })
    const starting = engine.start().then(() => true)
    await listening
    for (;;) {
      const poll = clock.timer(250).then(() => false)
      if (await Promise.race([starting, poll])) break
      await clock.advance(250)
    }
    await page(toldPort(), '/sicken')
    for (const _ of [1, 2, 3]) {
      await clock.timer(10_000)
      await clock.advance(10_000)
    }
    expect(await engine.lost()).toBe('the server of worker 0 failed 3 health checks in a row')
  })
})

describe('a process that has a server', () => {
  const program = fileURLToPath(new URL('./fixtures/parent-program.ts', import.meta.url))

  async function startParent(): Promise<{
    parent: ChildProcess
    released: () => Promise<void>
  }> {
    const parent = fork(program, { execArgv: ['--no-warnings'] })
    onTestFinished(() => void parent.kill('SIGKILL'))
    const [port] = (await once(parent, 'message')) as [number]
    return { parent, released: await holdAll(port) }
  }

  it('leaves nothing behind when it is killed', async () => {
    const { parent, released } = await startParent()
    parent.kill('SIGKILL')
    await released()
  })

  it('is not kept alive by it, and leaves nothing behind when it ends by itself', async () => {
    const { parent, released } = await startParent()
    parent.send('leave')
    expect(await once(parent, 'exit')).toEqual([0, null])
    await released()
  })
})
