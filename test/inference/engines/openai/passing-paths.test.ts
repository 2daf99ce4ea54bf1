import { describe, expect, it, onTestFinished } from 'vitest'
import { InferenceBackend } from '../../../../src/inference/inference-backend.ts'
import { ask, post } from '../../server/served.ts'
import { begin, OpenAiServer, refuse, send, sendJson, type Step } from './fixtures/openai-server.ts'
import { openBefore, openPassing } from './open-passing.ts'

const answers =
  (body: unknown): Step =>
  (response) =>
    sendJson(response, 200, body)

const embedded = {
  object: 'list',
  data: [{ object: 'embedding', index: 0, embedding: [0.25, -0.5] }],
  model: 'tiny',
  usage: { prompt_tokens: 2, total_tokens: 2 },
}

describe('paths that are passed on', () => {
  it('embeddings, rerank and responses by default, with every field', async () => {
    const ranked = { results: [{ index: 0, relevance_score: 0.5 }] }
    const others = {
      '/v1/embeddings': answers(embedded),
      '/v1/rerank': answers(ranked),
      '/v1/responses': answers({ output: [] }),
    }
    const { upstream, endpoint } = await openPassing({}, { others })
    const wanted = { input: ['a', 'b'], dimensions: 2, user: 'me', later: { a: 1 } }
    expect((await post(`${endpoint}/v1/embeddings`, wanted)).json).toEqual(embedded)
    expect((await post(`${endpoint}/v1/rerank`, { model: 'tiny', query: 'a' })).json).toEqual(
      ranked,
    )
    expect((await post(`${endpoint}/v1/responses`, { input: 'a' })).json).toEqual({ output: [] })
    expect(upstream.requests.slice(1).map(({ path, body }) => [path, body])).toEqual([
      ['/v1/embeddings', { ...wanted, model: 'tiny' }],
      ['/v1/rerank', { model: 'tiny', query: 'a' }],
      ['/v1/responses', { model: 'tiny', input: 'a' }],
    ])
    const { json } = await ask(`${endpoint}/openapi.json`)
    expect(Object.keys(json.paths)).toContain('/v1/embeddings')
  })

  it('paths are passed on only if the configuration allows them; others do not exist', async () => {
    const others = {
      '/v1/embeddings': answers(embedded),
      '/detokenize': answers({ prompt: 'a' }),
      '/tokenize': answers({ tokens: [1], max_model_len: 9 }),
    }
    const engine = { paths: ['/detokenize', '/tokenize'] }
    const { upstream, endpoint } = await openPassing({ engine }, { others })
    expect((await post(`${endpoint}/detokenize`, { tokens: [1] })).json).toEqual({ prompt: 'a' })
    const tokenized = await post(`${endpoint}/tokenize`, { prompt: 'a', add_special_tokens: false })
    expect(tokenized.json).toEqual({ tokens: [1], max_model_len: 9 })
    const refused = await post(`${endpoint}/v1/embeddings`, { input: 'a' })
    expect([refused.status, refused.json.error.code]).toEqual([404, 'unknown_url'])
    expect(refused.json.error.message).toMatch(/openapi\.json .* 'engine\.paths'/)
    expect(upstream.requests.map(({ path }) => path)).toEqual([
      '/v1/models',
      '/detokenize',
      '/tokenize',
    ])
  })

  const served = ['/v1/chat/completions', '/v1/server', '/api/tags', '/health', '/metrics']
  it.each([...served, '/../admin', 'v1/x', '/a?b'])(
    'the configuration refuses the path %s',
    async (path) => {
      const engine = { kind: 'openai', base_url: 'http://127.0.0.1:9/v1', paths: [path] }
      const opening = InferenceBackend.fromConfig({ required: { model_name: 'a' }, engine })
      await expect(opening).rejects.toThrow(/paths/)
    },
  )

  it('with several models, each passes on the paths of its own engine', async () => {
    const others = { '/v1/rerank': answers({ results: [] }), '/v1/score': answers({ data: [] }) }
    const known = ['tiny', 'other'].map((id) => ({ id, object: 'model' }))
    const upstream = new OpenAiServer({ others, models: known })
    await upstream.listen()
    onTestFinished(() => upstream.close())
    const engine = { kind: 'openai', base_url: upstream.url, paths: ['/v1/score'] }
    const models = [
      { model_name: 'other', engine },
      { model_name: 'echo', engine: { kind: 'echo' } },
    ]
    const endpoint = await openBefore(upstream.url, { models })
    const call = async (path: string, model: string): Promise<readonly unknown[]> => {
      const { status, json } = await post(endpoint + path, { model })
      return [status, json.error?.code ?? json]
    }
    expect(await call('/v1/rerank', 'tiny')).toEqual([200, { results: [] }])
    expect(await call('/v1/score', 'other')).toEqual([200, { data: [] }])
    expect(await call('/v1/score', 'tiny')).toEqual([404, 'unknown_url'])
    expect(await call('/v1/rerank', 'echo')).toEqual([404, 'unknown_url'])
    expect(upstream.requests.map(({ body }) => body['model']).filter(Boolean)).toEqual([
      'tiny',
      'other',
    ])
  })

  it('the key, the model and the size of a body are checked before', async () => {
    const options = { apiKey: 'the-key', limits: { chatBodyBytes: 100 } }
    const { upstream, endpoint } = await openPassing({}, {}, options)
    const url = `${endpoint}/v1/embeddings`
    const key = { authorization: 'Bearer the-key' }
    expect((await post(url, { input: 'a' })).status).toBe(401)
    expect((await post(url, { input: 'a', model: 'other' }, key)).status).toBe(404)
    expect((await post(url, { input: 'a'.repeat(200) }, key)).status).toBe(413)
    expect((await post(url, [], key)).json.error.param).toBe('body')
    expect((await ask(url, { headers: key })).status).toBe(405)
    expect(upstream.requests.map(({ path }) => path)).toEqual(['/v1/models'])
  })

  it('errors: the words of a refusal, 404 for a path that the server lacks', async () => {
    const error = { message: 'input is too long', type: 'x', param: 'input', code: 400 }
    const others = { '/v1/embeddings': refuse(400, { error }) }
    const { endpoint } = await openPassing({}, { others })
    expect(await post(`${endpoint}/v1/embeddings`, { input: 'a' })).toMatchObject({
      status: 400,
      json: { error: { message: 'input is too long', param: 'input' } },
    })
    expect(await post(`${endpoint}/v1/rerank`, { query: 'a' })).toMatchObject({
      status: 404,
      json: { error: { code: 'unknown_url' } },
    })
  })

  it('a 404 about an earlier response has the words of the server', async () => {
    const missing = {
      message: "Previous response 'resp_1' not found.",
      type: 'invalid_request_error',
      param: 'previous_response_id',
      code: 'previous_response_not_found',
    }
    const unknown = { ...missing, message: 'No such address.', code: 'unknown_url' }
    const others = {
      '/v1/responses': refuse(404, { error: missing }),
      '/v1/rerank': refuse(404, { error: unknown }),
    }
    const { endpoint } = await openPassing({}, { others })
    const body = { input: 'a', previous_response_id: 'resp_1' }
    const refused = await post(`${endpoint}/v1/responses`, body)
    expect([refused.status, refused.json.error]).toEqual([404, missing])
    expect((await post(`${endpoint}/v1/rerank`, { query: 'a' })).json.error).toMatchObject({
      message: 'The server behind this one has nothing at this address.',
      code: 'unknown_url',
    })
  })

  it('streams arrive as they are sent, and end when the client leaves', async () => {
    const { promise: goOn, resolve: proceed } = Promise.withResolvers<void>()
    const others: Record<string, Step> = {
      '/v1/responses': async (response) => {
        begin(response)
        send(response, { type: 'response.created' })
        await goOn
        send(response, { type: 'response.in_progress' })
      },
    }
    const { upstream, endpoint } = await openPassing({}, { others })
    const leaving = new AbortController()
    const response = await fetch(`${endpoint}/v1/responses`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ input: 'a', stream: true }),
      signal: leaving.signal,
    })
    expect(response.headers.get('content-type')).toBe('text/event-stream')
    const reader = response.body?.getReader()
    const read = async (): Promise<string> =>
      Buffer.from((await reader?.read())?.value ?? []).toString()
    expect(await read()).toBe('data: {"type":"response.created"}\n\n')
    proceed()
    expect(await read()).toBe('data: {"type":"response.in_progress"}\n\n')
    leaving.abort()
    await upstream.left
  })

  it('at most max_concurrency passed requests are under way', async () => {
    const { promise: goOn, resolve: proceed } = Promise.withResolvers<void>()
    const { promise: came, resolve: arrive } = Promise.withResolvers<void>()
    const others: Record<string, Step> = {
      '/v1/embeddings': async (response) => {
        arrive()
        await goOn
        sendJson(response, 200, embedded)
      },
    }
    const { endpoint } = await openPassing({ engine: { max_concurrency: 1 } }, { others })
    const url = `${endpoint}/v1/embeddings`
    const first = post(url, { input: 'a' })
    await came
    const second = await post(url, { input: 'b' })
    expect([second.status, second.json.error.code]).toEqual([429, 'queue_full'])
    proceed()
    expect((await first).status).toBe(200)
    expect((await post(url, { input: 'c' })).status).toBe(200)
  })
})

describe('guardrails and paths that are passed on', () => {
  const others = {
    '/v1/embeddings': answers(embedded),
    '/v1/responses': answers({ output: [{ text: 'the swordfish' }], embedding: 'swordfish' }),
  }
  const guarded = (stage: string, action: string) =>
    openPassing(
      {
        guardrails: { toggle_on: true, rules: [{ id: 'w', keywords: 'swordfish', stage, action }] },
      },
      { others },
    )

  it('rules on prompts reject and redact in every text of a body', async () => {
    const rejecting = await guarded('input', 'reject')
    const url = `${rejecting.endpoint}/v1/embeddings`
    for (const input of ['a swordfish', ['a', 'swordfish'], { deep: ['swordfish'] }]) {
      const { status, json } = await post(url, { input })
      expect([status, json.error.code]).toEqual([400, 'content_filter'])
    }
    expect((await post(url, { input: [[1, 2]] })).json.error.param).toBe('input')
    expect((await post(url, { input: 'a fish' })).status).toBe(200)
    expect(rejecting.upstream.requests.map(({ path }) => path)).toEqual([
      '/v1/models',
      '/v1/embeddings',
    ])
    const redacting = await guarded('input', 'redact')
    await post(`${redacting.endpoint}/v1/embeddings`, { input: ['a', 'b swordfish'] })
    expect(redacting.upstream.requests[1]?.body['input']).toEqual(['a', 'b [redacted:w]'])
  })

  it('rules on answers read whole answers, and streams are refused', async () => {
    const redacting = await guarded('output', 'redact')
    const url = `${redacting.endpoint}/v1/responses`
    const { json } = await post(url, { input: 'a' })
    expect(json).toEqual({ output: [{ text: 'the [redacted:w]' }], embedding: 'swordfish' })
    const streamed = await post(url, { input: 'a', stream: true })
    expect([streamed.status, streamed.json.error.param]).toEqual([400, 'stream'])
    const rejecting = await guarded('output', 'reject')
    const blocked = await post(`${rejecting.endpoint}/v1/responses`, { input: 'a' })
    expect([blocked.status, blocked.json.error.code]).toEqual([400, 'content_filter'])
    expect(blocked.text).not.toContain('swordfish')
    const embeddings = await post(`${rejecting.endpoint}/v1/embeddings`, { input: 'a' })
    expect(embeddings.json).toEqual(embedded)
  })
})
