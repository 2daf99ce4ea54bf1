import { hostname } from 'node:os'
import { describe, expect, it } from 'vitest'
import { FakeGenerator } from './fake-generator.ts'
import { ask, hello, post, serve } from './served.ts'

describe('the inference server', () => {
  it('the inference server answers a chat request in the chat-completions format', async () => {
    await using served = await serve()
    const reply = await post(`${served.url}/v1/chat/completions`, hello)
    expect(reply.status).toBe(200)
    expect(reply.json).toEqual({
      id: expect.stringMatching(/^chatcmpl-[0-9a-f]{32}$/),
      object: 'chat.completion',
      created: expect.any(Number),
      model: 'tiny',
      choices: [
        {
          index: 0,
          message: { role: 'assistant', content: 'hello there', refusal: null },
          logprobs: null,
          finish_reason: 'stop',
        },
      ],
      usage: { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 },
      system_fingerprint: null,
    })
    expect(Number.isInteger(reply.json.created)).toBe(true)
    expect(served.generator.requests).toHaveLength(1)
    expect(served.generator.requests[0]).toMatchObject({
      input: { kind: 'chat', messages: [{ role: 'user', content: 'hello there' }] },
      sampling: { maxTokens: 100 },
      priority: 0,
      timeoutSeconds: null,
      taskId: null,
      onUsed: expect.any(Function),
    })
  })

  it('the inference server takes paths without /v1, and with a slash at the end', async () => {
    await using served = await serve()
    for (const path of ['/v1/chat/completions/', '/chat/completions', '/chat/completions/']) {
      expect([path, (await post(`${served.url}${path}`, hello)).status]).toEqual([path, 200])
    }
    const models = (await ask(`${served.url}/v1/models`)).json
    expect((await ask(`${served.url}/models/`)).json).toEqual(models)
    expect((await ask(`${served.url}/health/live/`)).status).toBe(200)
    expect((await ask(`${served.url}/v1/v1/models`)).status).toBe(404)
  })

  it('one served model is listed with the length of its context', async () => {
    await using served = await serve({ contextLength: 256 })
    const model = { id: 'tiny', object: 'model', owned_by: 'tutti', max_model_len: 256 }
    expect((await ask(`${served.url}/models/tiny`)).json).toMatchObject(model)
  })

  it('the inference server streams chunks with role, text, finish, usage and the end', async () => {
    await using served = await serve()
    const { text, headers } = await post(`${served.url}/v1/chat/completions`, {
      ...hello,
      stream: true,
      stream_options: { include_usage: true },
    })
    expect(headers.get('content-type')).toBe('text/event-stream; charset=utf-8')
    const events = text.trimEnd().split('\n\n')
    expect(events.at(-1)).toBe('data: [DONE]')
    const chunks = events.slice(0, -1).map((event) => JSON.parse(event.slice('data: '.length)))
    expect(new Set(chunks.map(({ id }) => id)).size).toBe(1)
    expect(chunks.map(({ choices, usage }) => ({ choice: choices[0], usage }))).toEqual([
      choice({ role: 'assistant', content: '', refusal: null }, null),
      choice({ content: 'hello ' }, null),
      choice({ content: 'there' }, null),
      choice({}, 'stop'),
      {
        choice: undefined,
        usage: { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 },
      },
    ])
    expect(chunks.at(-1).choices).toEqual([])
  })

  it('the inference server reports its health', async () => {
    await using served = await serve()
    const health = await ask(`${served.url}/health`)
    expect(health.status).toBe(200)
    expect(health.json).toEqual({
      status: 'healthy',
      hostname: hostname(),
      initialized: true,
      endpoint: served.url,
      mode: 'service',
      batch_config: {
        type: 'adaptive',
        max_batch_size: 1024,
        max_batch_wait_ms: 500,
        pending_requests: 0,
      },
    })
    served.generator.state = {
      queued: 7,
      running: 0,
      workers: 0,
      unreadyReason: 'w0 is lost: no /x/model',
    }
    const loading = await ask(`${served.url}/health`)
    expect(loading.status).toBe(503)
    expect(loading.json).toMatchObject({
      status: 'unhealthy',
      reason: 'w0 is lost',
      initialized: false,
      batch_config: { pending_requests: 7 },
    })
    expect((await ask(`${served.url}/health/live`)).json).toEqual({ status: 'alive' })
    const ready = await ask(`${served.url}/health/ready`)
    expect([ready.status, ready.json]).toEqual([503, { status: 'unready', reason: 'w0 is lost' }])
  })

  it('the inference server answers many prompts at /generate, with one result each', async () => {
    const generator = new FakeGenerator(({ input }) => {
      const prompt = input.kind === 'chat' ? input.messages[0]?.content : ''
      if (prompt === 'bad') throw new Error('boom')
      return { text: `re: ${prompt}` }
    })
    await using served = await serve({ generator })
    const { status, json } = await post(`${served.url}/generate`, { prompts: ['a', 'bad', 'b'] })
    expect(status).toBe(200)
    expect(json).toEqual({
      status: 'success',
      hostname: hostname(),
      results: [
        're: a',
        { error: { code: 'engine_error', message: expect.stringContaining('failed') } },
        're: b',
      ],
      num_prompts: 3,
      total_time: expect.any(Number),
      avg_time_per_prompt: json.total_time / 3,
    })
    expect((await post(`${served.url}/generate`, { prompts: [] })).json).toMatchObject({
      results: [],
      num_prompts: 0,
      avg_time_per_prompt: 0,
    })
  })

  it('the inference server knows all names of a model, and lists the shown ones', async () => {
    await using served = await serve({ models: ['tiny'], hiddenModels: ['./tiny.gguf'] })
    for (const name of ['tiny', './tiny.gguf']) {
      const { status, json } = await ask(`${served.url}/v1/models/${encodeURIComponent(name)}`)
      expect([status, json.id]).toEqual([200, name])
      const chat = await post(`${served.url}/v1/chat/completions`, { ...hello, model: name })
      expect(chat.status).toBe(200)
    }
    expect((await ask(`${served.url}/v1/models`)).json.data).toHaveLength(1)
    expect((await ask(`${served.url}/v1/models/other`)).status).toBe(404)
  })

  it.each([
    ['/v1/embeddings', 'Embeddings need an embedding model.'],
    ['/api/embed', 'Embeddings need an embedding model.'],
    ['/api/pull', 'The configuration of the server decides which models it serves.'],
    ['/v1/rerank', "The engines 'openai' and 'process' pass others on to the server behind them."],
  ])(
    'the inference server says what to know about %s, which it does not have',
    async (path, text) => {
      await using served = await serve()
      const { status, json } = await post(served.url + path, { input: 'a' })
      expect(status).toBe(404)
      const { message } = json.error as { message?: string }
      expect(message ?? json.error).toContain(text)
      expect(message ?? json.error).toContain(
        'GET /openapi.json lists the addresses of this server.',
      )
    },
  )

  it('the inference server lists models, counts tokens and exports metrics', async () => {
    await using served = await serve({ models: ['org/tiny', 'tiny-alias'] })
    const { json } = await ask(`${served.url}/v1/models`)
    const facts = { object: 'model', created: expect.any(Number), owned_by: 'tutti', loaded: true }
    const model = { ...facts, max_model_len: 8192 }
    expect(json).toEqual({
      object: 'list',
      data: [
        { id: 'org/tiny', ...model },
        { id: 'tiny-alias', ...model },
      ],
    })
    for (const id of ['org/tiny', 'org%2Ftiny']) {
      expect((await ask(`${served.url}/v1/models/${id}`)).json).toEqual({
        id: 'org/tiny',
        ...model,
      })
    }
    expect((await post(`${served.url}/tokenize`, { prompt: 'abc' })).json).toEqual({
      tokens: [97, 98, 99],
      count: 3,
      max_model_len: 8192,
    })
    const metrics = await ask(`${served.url}/metrics`)
    expect(metrics.text).toBe('tutti_up 1\n')
    expect(metrics.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8')
  })
})

const choice = (delta: object, finishReason: string | null): object => ({
  choice: { index: 0, delta, logprobs: null, finish_reason: finishReason },
  usage: null,
})
