import { execFileSync, fork } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, cpSync, mkdirSync, readFileSync, rmSync } from 'node:fs'
import { truncateSync, writeFileSync } from 'node:fs'
import { type AddressInfo, createServer } from 'node:net'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { describe, expect, it, onTestFinished } from 'vitest'
import { writeGguf } from '../../../../src/inference/models/gguf-writer.ts'
import { systemClock } from '../../../../src/foundation/clock.ts'
import type {
  MessageFromLlama,
  MessageToLlama,
} from '../../../../src/inference/engines/llama/protocol.ts'
import { ManualClock } from '../../../../src/testing/manual-clock.ts'
import { SupervisedChild } from '../../../../src/runtime/supervised-child.ts'
import { RecordingGeneration, toRequest } from '../generation.ts'
import { isRunning, modelProcesses } from './model-processes.ts'
import { createEngine, openEngine, useTinyModel } from './open-engine.ts'
import { eventually } from '../../../eventually.ts'

const tiny = useTinyModel()
const fixture = (name: string): string =>
  fileURLToPath(new URL(`fixtures/${name}`, import.meta.url))

describe('the llama engine', () => {
  it('row 79: a killed process fails its running requests with the signal', async () => {
    const engine = await openEngine(tiny.path)
    const listener = new RecordingGeneration()
    listener.hold = new Promise(() => {})
    const many = ['a', 'b'].map((id) =>
      toRequest({ kind: 'text', text: id }, { ignoreEos: true }, { id }),
    )
    const generating = engine.generate(many, listener)
    const outcome = expect(generating).rejects.toMatchObject({
      code: 'engine_lost',
      message: "the model's process was ended by SIGKILL",
      hint: expect.stringContaining('memory'),
    })
    await listener.begun
    for (const pid of modelProcesses(process.pid)) process.kill(pid, 'SIGKILL')
    await outcome
    expect(await engine.lost()).toBe("the model's process was ended by SIGKILL")
    expect(listener.ends).toEqual([])
    await expect(engine.generate(many, listener)).rejects.toMatchObject({ code: 'engine_lost' })
    await expect(engine.tokenize('a')).rejects.toMatchObject({ code: 'engine_lost' })
  })

  it('a process that stands still while it loads the model is given up', async () => {
    const clock = new ManualClock()
    // Never answers: the model is never loaded.
    const server = createServer().listen(0, '127.0.0.1')
    onTestFinished(() => void server.close())
    await once(server, 'listening')
    const { port } = server.address() as AddressInfo
    const url = `http://127.0.0.1:${port}/tiny.gguf`
    const engine = createEngine(url, { clock, hungSeconds: 20 })
    const started = engine.start()
    // The process has started, so its start is no longer watched.
    await eventually(() => expect(clock.pendingTimers).toBe(1))
    const [pid = 0] = modelProcesses(process.pid)
    expect(pid).toBeGreaterThan(0)
    process.kill(pid, 'SIGSTOP')
    const outcome = expect(started).rejects.toMatchObject({
      code: 'engine_lost',
      message: "the model's process gave no sign of life for 60 s",
    })
    await clock.advance(59_000)
    expect(isRunning(pid)).toBe(true)
    await clock.advance(1000)
    await outcome
    await eventually(() => expect(isRunning(pid)).toBe(false))
  })

  it('a process that stands still is told, and given up after its limit', async () => {
    const clock = new ManualClock()
    const engine = await openEngine(tiny.path, { clock, hungSeconds: 20 })
    const [pid = 0] = modelProcesses(process.pid)
    // Before it gets the request: however fast the model is, the answer cannot end before.
    process.kill(pid, 'SIGSTOP')
    const request = toRequest({ kind: 'text', text: 'a' }, { ignoreEos: true })
    const generating = engine.generate([request], new RecordingGeneration())
    const outcome = expect(generating).rejects.toMatchObject({
      code: 'engine_lost',
      message: "the model's process gave no sign of life for 20 s",
    })
    await clock.advance(9_500)
    expect(engine.problem?.()).toBeNull()
    await clock.advance(500)
    expect(engine.problem?.()).toBe('has given no sign of life for 10 s')
    await clock.advance(9_500)
    expect(isRunning(pid)).toBe(true)
    await clock.advance(500)
    await outcome
    expect(await engine.lost()).toMatch(/no sign of life/)
    await eventually(() => expect(isRunning(pid)).toBe(false))
  })

  it('row 79: an abort while the model loads fails the start with the reason', async () => {
    const path = join(tiny.folder, 'repeated.gguf')
    writeGguf(path, repeatedTokens())
    const engine = createEngine(path)
    onTestFinished(() => engine.close())
    await expect(engine.start()).rejects.toMatchObject({
      name: 'InferenceError',
      code: 'engine_lost',
      message: expect.stringMatching(/^the model's process was ended by SIGABRT: .*ASSERT/),
    })
    expect(modelProcesses(process.pid)).toEqual([])
  })

  it.each([
    ['a file that does not exist', 'absent.gguf', /there is no file \S+absent\.gguf/],
    ['a folder', 'folder.gguf', /folder\.gguf cannot be read: EISDIR/],
    ['row 121: a pipe', 'pipe.gguf', /pipe\.gguf cannot be read: ENOTSUP/],
    ['a file that is not a model', 'text.gguf', /text\.gguf is not a GGUF file/],
    ['a truncated model', 'cut.gguf', /cut\.gguf cannot be loaded: /],
  ])('%s fails the start with the reason', async (_, name, message) => {
    writeFileSync(join(tiny.folder, 'text.gguf'), 'this is not a model')
    mkdirSync(join(tiny.folder, 'folder.gguf'), { recursive: true })
    execFileSync('mkfifo', [join(tiny.folder, 'pipe.gguf')])
    onTestFinished(() => rmSync(join(tiny.folder, 'pipe.gguf')))
    copyFileSync(tiny.path, join(tiny.folder, 'cut.gguf'))
    truncateSync(join(tiny.folder, 'cut.gguf'), 60_000)
    const engine = createEngine(join(tiny.folder, name))
    onTestFinished(() => engine.close())
    await expect(engine.start()).rejects.toMatchObject({
      name: 'InferenceError',
      message: expect.stringMatching(message),
      hint: expect.stringContaining('GGUF file'),
    })
    await engine.close()
    expect(modelProcesses(process.pid)).toEqual([])
  })

  it('a missing library is reported with the command that installs it', async () => {
    const copy = join(tiny.folder, 'copy')
    mkdirSync(copy)
    writeFileSync(join(copy, 'package.json'), '{ "type": "module" }')
    for (const folder of ['foundation', 'inference', 'runtime']) {
      cpSync(
        fileURLToPath(new URL(`../../../../src/${folder}`, import.meta.url)),
        join(copy, folder),
        {
          recursive: true,
        },
      )
    }
    const received = Promise.withResolvers<MessageFromLlama>()
    const child = new SupervisedChild<MessageToLlama, MessageFromLlama>({
      program: pathToFileURL(join(copy, 'inference/engines/llama/llama-program.ts')),
      clock: systemClock,
      execArgv: ['--no-warnings'],
      onMessages: (messages) => messages.forEach(received.resolve),
      onExit: () => received.reject(new Error('the process ended')),
    })
    const defaults = { contextLength: null, flashAttention: false }
    const order = { modelName: tiny.path, hubToken: null, cacheDir: copy, threads: 1 }
    child.send({
      kind: 'load',
      request: { ...order, gpu: false, sequences: 1, batchSize: 8, ...defaults },
    })
    expect(await received.promise).toEqual({
      kind: 'unloadable',
      failure: {
        code: 'engine_error',
        message: 'the llama engine needs node-llama-cpp 3.21.1',
        hint: 'npm install node-llama-cpp@3.21.1',
      },
    })
    await child.close()
  })

  it('the process of a model ends when its parent is killed', async () => {
    const parent = fork(fixture('parent.ts'), [tiny.path], { execArgv: ['--no-warnings'] })
    await once(parent, 'message')
    const children = modelProcesses(parent.pid ?? 0)
    expect(children).toHaveLength(1)
    parent.kill('SIGKILL')
    await once(parent, 'exit')
    await eventually(() => expect(children.filter(isRunning)).toEqual([]))
  })

  it('a secret of the environment and the hub token do not reach the process', async () => {
    process.env['HF_TOKEN'] = 'hf_canaryInTheEnvironment'
    onTestFinished(() => void delete process.env['HF_TOKEN'])
    await openEngine(tiny.path, { hubToken: 'hf_canaryInTheOptions' })
    const [pid] = modelProcesses(process.pid)
    const seen = ['environ', 'cmdline'].map((name) => readFileSync(`/proc/${pid}/${name}`, 'utf8'))
    expect(seen.join('\n')).toContain('llama-program')
    expect(seen.join('\n')).not.toContain('canary')
  })

  it('requests before the model is loaded fail with not_ready', async () => {
    const engine = createEngine(tiny.path)
    onTestFinished(() => engine.close())
    await expect(engine.tokenize('a')).rejects.toMatchObject({ code: 'not_ready' })
    const starting = engine.start()
    await expect(engine.tokenize('a')).rejects.toMatchObject({ code: 'not_ready' })
    await starting
    expect(await engine.tokenize('a')).not.toEqual([])
  })

  it('an engine that is closed while it loads leaves no process behind', async () => {
    const engine = createEngine(tiny.path)
    const starting = expect(engine.start()).rejects.toMatchObject({ code: 'closing' })
    await engine.close()
    await starting
    expect(modelProcesses(process.pid)).toEqual([])
  })
})

/** A vocabulary with a repeated token: llama.cpp aborts the process because of it. */
function repeatedTokens(): Parameters<typeof writeGguf>[1] {
  const uint32 = (value: number) => ({ type: 'uint32', value }) as const
  return {
    metadata: {
      'general.architecture': { type: 'string', value: 'llama' },
      'llama.context_length': uint32(64),
      'llama.embedding_length': uint32(32),
      'llama.block_count': uint32(1),
      'llama.feed_forward_length': uint32(32),
      'llama.attention.head_count': uint32(1),
      'llama.attention.layer_norm_rms_epsilon': { type: 'float32', value: 1e-5 },
      'tokenizer.ggml.model': { type: 'string', value: 'llama' },
      'tokenizer.ggml.tokens': { type: 'string', value: ['<unk>', 'a', 'a'] },
      'tokenizer.ggml.scores': { type: 'float32', value: [0, 0, 0] },
      'tokenizer.ggml.token_type': { type: 'int32', value: [2, 1, 1] },
    },
    tensors: [],
  }
}
