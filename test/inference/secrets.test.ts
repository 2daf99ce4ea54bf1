import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { inspect } from 'node:util'
import { describe, expect, it } from 'vitest'
import { installModel } from '../../src/inference/models/model-file.ts'
import { loadInferenceConfig } from '../../src/inference/config/config.ts'
import type {
  CreateEngine,
  InferenceEngine,
} from '../../src/inference/generation/inference-engine.ts'
import { inferenceError } from '../../src/inference/generation/inference-errors.ts'
import { createOpenAiEngine } from '../../src/inference/engines/openai/openai-engine.ts'
import { createProcessEngine } from '../../src/inference/engines/process/process-engine.ts'
import { systemClock } from '../../src/foundation/clock.ts'
import { maskSecrets } from '../../src/foundation/secrets.ts'
import { Session } from '../../src/session/session.ts'
import { AITask } from '../../src/tasks/ai-task.ts'
import { createEngine as createLlamaEngine } from './engines/llama/open-engine.ts'
import { engineOptions } from './engines/process/engine-options.ts'
import { configWith, createObedientEngine, openBackend, tempFolder } from './open-backend.ts'

const token = 'hf_canaryCanaryCanary0001'
const key = 'sk-canary-canary-canary-0002'
const canaries = [token, key]
const withToken = `  hf_token: ${token}\n`

/** An engine whose errors contain its secrets, as those of real libraries do. */
const createTalkativeEngine: CreateEngine = (worker) => {
  const engine = createObedientEngine(worker)
  const talkative: InferenceEngine = {
    capacity: engine.capacity,
    start: () => engine.start(),
    lost: () => engine.lost(),
    tokenize: (text) => engine.tokenize(text),
    close: () => engine.close(),
    async generate(requests, listener) {
      for (const { id } of requests) {
        const text = `GET https://hub.invalid/?token=${token} with ${key} in the model folder`
        const cause = new Error(text)
        listener.end(id, { kind: 'failed', error: inferenceError('engine_error', text, { cause }) })
      }
    },
  }
  return talkative
}

describe('secrets of inference', () => {
  it('row 88: secrets are in no event, span, metric, export, response or error', async () => {
    const heard: unknown[] = []
    const log = { warn: (code: string, message: string) => heard.push([code, message]) }
    const backend = await openBackend({
      port: 0,
      apiKey: key,
      configFile: configWith(withToken),
      engine: createTalkativeEngine,
      captureContent: true,
      log,
    })
    const folder = tempFolder()
    const session = new Session([backend], { log })
    const telemetry = await session.startTelemetry({ checkpointPath: folder, keepResults: true })
    telemetry.subscribe((event) => heard.push(event))
    const task = new AITask({ prompt: `my token is ${token}`, backend: 'llm', retries: 1 })
    await session.submitTasks([task])
    await session.waitTasks([task])
    for (const [path, authorization] of [
      ['/v1/chat/completions', `Bearer ${key}`],
      ['/generate', `Bearer ${key}`],
      ['/v1/chat/completions', `Bearer ${key}x`],
      [`/v1/models?api_key=${key}`, ''],
      ['/metrics', `Bearer ${key}`],
    ] as const) {
      const body = { messages: [{ role: 'user', content: 'hi' }], prompts: ['hi'] }
      const isPost = !path.includes('models') && path !== '/metrics'
      const response = await fetch(`${backend.endpoint}${path}`, {
        method: isPost ? 'POST' : 'GET',
        headers: { 'content-type': 'application/json', authorization },
        ...(isPost ? { body: JSON.stringify(body) } : {}),
      })
      heard.push([
        path.split('?')[0],
        response.status,
        [...response.headers],
        await response.text(),
      ])
    }
    await session.close()
    heard.push(telemetry.exportAsOtlp(), telemetry.summary(), telemetry.taskSpans())
    for (const file of readdirSync(folder)) heard.push(readFileSync(join(folder, file), 'utf8'))
    const everything = heard.map((one) => `${inspect(one, { depth: null })}${JSON.stringify(one)}`)
    expect(everything.join('\n').length).toBeGreaterThan(10_000)
    expect(everything.filter((text) => canaries.some((canary) => text.includes(canary)))).toEqual(
      [],
    )
  })

  it('row 88: secrets that a model server gets are masked in its reported output', async () => {
    const own = 'canary-of-an-upstream-0003'
    process.env['TUTTI_UPSTREAM'] = own
    const heard: unknown[] = []
    const words = 'console.error(`using ${process.env.MYK}, all of it`); process.exit(3)'
    const opening = openBackend({
      engine: {
        kind: 'process',
        command: [process.execPath, '-e', words, '{port}'],
        env: { MYK: 'key=${env:TUTTI_UPSTREAM}' },
      },
      log: { warn: (code: string, message: string) => heard.push([code, message]) },
    })
    const backend = await opening.catch((error: unknown) => void heard.push(error))
    heard.push(await backend?.generate(['hi'], 60).catch((error: unknown) => error))
    delete process.env['TUTTI_UPSTREAM']
    const everything = inspect(heard, { depth: null, showHidden: true })
    expect(everything).toContain('using [masked], all of it')
    expect(everything).not.toContain(own)
  })

  it('row 88: secrets of inference are masked in a printed configuration', async () => {
    const config = await loadInferenceConfig(configWith(withToken))
    expect(config.hubToken?.reveal()).toBe(token)
    expect(inspect(config, { depth: null }) + JSON.stringify(config)).not.toContain(token)
  })

  it("row 88: secrets are not in the engine process's environment or arguments", async () => {
    const models = fileURLToPath(new URL('../../.models/', import.meta.url))
    process.env['TUTTI_CANARY_TOKEN'] = token
    const backend = await openBackend({
      modelName: installModel('stories15M', { folder: models, onProgress() {} }).path,
      configFile: configWith(
        `  hf_token: \${env:TUTTI_CANARY_TOKEN}\nllm:\n  max_model_len: 256\n`,
      ),
      engine: { kind: 'llama', threads: 1, gpu: false },
    })
    delete process.env['TUTTI_CANARY_TOKEN']
    expect(await backend.generate(['Once'], 60)).toHaveLength(1)
    const children = readdirSync('/proc').filter(isChildOfOurs)
    expect(children.length).toBeGreaterThan(0)
    for (const pid of children) {
      for (const file of ['environ', 'cmdline']) {
        expect(readFileSync(`/proc/${pid}/${file}`, 'utf8')).not.toContain(token)
      }
    }
  })
})

function isChildOfOurs(name: string): boolean {
  if (!/^\d+$/.test(name)) return false
  try {
    const stat = readFileSync(`/proc/${name}/stat`, 'utf8')
    return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]) === process.pid
  } catch {
    return false
  }
}

describe('keys of engines', () => {
  // Long enough to be registered if its length alone is compared.
  const keys = Array.from({ length: 10 }, () => key) as unknown as string
  const openAiOptions = {
    baseUrl: 'http://127.0.0.1:1',
    apiKey: keys,
    modelName: 'tiny',
    maxConcurrency: 1,
    contextLength: 2048,
    clock: systemClock,
    log: { warn() {} },
  }
  const creators: readonly [string, string, () => unknown][] = [
    ['llama', 'hubToken', () => createLlamaEngine('tiny.gguf', { hubToken: keys })],
    ['openai', 'apiKey', () => createOpenAiEngine(openAiOptions)],
    [
      'process',
      'hubToken',
      () => createProcessEngine(engineOptions({ hubToken: keys }), { index: 0, workerId: 'w' }),
    ],
  ]

  it.each(creators)(
    'row 122: the %s engine refuses a `%s` that is no string',
    (_, field, create) => {
      expect(create).toThrow(expect.objectContaining({ name: 'ValueError', field }))
      expect(create).not.toThrow(key)
      expect(maskSecrets('other text')).toBe('other text')
    },
  )
})
