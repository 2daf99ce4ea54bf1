import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { AITask, Session } from '../../src/index.ts'
import type { InferenceBackendOptions } from '../../src/inference/inference-backend.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { eventually } from '../eventually.ts'
import { writeTinyModel } from './engines/tiny-model.ts'
import { createObedientEngine, openBackend, tempFolder } from './open-backend.ts'
import { ask, post, type Reply } from './server/served.ts'

/** Models of 0.7 MB, of which only one fits into 1 MB. */
function writeConfig(models: string, hardware = '{ model_memory_mb: 1 }'): string {
  const folder = tempFolder()
  for (const name of ['a', 'b']) writeFileSync(join(folder, name), Buffer.alloc(700_000))
  writeFileSync(join(folder, 'large'), Buffer.alloc(3 * 2 ** 20))
  const file = join(folder, 'model.yaml')
  const list = models.replaceAll('FOLDER', folder)
  const required = `required: { model_name: ${folder}/a, served_name: a }`
  writeFileSync(file, `${required}\nengine: { kind: echo }\nhardware: ${hardware}\n${list}`)
  return file
}

const open = (configFile: string, more: Partial<InferenceBackendOptions> = {}) =>
  openBackend({ port: 0, configFile, modelName: join(configFile, '../a'), ...more })

const twoModels = 'models:\n- { model_name: FOLDER/b, served_name: [b, bee] }\n'

const chat = (endpoint: string | null, model: string, more: object = {}): Promise<Reply> =>
  post(`${endpoint}/v1/chat/completions`, {
    model,
    messages: [{ role: 'user', content: `hello ${model}` }],
    ...more,
  })

async function listLoaded(endpoint: string | null): Promise<readonly string[]> {
  const { json } = await ask(`${endpoint}/v1/models`)
  const data = json.data as readonly { id: string; loaded: boolean }[]
  return data.filter(({ loaded }) => loaded).map(({ id }) => id)
}

describe('a server with several models', () => {
  it('a model is loaded by its first request, and gives way to another one', async () => {
    const { endpoint } = await open(writeConfig(twoModels))
    const { json } = await ask(`${endpoint}/v1/models`)
    expect(json.data.map(({ id }: { id: string }) => id)).toEqual(['a', 'b', 'bee'])
    expect(await listLoaded(endpoint)).toEqual(['a'])
    const answer = await chat(endpoint, 'bee')
    expect([answer.json.model, answer.json.choices[0].message.content]).toEqual([
      'bee',
      'hello bee',
    ])
    expect(await listLoaded(endpoint)).toEqual(['b', 'bee'])
    const first = await post(`${endpoint}/generate`, { prompts: ['hi'] })
    expect(first.json.results).toEqual(['hi'])
    expect(await listLoaded(endpoint)).toEqual(['a'])
  })

  it('reading health, models and metrics loads nothing and keeps nothing loaded', async () => {
    const clock = new ManualClock()
    const file = writeConfig(twoModels.replace(' }', ', keep_alive_seconds: 60 }'), '{}')
    const { endpoint } = await open(file, { clock })
    const read = async (): Promise<readonly string[]> => {
      const health = await ask(`${endpoint}/health`)
      expect([health.status, health.json.initialized]).toEqual([200, true])
      for (const path of ['/api/tags', '/v1/models/b', '/v1/server', '/openapi.json'])
        expect((await ask(`${endpoint}${path}`)).status).toBe(200)
      const shown = await post(`${endpoint}/api/show`, { model: 'b' })
      expect(shown.json.model_info['general.basename']).toBe('b')
      const { json } = await ask(`${endpoint}/api/ps`)
      const running = json.models.map(({ name }: { name: string }) => name)
      const { text } = await ask(`${endpoint}/metrics`)
      expect(text).toMatch(/tutti_model_loaded\{model="a"\} 1/)
      expect(text.match(/tutti_model_loaded\{.*\} 1/g)).toHaveLength(running.includes('b') ? 2 : 1)
      expect(await listLoaded(endpoint)).toEqual(running)
      return running
    }
    expect(await read()).toEqual(['a'])
    await chat(endpoint, 'b')
    await clock.advance(59_000)
    expect(await read()).toEqual(['a', 'b', 'bee'])
    await clock.advance(1000)
    expect(await read()).toEqual(['a'])
    expect((await chat(endpoint, 'b')).status).toBe(200)
  })

  it('row 129: requests for two models that do not fit together are all answered', async () => {
    const { endpoint } = await open(writeConfig(twoModels))
    const names = Array.from({ length: 24 }, (_, at) => (at % 3 === 0 ? 'a' : 'b'))
    const answers = await Promise.all(
      names.map((name, at) => chat(endpoint, name, { stream: at % 2 === 0 })),
    )
    for (const [at, { status, text }] of answers.entries()) {
      expect(status).toBe(200)
      expect(text).toContain(`"model":"${names[at]}"`)
      expect(text.includes(': the model is loading') && at % 2 === 1).toBe(false)
    }
  })

  it('row 129: a model that can never fit gets 503 with the sizes; others are served', async () => {
    const large = '- { model_name: FOLDER/large, served_name: large }\n'
    const { endpoint } = await open(writeConfig(twoModels + large))
    const refused = await chat(endpoint, 'large')
    expect(refused.status).toBe(503)
    expect(refused.json.error).toMatchObject({
      code: 'model_too_large',
      message: expect.stringMatching(/"large" needs 3 MB .* have 1 MB \(hardware\.model_memory_mb/),
    })
    expect((await chat(endpoint, 'b')).status).toBe(200)
  })

  it('an unknown model gets 404 with all names, and loads nothing', async () => {
    const { endpoint } = await open(writeConfig(twoModels))
    const { status, json } = await chat(endpoint, 'other')
    expect(status).toBe(404)
    expect(json.error.message).toBe("The model 'other' does not exist here. Served: a, b, bee.")
  })

  const userTurn = { role: 'user', content: 'hi' }
  it.each([
    ['/v1/chat/completions', { messages: [userTurn], temperature: 9, stream: true }],
    ['/v1/chat/completions', { messages: [userTurn], guided_regex: 'a' }],
    ['/v1/chat/completions', { messages: [userTurn], max_tokens: 1_000_000 }],
    ['/v1/completions', { prompt: 7 }],
    ['/v1/responses', { input: 'hi', previous_response_id: 'resp_unknown' }],
    ['/v1/messages', { messages: [], max_tokens: 'many' }],
    ['/v1/messages/count_tokens', { messages: 'hi' }],
    ['/api/chat', { messages: [{ role: 'friend', content: 'hi' }] }],
    ['/api/generate', { prompt: 'hi', format: 7 }],
    ['/generate', { prompts: 'hi' }],
    ['/v1/embeddings', { input: '' }],
    ['/api/embed', { input: 7 }],
    ['/tokenize', { prompt: 7 }],
    ['/detokenize', { tokens: 'hi' }],
    ['/apply-template', { messages: [] }],
  ])('a request for %s with a mistake loads nothing', async (path, body) => {
    const { endpoint } = await open(writeConfig(twoModels))
    const refused = await post(`${endpoint}${path}`, { model: 'b', ...body })
    expect([refused.status, await listLoaded(endpoint)]).toEqual([
      'previous_response_id' in body ? 404 : 400,
      ['a'],
    ])
  })

  it('a request for a path that only the other model passes on loads nothing', async () => {
    const models = `models:
- { model_name: FOLDER/b, served_name: b }
- model_name: FOLDER/b
  served_name: c
  engine: { kind: openai, base_url: 'http://127.0.0.1:9/v1', paths: [/v1/score] }
`
    const { endpoint } = await open(writeConfig(models))
    const refused = await post(`${endpoint}/v1/score`, { model: 'b' })
    expect([refused.json.error.code, await listLoaded(endpoint)]).toEqual(['unknown_url', ['a']])
    expect(refused.json.error.message).toBe("The model 'b' has nothing at this address.")
  })

  it('a stream whose model is loading begins with comments, and then has the answer', async () => {
    const clock = new ManualClock()
    const loading = Promise.withResolvers<void>()
    const file = writeConfig(twoModels)
    const { endpoint } = await open(file, {
      clock,
      engine(worker) {
        const engine = createObedientEngine(worker)
        const start = engine.start.bind(engine)
        const isSlow = worker.workerId.startsWith('inference-b')
        return Object.assign(engine, {
          start: () => (isSlow ? loading.promise.then(start) : start()),
        })
      },
    })
    const body = { model: 'b', stream: true, messages: [{ role: 'user', content: 'hi' }] }
    const response = await fetch(`${endpoint}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    })
    expect(response.headers.get('content-type')).toMatch(/^text\/event-stream/)
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader()
    expect((await reader?.read())?.value).toBe(': the model is loading\n\n')
    await clock.advance(5000)
    expect((await reader?.read())?.value).toBe(': the model is loading\n\n')
    loading.resolve()
    let rest = ''
    for (;;) {
      const piece = await reader?.read()
      if (piece === undefined || piece.done) break
      rest += piece.value
    }
    expect(rest).toContain('re: hi')
    expect(rest).toMatch(/data: \[DONE\]\n\n$/)
  })

  it('tasks name their model', async () => {
    const backend = await open(writeConfig(twoModels), { useService: false })
    await using session = new Session([backend])
    const tasks = ['a', 'b', 'a', 'bee'].map(
      (model) => new AITask({ prompt: `for ${model}`, backend: 'llm', model }),
    )
    await session.submitTasks(tasks)
    expect(await Promise.all(tasks)).toEqual(['for a', 'for b', 'for a', 'for bee'])
    const other = new AITask({ prompt: 'x', backend: 'llm', model: 'other' })
    await expect(session.submitTasks([other])).rejects.toThrow('serves')
  })

  it('Ollama clients are told that a model is for embeddings before it is loaded', async () => {
    const item = '- { model_name: FOLDER/b, served_name: b, purpose: embedding }'
    const { endpoint } = await open(writeConfig(`models:\n${item}\n`))
    const { json } = await post(`${endpoint}/api/show`, { model: 'b:latest' })
    expect([json.capabilities, await listLoaded(endpoint)]).toEqual([['embedding'], ['a']])
  })

  it('models of the llama engine: one for text and one for embeddings take turns', async () => {
    const folder = tempFolder()
    const path = writeTinyModel(folder)
    const embedding = writeTinyModel(folder, undefined, 1)
    const config = {
      required: { served_name: 'text' },
      engine: { kind: 'llama', threads: 1, gpu: false, sequences: 2 },
      llm: { max_model_len: 256 },
      hardware: { model_memory_mb: 1, num_gpus: 0 },
      models: [{ model_name: embedding, served_name: 'vectors', purpose: 'embedding' }],
    }
    const file = join(folder, 'model.json')
    writeFileSync(file, JSON.stringify(config))
    const { endpoint } = await openBackend({ port: 0, configFile: file, modelName: path })
    const [story, vectors, again] = await Promise.all([
      post(`${endpoint}/v1/completions`, {
        model: 'text',
        prompt: 'a',
        max_tokens: 3,
        ignore_eos: true,
      }),
      post(`${endpoint}/v1/embeddings`, { model: 'vectors', input: 'a' }),
      post(`${endpoint}/v1/completions`, {
        model: 'text',
        prompt: 'b',
        max_tokens: 3,
        ignore_eos: true,
      }),
    ])
    expect([story.json.usage.completion_tokens, again.json.usage.completion_tokens]).toEqual([3, 3])
    expect(vectors.json.data[0].embedding).toHaveLength(64)
    const wrong = await chat(endpoint, 'vectors')
    expect([wrong.status, wrong.json.error.param]).toEqual([400, 'model'])
    const none = await post(`${endpoint}/v1/embeddings`, { model: 'text', input: 'a' })
    expect([none.status, none.json.error.code]).toEqual([404, 'unknown_url'])
    expect(none.json.error.message).toContain('Embeddings need an embedding model.')
    await eventually(async () => expect(await listLoaded(endpoint)).toEqual(['text']))
  })

  it('the start fails if the models of the start do not fit together', async () => {
    const file = writeConfig(twoModels.replace(' }', ', preload: true }'))
    await expect(open(file)).rejects.toMatchObject({
      field: 'hardware.model_memory_mb',
      message: expect.stringMatching(/need 2 MB \(a 1 MB, b 1 MB\), but may have 1 MB/),
    })
  })
})
