import { Validator } from '@seriousme/openapi-schema-validator'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { expect, it } from 'vitest'
import { badRequests } from './requests/bad-requests.ts'
import { ask, hello, post, serve, type Served } from './served.ts'

interface Operation {
  readonly security?: readonly object[]
  readonly requestBody?: object
  readonly responses: Readonly<Record<string, object>>
}

interface OpenApi {
  readonly openapi: string
  readonly servers: readonly { readonly url: string }[]
  readonly security?: readonly object[]
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
  readonly components: { readonly schemas: Readonly<Record<string, object>> }
}

const documentOf = async (served: Served): Promise<OpenApi> =>
  (await ask(`${served.url}/openapi.json`)).json

/** Checks values against the schemas of the document's components; gives what is wrong. */
function checksOf({ components }: OpenApi): (name: string, value: unknown) => unknown[] {
  const ajv = new Ajv2020({ strict: true, allowUnionTypes: true })
  for (const [name, schema] of Object.entries(components.schemas)) ajv.addSchema(schema, name)
  return (name, value) => {
    const isValid = ajv.validate(name, value)
    return isValid ? [] : (ajv.errors ?? [])
  }
}

it('GET /openapi.json: the document is valid OpenAPI 3.1', async () => {
  await using served = await serve()
  const document = await documentOf(served)
  expect(document.openapi).toBe('3.1.0')
  const { valid, errors } = await new Validator().validate(JSON.parse(JSON.stringify(document)))
  expect(errors).toBeUndefined()
  expect(valid).toBe(true)
})

it('GET /openapi.json: every route of the server is in the document, with its method', async () => {
  await using served = await serve()
  const { paths, servers } = await documentOf(served)
  const described = Object.entries(paths).flatMap(([path, operations]) =>
    ['get', 'post', 'delete']
      .filter((method) => method in operations)
      .map((method) => `${method} ${path}`),
  )
  expect(described.toSorted()).toEqual([
    'delete /v1/responses/{name}',
    'get /api/ps',
    'get /api/tags',
    'get /api/version',
    'get /health',
    'get /health/live',
    'get /health/ready',
    'get /metrics',
    'get /openapi.json',
    'get /v1/models',
    'get /v1/models/{name}',
    'get /v1/responses/{name}',
    'get /v1/server',
    'post /api/chat',
    'post /api/generate',
    'post /api/show',
    'post /apply-template',
    'post /detokenize',
    'post /generate',
    'post /tokenize',
    'post /v1/chat/completions',
    'post /v1/completions',
    'post /v1/messages',
    'post /v1/messages/count_tokens',
    'post /v1/responses',
  ])
  expect(servers).toEqual([{ url: served.url }])
})

it('GET /openapi.json: needs the key where one is set, and says which routes do', async () => {
  await using served = await serve({ apiKey: 'sk-1' })
  expect((await ask(`${served.url}/openapi.json`)).status).toBe(401)
  const headers = { authorization: 'Bearer sk-1' }
  const { json } = await ask(`${served.url}/openapi.json`, { headers })
  const document = json as OpenApi
  expect(document.security).toEqual([{ bearer: [] }, { header: [] }])
  const open = Object.entries(document.paths).filter(
    ([, path]) => path['get']?.security?.length === 0,
  )
  expect(open.map(([path]) => path)).toEqual(['/health', '/health/live', '/health/ready'])
})

it('GET /openapi.json: its schemas accept what the server accepts', async () => {
  await using served = await serve()
  const check = checksOf(await documentOf(served))
  const bodies: Readonly<Record<string, readonly [string, unknown]>> = {
    chat: ['ChatCompletionRequest', hello],
    parts: [
      'ChatCompletionRequest',
      {
        messages: [
          { role: 'user', content: [{ type: 'text', text: 'a' }] },
          {
            role: 'assistant',
            content: null,
            tool_calls: [{ id: '1', function: { name: 'add', arguments: '{}' } }],
          },
          { role: 'tool', tool_call_id: '1', content: '2' },
        ],
        tools: [{ type: 'function', function: { name: 'add', parameters: { type: 'object' } } }],
        tool_choice: 'auto',
        stop: null,
      },
    ],
    completion: ['CompletionRequest', { prompt: ['a', 'b'], n: 2, logprobs: 1 }],
    generate: ['GenerateRequest', { prompts: [], timeout: 0.5 }],
    tokenize: ['TokenizeRequest', { content: 'a' }],
    ollama: ['OllamaChatRequest', { ...hello, options: { num_predict: 3 } }],
    ollamaPrompt: ['OllamaGenerateRequest', { model: 'tiny', prompt: 'a', format: 'json' }],
    response: ['ResponseRequest', { input: 'a', previous_response_id: null }],
    detokenize: ['DetokenizeRequest', { tokens: [97], model: 'tiny' }],
    message: ['MessageRequest', { ...hello, system: 'Be brief.', top_k: 3 }],
  }
  for (const [name, [schema, body]] of Object.entries(bodies)) {
    expect([name, check(schema, body)]).toEqual([name, []])
  }
})

it('GET /openapi.json: its schemas refuse the bad requests that concern one field', async () => {
  await using served = await serve()
  const check = checksOf(await documentOf(served))
  const names: Readonly<Record<string, string>> = {
    '/v1/chat/completions': 'ChatCompletionRequest',
    '/v1/completions': 'CompletionRequest',
    '/generate': 'GenerateRequest',
    '/tokenize': 'TokenizeRequest',
  }
  const accepted = badRequests.filter(
    ({ path, body, code }) =>
      code !== 'unsupported_parameter' && check(names[path] ?? '', body).length === 0,
  )
  // Fields that have to fit together are checked after the schema.
  expect(accepted.map(({ name }) => name)).toEqual([
    'max-tokens-twice',
    'parallel-tool-calls-alone',
    'parallel-tool-calls-no-tools',
    'stream-options-without-stream',
    'tool-choice-of-no-tool',
    'tool-choice-without-tools',
    'top-logprobs-alone',
    'top-logprobs-without',
    'top-logprobs-zero-alone',
    'assistant-without-content',
    'completion-best-of-below-n',
    'completion-best-of-stream',
    'completion-stream-options',
    'completion-max-tokens-twice',
    'generate-max-tokens-twice',
    'tokenize-null',
    'tokenize-without-text',
  ])
})

it('GET /openapi.json: its schemas describe what the server sends', async () => {
  await using served = await serve()
  const check = checksOf(await documentOf(served))
  const { url } = served
  const responses: Readonly<Record<string, unknown>> = {
    Health: (await ask(`${url}/health`)).json,
    Status: (await ask(`${url}/health/ready`)).json,
    ModelList: (await ask(`${url}/v1/models`)).json,
    Model: (await ask(`${url}/v1/models/tiny`)).json,
    Tokens: (await post(`${url}/tokenize`, { prompt: 'a' })).json,
    TokenText: (await post(`${url}/detokenize`, { tokens: [97] })).json,
    Prompt: (await post(`${url}/apply-template`, hello)).json,
    Server: (await ask(`${url}/v1/server`)).json,
    ChatCompletion: (await post(`${url}/v1/chat/completions`, { ...hello, logprobs: true })).json,
    Completion: (await post(`${url}/v1/completions`, { prompt: 'a' })).json,
    Generated: (await post(`${url}/generate`, { prompts: ['a', 'b'] })).json,
    GenerateError: (await post(`${url}/generate`, {})).json,
    Error: (await post(`${url}/v1/chat/completions`, {})).json,
    OllamaChat: (await post(`${url}/api/chat`, { ...hello, stream: false })).json,
    OllamaGenerated: (
      await post(`${url}/api/generate`, { model: 'tiny', prompt: 'a', stream: false })
    ).json,
    OllamaError: (await post(`${url}/api/chat`, {})).json,
    Response: (await post(`${url}/v1/responses`, { input: 'a' })).json,
    Message: (await post(`${url}/v1/messages`, hello)).json,
    MessageTokens: (await post(`${url}/v1/messages/count_tokens`, hello)).json,
    MessageError: (await post(`${url}/v1/messages`, {})).json,
  }
  for (const [name, body] of Object.entries(responses)) {
    expect([name, check(name, body)]).toEqual([name, []])
  }
  served.generator.state = { queued: 1, running: 0, workers: 0, unreadyReason: 'loading: /secret' }
  const unhealthy = await ask(`${url}/health`)
  expect(unhealthy.status).toBe(503)
  expect(check('Health', unhealthy.json)).toEqual([])
})
