import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { describe, expect, it, onTestFinished } from 'vitest'
import {
  createProcessEngine,
  type ProcessEngineOptions,
} from '../../../../src/inference/engines/process/process-engine.ts'
import { RecordingGeneration, toRequest } from '../generation.ts'
import { NoticedClock } from '../noticed-clock.ts'
import { holdAll, page, portOf } from './connections.ts'
import { engineOptions, serverCommand } from './engine-options.ts'

/** An engine, closed after the test, with its progress lines and warnings. */
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
    /** From the server's output, because the engine is not ready yet. */
    printedPort: () => Number(/on port (\d+)/.exec(lines.join('\n'))?.[1]),
  }
}

describe('a server that the engine starts', () => {
  it('a started server answers, and ends with its child processes on close', async () => {
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

  it('a started server ends with its child processes if the engine closes meanwhile', async () => {
    const { engine, listening, printedPort, warnings } = open({
      command: serverCommand('unhealthy'),
    })
    const failed = expect(engine.start()).rejects.toMatchObject({ code: 'closing' })
    await listening
    const released = await holdAll(printedPort())
    await engine.close()
    await Promise.all([failed, released()])
    expect(warnings).toEqual([])
  })

  it('a started server is ended if it serves another model than the configured one', async () => {
    const { engine, warnings } = open({ modelName: 'huge' })
    await expect(engine.start()).rejects.toThrow(
      'the server does not serve "huge": it serves "tiny"',
    )
    expect(warnings).toEqual([])
  })

  it('a started server gets its GPUs, its arguments and no secret of the environment', async () => {
    process.env['CANARY_TOKEN'] = 'a-secret-of-the-environment'
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

  it('a server is not started if its worker belongs on another node', async () => {
    const { engine } = open({ numGpus: 1 }, 1)
    await expect(engine.start()).rejects.toMatchObject({
      code: 'unsupported',
      message: 'worker 1 belongs on node 1, not on this one',
      hint: expect.stringContaining('HPC backend') as string,
    })
  })

  it('a server is refused if its command has an unknown placeholder', () => {
    expect(() => open({ command: ['serve', '{gpu}'] })).toThrow('unknown placeholder {gpu}')
  })
})

describe('row 79: a failing server', () => {
  it('row 79: an exit during the start fails it with the exit code and the output', async () => {
    const hubToken = 'hf_secret_of_somebody'
    const { engine, lines, warnings } = open({ command: serverCommand('crashes'), hubToken })
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

  it('row 79: a program that does not exist fails the start with its name', async () => {
    const { engine } = open({ command: ['no-such-server', '{port}'] })
    await expect(engine.start()).rejects.toMatchObject({
      code: 'engine_error',
      message: 'the server program "no-such-server" cannot be started: ENOENT',
    })
  })

  it('row 79: a server that is not healthy in time is ended with its children', async () => {
    const clock = new NoticedClock()
    const options = { clock, command: serverCommand('unhealthy'), startTimeoutSeconds: 30 }
    const { engine, listening, printedPort, lines } = open(options)
    const starting = engine.start()
    const failed = expect(starting).rejects.toMatchObject({
      code: 'engine_timeout',
      message: expect.stringMatching(
        /^the server of worker 0 was not ready within 30 s: .*http:\/\/127\.0\.0\.1:\d+\/health/,
      ) as string,
      cause: { message: expect.stringContaining('listening') as string },
    })
    await listening
    expect(lines).toEqual([`worker on port ${printedPort()}`, 'listening'])
    const released = await holdAll(printedPort())
    await clock.advance(30_000)
    await failed
    await released()
    expect(clock.pendingTimers).toBe(0)
  })

  it('row 79: a killed server loses the engine, and its child processes are ended', async () => {
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

  it('row 79: three failed health checks in a row lose the engine', async () => {
    const clock = new NoticedClock()
    const { engine, listening, printedPort } = open({ clock })
    const starting = engine.start().then(() => true)
    await listening
    for (;;) {
      const poll = clock.timer(250).then(() => false)
      if (await Promise.race([starting, poll])) break
      await clock.advance(250)
    }
    await page(printedPort(), '/fail-health')
    for (const _ of [1, 2, 3]) {
      await clock.timer(10_000)
      await clock.advance(10_000)
    }
    expect(await engine.lost()).toBe('the server of worker 0 failed 3 health checks in a row')
  })
})

describe('a parent process with a process engine', () => {
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

  it('a parent process that is killed leaves no server behind', async () => {
    const { parent, released } = await startParent()
    parent.kill('SIGKILL')
    await released()
  })

  it('a parent process exits although its server runs, and leaves no server behind', async () => {
    const { parent, released } = await startParent()
    parent.send('leave')
    expect(await once(parent, 'exit')).toEqual([0, null])
    await released()
  })
})
