import { tmpdir } from 'node:os'
import { describe, expect, it } from 'vitest'
import { systemClock } from '../../../src/foundation/clock.ts'
import { ValueError } from '../../../src/foundation/errors.ts'
import { loadInferenceConfig } from '../../../src/inference/config/config.ts'
import { createEchoEngine } from '../../../src/inference/engines/echo/echo-engine.ts'
import { createLlamaEngine } from '../../../src/inference/engines/llama/llama-engine.ts'
import { createOpenAiEngine } from '../../../src/inference/engines/openai/openai-engine.ts'
import { createProcessEngine } from '../../../src/inference/engines/process/process-engine.ts'
import { InferenceBackend } from '../../../src/inference/inference-backend.ts'
import { configWith } from '../open-backend.ts'
import { engineOptions } from './process/engine-options.ts'

const log = { warn: () => {} }
const base = { modelName: 'tiny', contextLength: 2048, clock: systemClock, log }
const { log: _, ...echo } = base
const llama = { ...base, hubToken: null, cacheDir: tmpdir() }
const openai = { ...base, baseUrl: 'http://127.0.0.1:1', apiKey: null, maxConcurrency: 4 }
const worker = { index: 0, workerId: 'w0' }

type Create = (options: never) => unknown

/** Each engine, complete options, the required ones, and values that one of them must not have. */
const engines: [string, Create, Record<string, unknown>, string[], [string, unknown][]][] = [
  [
    'createEchoEngine',
    createEchoEngine,
    echo,
    [],
    [
      ['latencyMs', -1],
      ['latencyMs', '1'],
      ['latencyPerPromptMs', NaN],
      ['clock', {}],
      ['modelName', ''],
      ['contextLength', 0],
    ],
  ],
  [
    'createLlamaEngine',
    createLlamaEngine,
    llama,
    ['modelName', 'hubToken', 'cacheDir', 'clock', 'log'],
    [
      ['hubToken', 7],
      ['threads', 0],
      ['gpu', true],
      ['flashAttention', 'on'],
      ['sequences', 1.5],
      ['batchSize', '512'],
      ['contextLength', -1],
      ['hungSeconds', 0],
      ['usesNativeContext', 1],
      ['onProgress', 'x'],
    ],
  ],
  [
    'createOpenAiEngine',
    createOpenAiEngine,
    openai,
    ['baseUrl', 'apiKey', 'modelName', 'maxConcurrency', 'contextLength', 'clock', 'log'],
    [
      ['baseUrl', 'ftp://x'],
      ['apiKey', ''],
      ['apiKey', { key: 'x' }],
      ['maxConcurrency', 0],
      ['paths', '/v1/embeddings'],
      ['paths[1]', ['/a', 'b']],
      ['log', { warn: 1 }],
    ],
  ],
  [
    'createProcessEngine',
    (options) => createProcessEngine(options, worker),
    { ...engineOptions() },
    Object.keys(engineOptions()),
    [
      ['command', 'vllm serve'],
      ['command[0]', [1]],
      ['command', []],
      ['env.A', { A: 1 }],
      ['tpSize', 0],
      ['numGpus', -1],
      ['nodeOffset', 0.5],
      ['servers', {}],
      ['cores', 0],
      ['healthPath', 'health'],
      ['startTimeoutSeconds', Infinity],
      ['gpuMemoryUtilization', 1.5],
      ['hubToken', 7],
      ['paths[0]', [1]],
    ],
  ],
]

function errorOf(create: () => unknown): unknown {
  try {
    return create()
  } catch (error) {
    return error
  }
}

describe.each(engines)('%s', (name, create, complete, required, wrong) => {
  const createWith = (more: object): unknown =>
    errorOf(() => create({ ...complete, ...more } as never))

  it('engine options may be complete, or those of a section with its kind', () => {
    expect(createWith({})).not.toBeInstanceOf(Error)
    expect(createWith({ kind: 'any' })).not.toBeInstanceOf(Error)
  })

  it.each([[null], ['text'], [[]]])('engine options are named if they are %j', (options) => {
    const error = errorOf(() => create(options as never))
    expect(error).toBeInstanceOf(ValueError)
    expect(error).toMatchObject({ field: 'options' })
  })

  it('engine options: each required one that is missing is named', () => {
    for (const field of required) {
      const error = createWith({ [field]: undefined })
      expect(error, field).toBeInstanceOf(ValueError)
      expect(error).toMatchObject({ field })
    }
  })

  it.each(wrong)(
    'engine options: %s is named if its value is %j, and no secret is repeated',
    (field, value) => {
      const error = createWith({ [field.replace(/[.[].*/, '')]: value })
      expect(error).toBeInstanceOf(ValueError)
      expect(error).toMatchObject({ field })
    },
  )

  it('engine options: an unknown one is named, with the nearest known one', () => {
    const error = createWith({ modelNam: 'tiny' })
    expect(error).toMatchObject({ field: 'modelNam' })
    expect(String(error)).toContain(`${name} has no \`modelNam\`; did you mean "modelName"?`)
  })
})

it('createProcessEngine names what is wrong with its worker', () => {
  const create = (given: unknown): unknown =>
    errorOf(() => createProcessEngine(engineOptions(), given as never))
  expect(create(undefined)).toMatchObject({ field: 'worker' })
  expect(create({ workerId: 'w0' })).toMatchObject({ field: 'worker.index' })
  expect(create({ index: 0 })).toMatchObject({ field: 'worker.workerId' })
})

it('the message about a key or a variable of the wrong type does not repeat it', () => {
  const key = errorOf(() => createOpenAiEngine({ ...openai, apiKey: ['hunter2'] as never }))
  expect(String(key)).toContain('`apiKey` to be a non-empty string, got [masked] (array)')
  const env = { TOKEN: ['hunter2'] as never }
  const variable = errorOf(() => createProcessEngine(engineOptions({ env }), worker))
  expect(String(variable)).toContain('`env.TOKEN` to be a non-empty string, got [masked]')
  expect(`${String(key)} ${String(variable)}`).not.toContain('hunter2')
})

it('a configuration whose kind of engine is unknown starts no other engine instead', async () => {
  const config = await loadInferenceConfig(configWith(''))
  const engine = { ...config.engine, kind: 'vllm' as never }
  const backend = InferenceBackend.fromConfig({ ...config, engine }, { useService: false })
  await expect(backend).rejects.toMatchObject({
    name: 'ValueError',
    field: 'engine.kind',
    got: 'vllm',
  })
})
