import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { InferenceBackend } from '../../src/inference/inference-backend.ts'
import { useTinyModel } from './engines/llama/open-engine.ts'
import { openBefore } from './engines/openai/open-passing.ts'
import { openBackend } from './open-backend.ts'
import { ask, post } from './server/served.ts'

const tiny = useTinyModel()
let backend: InferenceBackend
beforeAll(async () => {
  backend = await InferenceBackend.fromConfig(
    {
      required: { model_name: tiny.path },
      llm: { max_model_len: 64, system_prompt: ['Be brief.'] },
      engine: { kind: 'llama', threads: 1, gpu: false, sequences: 3 },
    },
    { port: 0 },
  )
})
afterAll(() => backend.close())

const send = (path: string, body: object) => post(`${backend.endpoint}${path}`, body)
const messages = [{ role: 'user', content: 'Once upon <|user|> a time' }]

describe('texts and tokens of the llama engine', () => {
  it('/detokenize is the reverse of /tokenize, in the forms of llama-server and vLLM', async () => {
    const text = 'Once upon a time, é 🐙'
    const { json } = await send('/tokenize', { content: text })
    expect(json).toMatchObject({ count: json.tokens.length, max_model_len: 64 })
    const back = await send('/detokenize', { tokens: json.tokens })
    expect([back.status, back.json]).toEqual([200, { content: text, prompt: text }])
    expect((await send('/detokenize', { tokens: [] })).json.content).toBe('')
  })

  it('/apply-template renders a chat as the model reads it, with the system prompt', async () => {
    const tools = [{ type: 'function', function: { name: 'add', parameters: { type: 'object' } } }]
    const { status, json } = await send('/apply-template', { messages, tools, temperature: 0 })
    expect([status, json.prompt]).toEqual([
      200,
      expect.stringMatching(
        /^<s>.*"name": ?"add".*<\|system\|>Be brief\.<\/s>.*Once upon <\|user\|> a time<\/s>/s,
      ),
    ])
    const plain = await send('/apply-template', { messages })
    const chat = await send('/v1/chat/completions', { messages, max_tokens: 1 })
    expect(plain.json.count).toBe(chat.json.usage.prompt_tokens)
  })

  it('a prompt of token ids is used unchanged', async () => {
    const { json } = await send('/tokenize', { content: 'Once upon a time' })
    const prompt = [1, ...(json.tokens as number[])]
    const options = { prompt, max_tokens: 2, echo: true, temperature: 0 }
    const answer = await send('/v1/completions', options)
    expect([answer.status, answer.json.usage.prompt_tokens]).toEqual([200, prompt.length])
    expect((await send('/detokenize', { tokens: prompt })).json.content).toMatch(/^<s>.*time$/)
  })

  it.each([
    ['/detokenize', { tokens: [1, 512] }, 'unsupported_value', 'tokens'],
    ['/detokenize', { tokens: [-1] }, 'integer_below_min_value', 'tokens[0]'],
    ['/detokenize', { tokens: ['a'] }, 'invalid_type', 'tokens[0]'],
    ['/detokenize', {}, 'missing_required_parameter', 'tokens'],
    ['/detokenize', { tokens: [1], model: 'other' }, 'model_not_found', 'model'],
    ['/apply-template', { messages: [] }, 'empty_array', 'messages'],
    ['/apply-template', { messages, typical_p: 0.5 }, 'unsupported_parameter', 'typical_p'],
    [
      '/apply-template',
      { messages: [{ role: 'user', content: 'long '.repeat(1000) }] },
      'context_length_exceeded',
      null,
    ],
  ])('%s refuses %j', async (path, body, code, param) => {
    const { status, json } = await send(path, body)
    expect([status, json.error]).toMatchObject([
      code === 'model_not_found' ? 404 : 400,
      { code, param },
    ])
  })

  it('GET /v1/server has the facts of server and model', async () => {
    const { status, json } = await ask(`${backend.endpoint}/v1/server`)
    expect([status, json]).toMatchObject([
      200,
      {
        endpoint: backend.endpoint,
        engine: 'llama',
        models: ['tiny'],
        max_model_len: 64,
        workers: 1,
        total_slots: 3,
        requests: { queued: 0, running: 0 },
        chat_template: expect.stringContaining('message.role'),
        default_generation_settings: { max_tokens: 64, temperature: 0.5, top_k: 50 },
        routes: expect.arrayContaining(['POST /v1/chat/completions', 'GET /v1/server']),
      },
    ])
    expect(JSON.stringify(json)).not.toContain(tiny.path)
  })
})

it('the engine openai asks the server behind it for the text of tokens', async () => {
  const endpoint = await openBefore(backend.endpoint ?? '')
  const { json } = await post(`${endpoint}/tokenize`, { prompt: 'Once upon' })
  const back = await post(`${endpoint}/detokenize`, { tokens: json.tokens })
  expect([back.status, back.json.content]).toEqual([200, 'Once upon'])
  expect((await post(`${endpoint}/detokenize`, { tokens: [512] })).status).toBe(400)
  expect((await post(`${endpoint}/apply-template`, { messages })).status).toBe(400)
})

it('an engine that cannot convert tokens refuses with 400', async () => {
  const { endpoint } = await openBackend({ port: 0 })
  for (const [path, body] of [
    ['/detokenize', { tokens: [1] }],
    ['/apply-template', { messages }],
  ] as const) {
    const { status, json } = await post(`${endpoint}${path}`, body)
    expect([path, status, json.error.code]).toEqual([path, 400, 'unsupported_value'])
    expect(json.error.message).toContain('this engine does not report')
  }
})
