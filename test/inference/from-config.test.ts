import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { ValueError } from '../../src/foundation/errors.ts'
import { loadInferenceConfig } from '../../src/inference/config/config.ts'
import { InferenceBackend } from '../../src/inference/inference-backend.ts'
import { Session } from '../../src/session/session.ts'
import { AITask } from '../../src/tasks/ai-task.ts'
import { writeTinyModel } from './engines/tiny-model.ts'
import { configWith, createObedientEngine, tempFolder } from './open-backend.ts'

type Source = Parameters<typeof InferenceBackend.fromConfig>[0]
type Options = Parameters<typeof InferenceBackend.fromConfig>[1]

async function open(source: Source, options: Options = {}): Promise<InferenceBackend> {
  const backend = await InferenceBackend.fromConfig(source, { useService: false, ...options })
  onTestFinished(() => backend.close())
  return backend
}

describe('InferenceBackend.fromConfig', () => {
  const window = 'input_batching:\n  max_batch_wait_ms: 3\n'
  const sections = {
    required: { model_name: 'tiny' },
    input_batching: { max_batch_wait_ms: 3 },
    engine: { kind: 'echo' },
  }

  it.each([
    ['a file', () => configWith(window)],
    ['an object with the sections of a file', () => sections],
    ['a configuration that was loaded', () => loadInferenceConfig(configWith(window))],
  ])(
    'InferenceBackend.fromConfig takes everything from %s, the name of the model too',
    async (_, source) => {
      const backend = await open(await source(), { useService: true, port: 0 })
      expect([backend.name, backend.model]).toEqual(['inference', 'tiny'])
      const health = await (await fetch(`${backend.endpoint}/health`)).json()
      expect(health).toMatchObject({ batch_config: { type: 'fixed', max_batch_wait_ms: 3 } })
      await using session = new Session([backend])
      const task = new AITask({ prompt: 'hello', backend: 'inference' })
      await session.submitTasks([task])
      expect(await task).toContain('hello')
    },
  )

  it('InferenceBackend.fromConfig refuses a circular object, and endless nesting', async () => {
    const cyclic: Record<string, unknown> = { kind: 'process' }
    cyclic['env'] = { A: [cyclic] }
    let deep: unknown = 1
    for (let at = 0; at < 100_000; at++) deep = { deep }
    const cases = [
      [{ ...sections, engine: cyclic }, {}, 'engine.env.A[0]', 'an object that contains itself'],
      [{ ...sections, engine: deep }, {}, 'engine.deep', 'one nested more than 100 deep'],
      [sections, { engine: cyclic }, 'engine.env.A[0]', 'an object that contains itself'],
    ] as const
    for (const [source, options, field, got] of cases) {
      await expect(open(source as Source, options as Options)).rejects.toMatchObject({
        name: 'ValueError',
        code: 'ConfigError',
        field: expect.stringContaining(field),
        message: expect.stringContaining(`: expected a value that a file can hold, got ${got}`),
      })
    }
    // The same object twice is no cycle.
    const shared = { a: 'b' }
    const twice = { ...sections, required: { ...sections.required, hf_token: shared, x: shared } }
    await expect(open(twice as unknown as Source)).rejects.toThrow('hf_token: expected a token')
  })

  it('InferenceBackend.fromConfig serves a task that names neither backend nor model', async () => {
    await using session = new Session([await open(sections)])
    const task = new AITask({ prompt: 'anyone?' })
    await session.submitTasks([task])
    expect([await task, task.backend]).toEqual([expect.stringContaining('anyone?'), 'inference'])
  })

  it('server.strict of a file refuses fields that nobody reads', async () => {
    const source = configWith('server: { strict: true }\n')
    const { endpoint } = await open(source, { useService: true, port: 0 })
    const ask = (body: object): Promise<Response> =>
      fetch(`${endpoint}/v1/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ prompt: 'a', ...body }),
      })
    const refused = await ask({ unheard_of: 1 })
    expect([refused.status, await refused.json()]).toMatchObject([
      400,
      { error: { code: 'unknown_parameter', param: 'unheard_of' } },
    ])
    expect((await ask({})).status).toBe(200)
  })

  it('options take precedence over a file and an object', async () => {
    for (const source of [configWith(window), sections]) {
      const options = { name: 'llm', modelName: 'other', maxBatchWaitMs: 5 }
      const backend = await open(source, { ...options, useService: true, port: 0 })
      expect([backend.name, backend.model]).toEqual(['llm', 'other'])
      const health = await (await fetch(`${backend.endpoint}/health`)).json()
      expect(health).toMatchObject({ batch_config: { max_batch_wait_ms: 5 } })
    }
  })

  it('InferenceBackend.fromConfig needs no token if the engine downloads nothing', async () => {
    const own = await open({ required: { model_name: 'own' } }, { engine: createObedientEngine })
    expect(await own.generate(['a'], 5)).toMatchObject([{ text: 're: a' }])
  })

  it('InferenceBackend.fromConfig refuses late options for a loaded configuration', async () => {
    const config = await loadInferenceConfig(configWith())
    await expect(open(config, { maxBatchSize: 5 })).rejects.toMatchObject({
      field: 'maxBatchSize',
      hint: expect.stringContaining('loadInferenceConfig'),
    })
    const own = await open(config, { engine: createObedientEngine })
    expect(await own.generate(['a'], 5)).toMatchObject([{ text: 're: a' }])
  })

  it.each([
    [
      { required: { model_nam: 'x' } },
      /^required\.model_nam: unknown key, did you mean model_name/,
    ],
    [
      { ...sections, guardrails: { rules: [{ id: 'a', patern: 'x' }] } },
      /^guardrails\.rules\[0\]\.patern: unknown key, did you mean pattern/m,
    ],
    [{ ...sections, llmm: {} }, /^llmm: unknown key, did you mean llm/],
    [{ ...sections, llm: { top_p: 5 } }, /llm\.top_p: expected a number.*got 5/],
    [{ engine: { kind: 'echo' } }, /required\.model_name: missing/],
  ])('InferenceBackend.fromConfig names the problem of the object %j', async (source, message) => {
    const attempt = open(source)
    await expect(attempt).rejects.toThrow(ValueError)
    await expect(attempt).rejects.toThrow(message)
  })

  it.each([5, null, undefined, [], ''])(
    'InferenceBackend.fromConfig refuses %j as a configuration',
    async (source) => {
      await expect(open(source as never)).rejects.toMatchObject({ field: 'config' })
    },
  )

  it('InferenceBackend.fromConfig ends the start when its signal is aborted', async () => {
    const abort = new AbortController()
    const attempt = open(sections, {
      signal: abort.signal,
      engine: (worker) =>
        Object.assign(createObedientEngine(worker), {
          start() {
            abort.abort(new Error('enough'))
            return new Promise(() => {})
          },
        }),
    })
    await expect(attempt).rejects.toThrow('enough')
  })
})

describe('relative paths in a configuration file', () => {
  it('relative paths in a configuration file are relative to that file', async () => {
    const folder = tempFolder()
    mkdirSync(join(folder, 'models'))
    writeTinyModel(join(folder, 'models'))
    const file = join(folder, 'model.yaml')
    const engine = 'engine: { kind: llama, threads: 1, gpu: false, sequences: 1, cache_dir: cache }'
    const required = 'required: { model_name: models/tiny.gguf }'
    writeFileSync(file, `${required}\nllm: { max_model_len: 128, max_tokens: 2 }\n${engine}\n`)
    expect(await loadInferenceConfig(file)).toMatchObject({
      modelName: 'models/tiny.gguf',
      modelPath: join(folder, 'models/tiny.gguf'),
      engine: { cacheDir: join(folder, 'cache') },
    })
    const backend = await open(file)
    expect(backend.model).toBe('models/tiny.gguf')
    expect(await backend.generate(['a'], 60)).toMatchObject([{ usage: { completion_tokens: 2 } }])
  })

  it('relative paths are those of models, caches and programs, not names of such', async () => {
    const folder = tempFolder()
    const pathOf = async (model: string, engine: string): Promise<unknown> => {
      const file = join(folder, 'model.yaml')
      writeFileSync(file, `required: { model_name: ${model} }\nengine: ${engine}\n`)
      const config = await loadInferenceConfig(file)
      const command = config.engine.kind === 'process' ? config.engine.command[0] : undefined
      return [config.modelPath, command]
    }
    const absolute = '{ kind: process, command: "/bin/serve {port}" }'
    expect(await pathOf('user/model', '{ kind: process, command: "vllm serve {port}" }')).toEqual([
      'user/model',
      'vllm',
    ])
    expect(await pathOf('./a', '{ kind: process, command: "./serve {port}" }')).toEqual([
      join(folder, 'a'),
      join(folder, 'serve'),
    ])
    expect(await pathOf('/m/a.gguf', absolute)).toEqual(['/m/a.gguf', '/bin/serve'])
    const upstream = '{ kind: openai, base_url: "http://localhost:1/v1" }'
    expect(await pathOf('./a.gguf', upstream)).toEqual(['./a.gguf', undefined])
  })
})

describe('nodes that cannot be had', () => {
  it.each(['llama', 'openai', 'process'])('nodes are refused by the %s engine', async (kind) => {
    const keys = {
      llama: {},
      openai: { base_url: 'http://localhost:1/v1' },
      process: { command: 'true {port}' },
    }[kind]
    const source = {
      required: { model_name: './x.gguf' },
      hardware: { num_nodes: 2 },
      engine: { kind, ...keys },
    }
    const attempt = open(source)
    await expect(attempt).rejects.toThrow(ValueError)
    await expect(attempt).rejects.toMatchObject({
      field: 'numNodes',
      message: `num_nodes is 2, but the ${kind} engine runs workers on this node only`,
      hint: expect.stringContaining(kind === 'process' ? '`nodes: hpc`' : 'Set it to 1') as string,
    })
  })

  it('nodes are simulated by the echo engine, and left to an engine of your own', async () => {
    const source = { required: { model_name: 'tiny' }, engine: { kind: 'echo' } }
    expect((await open(source, { numNodes: 3 })).workers).toBe(3)
    const own = await open(source, { numNodes: 2, engine: createObedientEngine })
    expect(own.workers).toBe(2)
  })
})
