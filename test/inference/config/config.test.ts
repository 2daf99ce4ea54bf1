import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { Log } from '../../../src/foundation/log.ts'
import { loadInferenceConfig } from '../../../src/inference/config/config.ts'
import type { InferenceOverrides } from '../../../src/inference/config/inference-config.ts'
import { parseInferenceConfig } from './parse-config.ts'

const parse = (text: string, overrides: InferenceOverrides = {}) =>
  parseInferenceConfig(text, { file: 'config.yaml', env: { NAME: 'tiny' }, overrides })
const local = 'required: { model_name: ./tiny.gguf }\n'

describe('a configuration', () => {
  it('a configuration has a default for everything but the model', () => {
    expect(parse(local)).toEqual({
      modelName: './tiny.gguf',
      modelPath: './tiny.gguf',
      servedNames: ['tiny'],
      hubToken: null,
      tpSize: 1,
      purpose: null,
      adapterPath: null,
      hardware: {
        numNodes: 1,
        numGpus: 1,
        nodeOffset: 0,
        numInfWorkers: 1,
        queueLimit: 10_000,
        modelMemoryMb: null,
      },
      llm: {
        dtype: 'bfloat16',
        maxTokens: 100,
        maxModelLen: 8192,
        temperature: 0.5,
        topP: 0.95,
        topK: 50,
        repetitionPenalty: 1.1,
        seed: null,
        stop: [],
        ignoreEos: false,
        systemPrompt: [],
        gpuMemoryUtilization: 0.95,
      },
      batching: { isOn: true, maxBatchSize: 1024, maxBatchWaitMs: 500, type: 'adaptive' },
      guardrails: {
        isOn: false,
        sensitivity: 0.5,
        rules: [{ kind: 'built-in', id: 'injection', stage: 'input', action: 'reject' }],
        maxPromptChars: null,
        action: 'reject',
        onBlock: 'error',
      },
      dynamicWorkers: {
        isOn: false,
        minWorkers: 1,
        maxWorkers: 1,
        targetOngoingRequests: 16,
        spinUpSeconds: 3,
        spinDownSeconds: 300,
      },
      engine: {
        kind: 'llama',
        threads: null,
        gpu: 'auto',
        flashAttention: 'auto',
        sequences: 16,
        batchSize: null,
        hungSeconds: 60,
        cacheDir: null,
      },
      server: { isStrict: false },
      models: [],
    })
  })

  it('a configuration: further models share the sections that they do not replace', () => {
    const { models } = parse(`
required: { model_name: ./a.gguf, hf_token: abc }
llm: { max_tokens: 7, temperature: 0.25 }
models:
- model_name: ./b.gguf
  served_name: bee
  purpose: embedding
  preload: true
  keep_alive_seconds: -1
  llm: { max_tokens: 9 }
- { model_name: c, engine: { kind: echo } }
`)
    expect(
      models.map(({ isPreloaded, keepAliveSeconds }) => [isPreloaded, keepAliveSeconds]),
    ).toEqual([
      [true, -1],
      [false, 300],
    ])
    const [first, second] = models.map(({ config }) => config)
    expect(first).toMatchObject({ servedNames: ['bee'], purpose: 'embedding', models: [] })
    expect([first?.llm.maxTokens, first?.llm.temperature, first?.engine.kind]).toEqual([
      9,
      0.25,
      'llama',
    ])
    expect([second?.llm.maxTokens, second?.purpose, second?.engine.kind]).toEqual([
      7,
      'chat',
      'echo',
    ])
  })

  it('a configuration: problems of further models name the model', () => {
    const wrong = [
      ['- { served_name: b }', /models\[0\]: expected a model_name/],
      ['- { model_name: b.gguf, keep_alive: 3 }', /keep_alive: unknown key, known are/],
      ['- { model_name: b.gguf, keep_alive_seconds: -2 }', /keep_alive_seconds: expected/],
      ['- { model_name: b.gguf, served_name: a }', /models: two models have the name a/],
      [
        '- { model_name: b.gguf, llm: { max_model_len: 5, max_tokens: 6 } }',
        /at most max_model_len/,
      ],
    ] as const
    for (const [models, message] of wrong) {
      expect(() => parse(`required: { model_name: a.gguf }\nmodels:\n${models}\n`)).toThrow(message)
    }
  })

  it('a configuration: every key of every section is read', () => {
    const config = parse(`
required: { model_name: "\${env:NAME}/\${env:NAME}", hf_token: abc, tp_size: 2 }
hardware: { num_nodes: 3, num_gpus: 4, node_offset: 5, queue_limit: 7 }
llm:
  dtype: float16
  max_tokens: 8
  max_model_len: 9
  temperature: 0
  top_p: 1
  top_k: 0
  repetition_penalty: 1e0
  seed: 0
  stop: [a, "\\n"]
  ignore_eos: true
  system_prompt: Be brief.
  gpu_memory_utilization: .5
input_batching: { toggle_on: false, max_batch_size: 10, max_batch_wait_ms: 0, type: fixed }
dynamic_workers:
  { toggle_on: true, min_workers: 2, spin_up_seconds: 1.5, spin_down_seconds: 60 }
engine: { kind: echo, latency_ms: 1.5, latency_per_prompt_ms: 2 }
`)
    expect(config).toMatchObject({
      modelName: 'tiny/tiny',
      tpSize: 2,
      hardware: { numNodes: 3, numGpus: 4, nodeOffset: 5, numInfWorkers: 6, queueLimit: 7 },
      llm: {
        dtype: 'float16',
        maxTokens: 8,
        maxModelLen: 9,
        temperature: 0,
        topP: 1,
        topK: 0,
        repetitionPenalty: 1,
        seed: 0,
        stop: ['a', '\n'],
        ignoreEos: true,
        systemPrompt: ['Be brief.'],
        gpuMemoryUtilization: 0.5,
      },
      batching: { isOn: false, maxBatchSize: 10, maxBatchWaitMs: 0, type: 'fixed' },
      dynamicWorkers: {
        isOn: true,
        minWorkers: 2,
        maxWorkers: 6,
        targetOngoingRequests: 10,
        spinUpSeconds: 1.5,
        spinDownSeconds: 60,
      },
      engine: { kind: 'echo', latencyMs: 1.5, latencyPerPromptMs: 2 },
    })
    expect(config.hubToken?.reveal()).toBe('abc')
  })

  it('defaults that not every server knows are without effect for an upstream server', () => {
    const upstream = 'engine: { kind: openai, base_url: "http://a/v1" }'
    const neutral = { topK: 0, repetitionPenalty: 1, temperature: 0.5, topP: 0.95 }
    expect(parse(`${local}${upstream}`).llm).toMatchObject(neutral)
    const given = 'llm: { top_k: 50, repetition_penalty: 1.1 }'
    const kept = { topK: 50, repetitionPenalty: 1.1 }
    expect(parse(`${local}${given}\n${upstream}`).llm).toMatchObject(kept)
    expect(parse(local).llm).toMatchObject(kept)
  })

  it('a configuration is frozen deeply', () => {
    const { engine, llm, guardrails } = parse(
      `${local}engine: { kind: process, command: 'serve {port}', env: { A: b } }`,
    )
    expect(engine).toMatchObject({ env: { A: 'b' } })
    for (const part of [engine, llm, llm.stop, guardrails.rules, guardrails.rules[0]]) {
      expect(Object.isFrozen(part)).toBe(true)
    }
  })

  it('an option takes precedence over the file, and the file over the default', () => {
    const file = `
required: { model_name: ./a.gguf, tp_size: 2 }
hardware: { num_nodes: 2, num_gpus: 2, node_offset: 2 }
input_batching: { max_batch_size: 2, max_batch_wait_ms: 2 }
`
    const given = { modelName: './b.gguf', tpSize: 3, numGpus: 9, offset: 3, maxBatchSize: 3 }
    expect(parse(file, given)).toMatchObject({
      modelName: './b.gguf',
      tpSize: 3,
      hardware: { numNodes: 2, numGpus: 9, nodeOffset: 3, numInfWorkers: 6 },
      batching: { maxBatchSize: 3, maxBatchWaitMs: 2 },
    })
    expect(parse('', { modelName: './b.gguf' }).modelName).toBe('./b.gguf')
  })

  it.each([
    ['', {}, 'adaptive'],
    ['max_batch_wait_ms:', {}, 'adaptive'],
    ['max_batch_wait_ms: 500', {}, 'fixed'],
    ['', { maxBatchWaitMs: 500 }, 'fixed'],
    ['type: adaptive, max_batch_wait_ms: 300', { maxBatchWaitMs: 500 }, 'adaptive'],
    ['type: fixed', {}, 'fixed'],
  ])('batching { %s } with the options %j is of the type %s', (keys, overrides, type) => {
    const { batching } = parse(`${local}input_batching: { ${keys} }`, overrides)
    expect(batching.type).toBe(type)
  })

  it.each([
    [{ maxBatchSize: 0 }, 'maxBatchSize', 'an integer from 1 to 65536'],
    [{ maxBatchWaitMs: 1e12 }, 'maxBatchWaitMs', 'an integer from 0 to 3600000'],
    [{ numGpus: '1' as never }, 'numGpus', 'an integer from 0 to 1024'],
    [{ modelName: '' }, 'modelName', 'a non-empty string'],
    [{ engine: 'vllm' as never }, 'engine', 'one of "llama", "openai", "process", "echo"'],
    [{ maxBatchSise: 1 } as never, 'maxBatchSise', expect.stringContaining('maxBatchSize')],
  ])('the options %j are checked against the ranges of the file', (overrides, field, expected) => {
    expect(() => parse(local, overrides)).toThrow(expect.objectContaining({ field, expected }))
  })
})

describe('the engine', () => {
  it('the engine may be given as an option: its kind, or its keys in camelCase', () => {
    const file = `${local}engine: { kind: llama, sequences: 4 }`
    expect(parse(file, { engine: 'llama' }).engine).toMatchObject({ sequences: 4 })
    expect(parse(file, { engine: 'echo' }).engine).toMatchObject({ kind: 'echo', latencyMs: 0 })
    const engine = { kind: 'openai', baseUrl: 'http://localhost:1/v1/', maxConcurrency: 2 } as const
    expect(parse(file, { engine }).engine).toEqual({
      ...engine,
      baseUrl: 'http://localhost:1/v1',
      apiKey: null,
      paths: ['/v1/embeddings', '/v1/responses', '/v1/rerank'],
    })
    expect(() => parse(file, { engine: { ...engine, maxConcurrency: 0 } })).toThrow(
      expect.objectContaining({
        message: 'engine.maxConcurrency: expected an integer from 1 to 65536, got 0',
        field: 'engine',
      }),
    )
    expect(() => parse(file, { engine: 'openai' })).toThrow('engine.baseUrl: missing')
  })

  it('the command of an engine is split at blanks, but not inside of a variable', () => {
    const commandOf = (written: string) => {
      const text = `${local}engine: { kind: process, command: ${written} }`
      const options = { file: 'config.yaml', env: { WORDS: 'two words; $(rm)' } }
      const { engine } = parseInferenceConfig(text, options)
      return engine.kind === 'process' ? engine.command : []
    }
    expect(commandOf('"  serve {model}  --name ${env:WORDS} {port} "')).toEqual([
      'serve',
      '{model}',
      '--name',
      'two words; $(rm)',
      '{port}',
    ])
    expect(commandOf('[serve it, "-p{port}"]')).toEqual(['serve it', '-p{port}'])
  })

  it('the default target of scaling is what one worker of the engine works on at a time', () => {
    const target = (engine: string) =>
      parse(`${local}engine: { ${engine} }`).dynamicWorkers.targetOngoingRequests
    expect(target('kind: llama, sequences: 8')).toBe(8)
    expect(target('kind: openai, base_url: "http://a"')).toBe(64)
    expect(target('kind: process, command: [a, "{port}"], max_concurrency: 5000')).toBe(1024)
    expect(target('kind: echo')).toBe(1024)
  })
})

describe('guardrail rules', () => {
  it('guardrail rules may be built-in names, names with options, and own rules', () => {
    const { guardrails } = parse(`${local}
guardrails:
  toggle_on: true
  action: redact
  max_prompt_chars: 5
  on_block: refusal
  rules:
    - secrets
    - { id: injection, action: flag }
    - { id: falcon, keywords: falcon, unless: falcon heavy, stage: input }
    - { id: badge, pattern: 'B-\\d{4}', action: reject }
`)
    expect(guardrails).toMatchObject({ isOn: true, onBlock: 'refusal', maxPromptChars: 5 })
    expect(guardrails.rules).toEqual([
      { kind: 'built-in', id: 'limits', stage: 'input', action: 'redact' },
      { kind: 'built-in', id: 'secrets', stage: 'both', action: 'redact' },
      { kind: 'built-in', id: 'injection', stage: 'input', action: 'flag' },
      {
        kind: 'keywords',
        id: 'falcon',
        keywords: ['falcon'],
        unless: ['falcon heavy'],
        stage: 'input',
        action: 'redact',
      },
      {
        kind: 'pattern',
        id: 'badge',
        pattern: String.raw`B-\d{4}`,
        unless: [],
        stage: 'both',
        action: 'reject',
      },
    ])
  })
})

describe('loading a file', () => {
  const folderWith = async (files: Readonly<Record<string, [string, number]>>) => {
    const folder = await mkdtemp(join(tmpdir(), 'tutti-config-'))
    onTestFinished(() => rm(folder, { recursive: true }))
    for (const [name, [text, mode]] of Object.entries(files)) {
      await writeFile(join(folder, name), text)
      await chmod(join(folder, name), mode)
    }
    return folder
  }
  const recordingLog = () => {
    const warnings: string[] = []
    const log: Log = { warn: (code, message) => warnings.push(`${code} ${message}`) }
    return { log, warnings }
  }

  it('a token file is found relative to the configuration file', async () => {
    const folder = await folderWith({
      'a.yaml': ['required: { model_name: org/a, token_file: token }', 0o644],
      token: ['  from-the-file\n', 0o600],
    })
    const { log, warnings } = recordingLog()
    const config = await loadInferenceConfig(join(folder, 'a.yaml'), {}, log)
    expect(config.hubToken?.reveal()).toBe('from-the-file')
    expect(warnings).toEqual([])
  })

  it('a model that exists on disk needs no token', () => {
    const files = {
      exists: (path: string) => path === '/here/models/tiny',
      resolve: (path: string) => `/here/${path}`,
      readToken: () => '',
      warn() {},
    }
    const parseNamed = (name: string) =>
      parseInferenceConfig(`required: { model_name: ${name} }`, { file: 'a', env: {}, files })
    const { hubToken, modelPath } = parseNamed('models/tiny')
    expect([hubToken, modelPath]).toEqual([null, '/here/models/tiny'])
    expect(() => parseNamed('models/other')).toThrow('required.token_file: there is no file')
  })

  it.each([
    ['guardrails: { rules: [secrets] }', 'guardrails'],
    ['dynamic_workers: { max_workers: 3 }', 'dynamic_workers'],
    ['guardrails: { toggle_on: false, rules: [secrets] }', null],
    ['guardrails: { toggle_on: true }', null],
    ['llm: { max_tokens: 3 }', null],
  ])('a section without toggle_on has no effect, with a warning: %s', (text, section) => {
    const warnings: string[] = []
    const warn = (code: string, message: string): void => void warnings.push(`${code}: ${message}`)
    const none = { exists: () => false, resolve: (path: string) => path, readToken: () => '' }
    const files = { ...none, warn }
    const model = 'required: { model_name: tiny.gguf }'
    parseInferenceConfig(`${model}\n${text}`, { file: 'a', env: {}, files })
    const start = `SectionIsOff: the section ${section} has no effect`
    expect(warnings).toEqual(section === null ? [] : [expect.stringContaining(start)])
  })

  it('row 88: a token that others can read gives a warning with a remedy', async () => {
    const folder = await folderWith({
      'open.yaml': ['required: { model_name: org/a, hf_token: written-here }', 0o604],
      'group.yaml': ['required: { model_name: org/a, hf_token: written-here }', 0o640],
      'file.yaml': ['required: { model_name: org/a, token_file: token }', 0o644],
      'key.yaml': [
        `${local}engine: { kind: openai, base_url: "http://a", api_key: key-of-mine }`,
        0o644,
      ],
      token: ['from-the-file', 0o640],
    })
    const { log, warnings } = recordingLog()
    for (const name of ['open', 'group', 'file', 'key']) {
      await loadInferenceConfig(join(folder, `${name}.yaml`), {}, log)
    }
    const warned = ['open.yaml', 'token', 'key.yaml'].map((name) => join(folder, name))
    expect(warnings).toEqual(
      warned.map(
        (file) => `TokenFileReadable Others can read the token in ${file}; run: chmod 600 ${file}`,
      ),
    )
  })

  it('a configuration file that cannot be read gives an error with the reason', async () => {
    const folder = await folderWith({ 'big.yaml': ['#'.repeat(2 ** 20 + 1), 0o600] })
    const cases = {
      [join(folder, 'none.yaml')]: 'does not exist',
      [folder]: 'cannot be read: EISDIR: expected a regular file, got a folder',
      [join(folder, 'big.yaml')]:
        'cannot be read: EFBIG: expected at most 1048576 bytes, got 1048577',
    }
    for (const [path, reason] of Object.entries(cases)) {
      await expect(loadInferenceConfig(path)).rejects.toThrow(
        expect.objectContaining({
          code: 'ConfigError',
          field: 'configFile',
          message: `the configuration ${path} ${reason}`,
        }),
      )
    }
  })

  it('a configuration file that does not exist gives an error with the absolute path', async () => {
    await expect(loadInferenceConfig('none.yaml')).rejects.toMatchObject({
      hint: `It was looked for at ${resolve('none.yaml')}. Write it there, or give its path.`,
      cause: { code: 'ENOENT' },
    })
  })

  it('a variable in a configuration file is read from the process environment', async () => {
    const folder = await folderWith({
      'a.yaml': ['required: { model_name: "./${env:TUTTI_TEST_MODEL}.gguf" }', 0o600],
    })
    process.env['TUTTI_TEST_MODEL'] = 'tiny'
    onTestFinished(() => {
      delete process.env['TUTTI_TEST_MODEL']
    })
    const config = await loadInferenceConfig(join(folder, 'a.yaml'))
    expect(config.modelName).toBe('./tiny.gguf')
  })
})
