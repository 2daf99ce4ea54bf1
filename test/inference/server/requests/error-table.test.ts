import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { InferenceBackend } from '../../../../src/inference/inference-backend.ts'
import { inferenceError } from '../../../../src/inference/generation/inference-errors.ts'
import { tinyContext } from '../../engines/tiny-model.ts'
import { useTinyModel } from '../../engines/llama/open-engine.ts'
import { openBackend } from '../../open-backend.ts'
import { FakeGenerator } from '../fake-generator.ts'
import { badRequests } from './bad-requests.ts'
import { ask, hello, post, raw, type Reply, serve } from '../served.ts'

const chat = '/v1/chat/completions'
const completion = '/v1/completions'
const words = (count: number): string => 'word '.repeat(count)
const chatOf = (content: string): object => ({ ...hello, messages: [{ role: 'user', content }] })

/** The type of an error is decided by its status. */
const types: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  403: 'permission_error',
  408: 'timeout_error',
  429: 'rate_limit_error',
  503: 'service_unavailable_error',
  504: 'timeout_error',
}

function expectError(
  name: string,
  { status, json }: Pick<Reply, 'status' | 'json'>,
  expected: { status: number; code: string; param: string | null; message?: string },
): void {
  expect([name, status]).toEqual([name, expected.status])
  expect(json.error, name).toEqual({
    message: expected.message ?? expect.stringMatching(/^.+[.)]$/),
    type: types[status] ?? 'invalid_request_error',
    param: expected.param,
    code: expected.code,
  })
}

describe('errors of the echo engine over HTTP', () => {
  it('row 67: each bad request gets 400, its code and the path of its field', async () => {
    const { endpoint } = await openBackend({ port: 0 })
    for (const { name, path, body, ...expected } of badRequests) {
      const reply = await post(`${endpoint}${path}`, JSON.stringify(body))
      expectError(name, reply, { status: 400, ...expected })
      if (path !== '/generate') continue
      const { message } = reply.json.error
      const head = { status: 'error', message, hostname: expect.any(String) as string }
      expect(reply.json, name).toEqual({ ...head, error: reply.json.error })
    }
    expect(badRequests.length).toBeGreaterThan(150)
  })

  it('each wrong address, method, model and type of body gets its status and code', async () => {
    const { endpoint } = await openBackend({ port: 0 })
    const json = { 'content-type': 'application/json' }
    const rows: readonly (readonly [string, RequestInit, number, string, string | null])[] = [
      [chat, jsonPost({ ...hello, model: 'gpt-9' }), 404, 'model_not_found', 'model'],
      [completion, jsonPost({ model: 'gpt-9', prompt: 'a' }), 404, 'model_not_found', 'model'],
      ['/generate', jsonPost({ model: 'b', prompts: ['a'] }), 404, 'model_not_found', 'model'],
      ['/tokenize', jsonPost({ model: 'b', prompt: 'a' }), 404, 'model_not_found', 'model'],
      ['/v1/models/gpt-9', {}, 404, 'model_not_found', 'model'],
      ['/v1/models/a%2Fb', {}, 404, 'model_not_found', 'model'],
      ['/v1/models/%zz', {}, 404, 'model_not_found', 'model'],
      ['/v1', {}, 404, 'unknown_url', null],
      ['/v1/chat', jsonPost(hello), 404, 'unknown_url', null],
      ['/v1/moderations', jsonPost({ input: 'a' }), 404, 'unknown_url', null],
      ['/v1/rerank', jsonPost({ query: 'a' }), 404, 'unknown_url', null],
      [chat, {}, 405, 'method_not_allowed', null],
      [chat, { method: 'DELETE' }, 405, 'method_not_allowed', null],
      [completion, { method: 'PUT', headers: json, body: '{}' }, 405, 'method_not_allowed', null],
      ['/generate', {}, 405, 'method_not_allowed', null],
      ['/tokenize', {}, 405, 'method_not_allowed', null],
      ['/v1/models', jsonPost({}), 405, 'method_not_allowed', null],
      ['/v1/models/tiny', { method: 'DELETE' }, 405, 'method_not_allowed', null],
      [chat, typed('text/plain'), 415, 'unsupported_media_type', null],
      [chat, typed('multipart/form-data; boundary=a'), 415, 'unsupported_media_type', null],
      [completion, typed('application/xml'), 415, 'unsupported_media_type', null],
      [
        '/generate',
        typed('application/x-www-form-urlencoded'),
        415,
        'unsupported_media_type',
        null,
      ],
      ['/tokenize', typed('application/json; charset=latin1'), 415, 'unsupported_media_type', null],
      [chat, { method: 'POST', headers: json, body: '' }, 400, 'invalid_json', 'body'],
      [chat, { method: 'POST', headers: json, body: '{"model":' }, 400, 'invalid_json', 'body'],
      [completion, { method: 'POST', headers: json, body: "{'a'}" }, 400, 'invalid_json', 'body'],
    ]
    for (const [path, init, status, code, param] of rows) {
      const reply = await ask(`${endpoint}${path}`, init)
      expectError(`${init.method ?? 'GET'} ${path}`, reply, { status, code, param })
    }
  })
})

describe('errors of what the server allows', () => {
  it('a body beyond its limit gets 413 on every route that reads one', async () => {
    const limits = { bodyBytes: 100, chatBodyBytes: 200 }
    const { endpoint } = await openBackend({ port: 0, limits })
    const long = 'x'.repeat(200)
    const expected = { status: 413, code: 'request_too_large', param: 'body' }
    for (const [path, body] of [
      [chat, chatOf(long)],
      [completion, { prompt: long }],
      ['/generate', { prompts: [long] }],
      ['/tokenize', { prompt: long }],
    ] as const) {
      expectError(path, await post(`${endpoint}${path}`, body), expected)
    }
  })

  it('no key, a wrong one and one in the address get 401 on every route but health', async () => {
    const { endpoint } = await openBackend({ port: 0, apiKey: 'sk-table' })
    const expected = { status: 401, code: 'invalid_api_key', param: null }
    const routes = [chat, completion, '/generate', '/tokenize', '/v1/models/tiny', '/v1/nothing']
    for (const path of routes) {
      const init: RequestInit = path.startsWith('/v1/m') ? {} : jsonPost({})
      expectError(path, await ask(`${endpoint}${path}`, init), expected)
      const headers = new Headers(init.headers)
      headers.set('authorization', 'Bearer sk-wrong')
      expectError(path, await ask(`${endpoint}${path}`, { ...init, headers }), expected)
      expectError(path, await ask(`${endpoint}${path}?api_key=sk-table`, init), expected)
    }
    expect((await ask(`${endpoint}/health`)).status).toBe(200)
  })

  it('a foreign Host or Origin gets 403 before anything else is looked at', async () => {
    await using served = await serve({ apiKey: 'sk-table' })
    const origin = { origin: 'https://evil.example' }
    const expected = { status: 403, param: null }
    for (const path of [chat, completion, '/generate', '/tokenize']) {
      const reply = await post(`${served.url}${path}`, {}, origin)
      expectError(path, reply, { ...expected, code: 'origin_not_allowed' })
      const head = `POST ${path} HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n`
      const rebound = toReply(await raw(served.port, head))
      expectError(path, rebound, { ...expected, code: 'host_not_allowed' })
    }
  })

  it('a request that does not arrive in time gets 408', async () => {
    const limits = { headersTimeoutMs: 50, requestTimeoutMs: 100, connectionsCheckMs: 10 }
    await using served = await serve({ limits })
    const host = `Host: 127.0.0.1:${served.port}`
    const type = 'Content-Type: application/json\r\nContent-Length: 10'
    for (const head of [
      `POST ${chat} HTTP/1.1\r\nHo`,
      `POST ${chat} HTTP/1.1\r\n${host}\r\n${type}\r\n\r\n{`,
    ]) {
      const reply = toReply(await raw(served.port, head))
      expectError(head, reply, { status: 408, code: 'request_timeout', param: null })
    }
  })
})

describe('errors of a server that cannot answer now', () => {
  const bodies = [
    [chat, hello],
    [chat, { ...hello, stream: true }],
    [completion, { prompt: 'a' }],
    [completion, { prompt: ['a', 'b'], stream: true }],
    ['/generate', { prompts: ['a', 'b'] }],
  ] as const

  it.each([
    ['queue_full', 429, '1'],
    ['not_ready', 503, '5'],
    ['engine_lost', 503, '5'],
    ['closing', 503, '5'],
    ['request_timeout', 504, null],
    ['engine_timeout', 504, null],
  ] as const)('%s gets %i on every route that generates', async (code, status, retryAfter) => {
    const generator = new FakeGenerator(() => {
      throw inferenceError(code, 'Not now.')
    })
    await using served = await serve({ generator })
    for (const [path, body] of bodies) {
      const reply = await post(`${served.url}${path}`, body)
      expectError(path, reply, { status, code, param: null })
      expect([path, reply.headers.get('retry-after')]).toEqual([path, retryAfter])
    }
  })

  it('while the model loads, every route but health gets 503', async () => {
    await using served = await serve({ contextLength: null })
    const expected = { status: 503, code: 'not_ready', param: null }
    for (const [path, body] of [...bodies, ['/tokenize', { prompt: 'a' }]] as const) {
      expectError(path, await post(`${served.url}${path}`, body), expected)
    }
    expectError('model', await ask(`${served.url}/v1/models/tiny`), expected)
  })

  it('a prompt beyond the context gets 400 with the field that holds it', async () => {
    const { endpoint } = await openBackend({ port: 0 })
    for (const [path, body, param] of [
      [chat, chatOf(words(9000)), 'messages'],
      [chat, { ...chatOf(words(9000)), stream: true }, 'messages'],
      [completion, { prompt: words(9000) }, 'prompt'],
      [completion, { prompt: words(9000), stream: true }, 'prompt'],
    ] as const) {
      const reply = await post(`${endpoint}${path}`, body)
      const message = expect.any(String) as string
      expectError(path, reply, { status: 400, code: 'context_length_exceeded', param, message })
    }
  })
})

describe('errors of the llama engine over HTTP', () => {
  const model = useTinyModel(
    "{{ bos_token }}{% for message in messages %}{% if message.content == 'no' %}" +
      "{{ raise_exception('Say something else.') }}{% endif %}{{ message.content }}{% endfor %}",
  )
  let backend: InferenceBackend
  beforeAll(async () => {
    backend = await InferenceBackend.fromConfig(
      {
        required: { model_name: model.path, served_name: 'tiny' },
        llm: { max_model_len: tinyContext },
        engine: { kind: 'llama', threads: 1, gpu: false, sequences: 1 },
      },
      { port: 0 },
    )
  })
  afterAll(() => backend.close())

  const schemaOf = (schema: object): object => ({
    response_format: { type: 'json_schema', json_schema: { name: 'a', schema } },
  })
  const image = { type: 'image_url', image_url: { url: 'data:,' } }
  const imagePath = 'messages[0].content[0].type'
  const unresolved = { $ref: '#/$defs/nothing' }
  const format = 'response_format'
  const parameters = 'tools[0].function.parameters'
  const toolOf = (schema: object): object => ({
    tools: [{ type: 'function', function: { name: 'f', parameters: schema } }],
    tool_choice: 'required',
  })

  it.each([
    ['chat too long', chat, chatOf(words(600)), 'context_length_exceeded', 'messages'],
    ['prompt too long', completion, { prompt: words(600) }, 'context_length_exceeded', 'prompt'],
    ['max_tokens', chat, { ...hello, max_tokens: 513 }, 'integer_above_max_value', 'max_tokens'],
    ['refused by the template', chat, chatOf('no'), 'unsupported_value', 'messages'],
    ['schema', chat, { ...hello, ...schemaOf({ not: {} }) }, 'unsupported_value', format],
    ['reference', chat, { ...hello, ...schemaOf(unresolved) }, 'invalid_value', format],
    ['type', chat, { ...hello, ...schemaOf({ type: 'strng' }) }, 'invalid_value', format],
    ['minimum', chat, { ...hello, ...schemaOf({ minimum: 'a' }) }, 'invalid_value', format],
    ['pattern', chat, { ...hello, ...schemaOf({ pattern: '(' }) }, 'invalid_value', format],
    [
      'look-ahead',
      chat,
      { ...hello, ...schemaOf({ pattern: '(?=a)' }) },
      'unsupported_value',
      format,
    ],
    ['parameters', chat, { ...hello, ...toolOf({ type: 'strng' }) }, 'invalid_value', parameters],
    ['guided_json', chat, { ...hello, guided_json: unresolved }, 'invalid_value', 'guided_json'],
    ['guided_regex', chat, { ...hello, guided_regex: '(' }, 'invalid_value', 'guided_regex'],
    ['expression', chat, { ...hello, guided_regex: '(?=a)' }, 'unsupported_value', 'guided_regex'],
    ['grammar', completion, { prompt: 'a', grammar: 'root ::= (' }, 'unsupported_value', 'grammar'],
    ['bias', chat, { ...hello, logit_bias: { 99999: 1 } }, 'unsupported_value', 'logit_bias'],
    ['token', completion, { prompt: [99_999] }, 'unsupported_value', 'prompt'],
    ['empty prompt', completion, { prompt: [] }, 'empty_array', 'prompt'],
    ['typical_p', chat, { ...hello, typical_p: 0.5 }, 'unsupported_parameter', 'typical_p'],
    ['image', chat, { messages: [{ role: 'user', content: [image] }] }, 'invalid_value', imagePath],
  ])('%s', async (name, path, body, code, param) => {
    const reply = await post(`${backend.endpoint}${path}`, body)
    const message = expect.any(String) as string
    expectError(name, reply, { status: 400, code, param, message })
  })
})

function jsonPost(body: object): RequestInit {
  const headers = { 'content-type': 'application/json' }
  return { method: 'POST', headers, body: JSON.stringify(body) }
}

const typed = (type: string): RequestInit => ({
  method: 'POST',
  headers: { 'content-type': type },
  body: JSON.stringify(hello),
})

/** The status and the body of a response as it came over the connection. */
function toReply(response: string): Pick<Reply, 'status' | 'json'> {
  const [head = '', body = ''] = response.split('\r\n\r\n')
  return { status: Number(head.split(' ')[1]), json: JSON.parse(body) }
}
