import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { hello, post, serve } from '../served.ts'

interface BadRequest {
  readonly path: string
  readonly body: unknown
  readonly code?: string
  readonly param?: string
  readonly message?: string
}

const folder = join(import.meta.dirname, 'bad-requests')
const corpus = readdirSync(folder)
const chatPath = '/v1/chat/completions'

describe('fields of requests', () => {
  it('row 67: each bad request of the corpus gets its code and the path of its field', async () => {
    await using served = await serve()
    for (const file of corpus) {
      const bad = JSON.parse(readFileSync(join(folder, file), 'utf8')) as BadRequest
      const { status, json } = await post(`${served.url}${bad.path}`, JSON.stringify(bad.body))
      expect(status, file).toBe(400)
      if (bad.code === undefined) {
        expect(json, file).toEqual({
          status: 'error',
          message: bad.message,
          hostname: expect.any(String),
          error: {
            message: bad.message,
            type: 'invalid_request_error',
            param: expect.stringMatching(/^(?:prompts|timeout)/),
            code: expect.any(String),
          },
        })
        continue
      }
      expect(json, file).toEqual({
        error: {
          message: bad.message ?? expect.stringMatching(/^(?:Invalid|Missing|The) .*'.*'.*\.$/),
          type: 'invalid_request_error',
          param: bad.param,
          code: bad.code,
        },
      })
    }
    expect(corpus.length).toBeGreaterThan(80)
    expect(served.generator.requests).toEqual([])
    expect(served.generator.tokenized).toEqual([])
  })

  it('row 67: the number of prompts and tools and the size of a prompt are limited', async () => {
    await using served = await serve()
    const many = (count: number): string[] => Array.from({ length: count }, () => 'a')
    const codeOf = async (path: string, body: unknown): Promise<unknown> =>
      (await post(`${served.url}${path}`, body)).json.error?.code
    expect(await codeOf('/v1/completions', { prompt: many(1025) })).toBe('array_above_max_length')
    expect(await codeOf('/v1/completions', { prompt: many(512), n: 3 })).toBe(
      'integer_above_max_value',
    )
    const tool = { type: 'function', function: { name: 'add' } }
    const tools = Array.from({ length: 129 }, () => tool)
    expect(await codeOf(chatPath, { ...hello, tools })).toBe('array_above_max_length')
    expect(await codeOf('/v1/completions', { prompt: 'x'.repeat(10_000_000) })).toBe(
      'request_too_large',
    )
    const tooMany = await post(`${served.url}/generate`, { prompts: many(1025) })
    expect([tooMany.status, tooMany.json.status]).toEqual([400, 'error'])
    expect(served.generator.requests).toEqual([])
    const enough = await post(`${served.url}/generate`, { prompts: many(1024) })
    expect(enough.json.num_prompts).toBe(1024)
  })

  it('row 68: unknown fields are ignored and listed in a response header', async () => {
    await using served = await serve()
    const body = { ...hello, logit_bias: {}, 'odd\r\nname: x': 1, ünicode: 2 }
    const { status, headers } = await post(`${served.url}${chatPath}`, body)
    expect(status).toBe(200)
    expect(headers.get('x-tutti-ignored-fields')).toBe(
      'logit_bias, odd%0D%0Aname%3A%20x, %C3%BCnicode',
    )
    const known = await post(`${served.url}${chatPath}`, { ...hello, user: 'me', seed: null })
    expect(known.headers.has('x-tutti-ignored-fields')).toBe(false)
    const stream = await post(`${served.url}${chatPath}`, { ...body, stream: true })
    expect(stream.headers.get('x-tutti-ignored-fields')).toContain('logit_bias')
  })

  it('row 68: a strict server refuses unknown fields', async () => {
    await using served = await serve({ limits: { isStrict: true } })
    const { status, json } = await post(`${served.url}${chatPath}`, { ...hello, logit_bias: {} })
    expect(status).toBe(400)
    expect(json.error).toMatchObject({ code: 'unknown_parameter', param: 'logit_bias' })
    expect((await post(`${served.url}${chatPath}`, hello)).status).toBe(200)
  })

  it('row 69: an unknown model gets 404 with the names of the served ones', async () => {
    await using served = await serve()
    const { status, json } = await post(`${served.url}${chatPath}`, { ...hello, model: 'gpt-9' })
    expect(status).toBe(404)
    expect(json.error).toEqual({
      message: "The model 'gpt-9' does not exist here. Served: tiny, tiny-alias.",
      type: 'invalid_request_error',
      param: 'model',
      code: 'model_not_found',
    })
    const alias = await post(`${served.url}${chatPath}`, { ...hello, model: 'tiny-alias' })
    expect(alias.json.model).toBe('tiny-alias')
    const one = await fetch(`${served.url}/v1/models/gpt-9`)
    expect(one.status).toBe(404)
  })

  it('a chat request: every known field reaches the generator', async () => {
    await using served = await serve()
    const parameters = { type: 'object', properties: { a: { type: 'number' } } }
    await post(`${served.url}${chatPath}`, {
      model: 'tiny',
      messages: [
        { role: 'developer', content: 'be brief' },
        {
          role: 'user',
          content: [
            { type: 'text', text: 'add ' },
            { type: 'text', text: '1' },
          ],
        },
        {
          role: 'assistant',
          content: null,
          tool_calls: [{ id: 'c1', type: 'function', function: { name: 'add', arguments: '{}' } }],
        },
        { role: 'tool', tool_call_id: 'c1', content: '2', name: 'add' },
      ],
      max_tokens: 5,
      max_completion_tokens: 7,
      temperature: 0,
      top_p: 0.5,
      top_k: -1,
      min_p: 0.1,
      repetition_penalty: 1.2,
      seed: 42,
      stop: 'END',
      logprobs: true,
      top_logprobs: 2,
      response_format: { type: 'json_schema', json_schema: { name: 'x', schema: parameters } },
      tools: [{ type: 'function', function: { name: 'add', description: 'adds', parameters } }],
      tool_choice: { type: 'function', function: { name: 'add' } },
      priority: 3,
      timeout: 1.5,
      ignore_eos: true,
    })
    const [request] = served.generator.requests
    expect(request).toEqual({
      input: {
        kind: 'chat',
        messages: [
          { role: 'system', content: 'be brief' },
          { role: 'user', content: 'add 1' },
          {
            role: 'assistant',
            content: '',
            toolCalls: [{ id: 'c1', name: 'add', arguments: '{}' }],
          },
          { role: 'tool', content: '2', name: 'add', toolCallId: 'c1' },
        ],
        tools: [{ name: 'add', description: 'adds', parameters }],
        toolChoice: { name: 'add' },
      },
      sampling: {
        maxTokens: 7,
        temperature: 0,
        topP: 0.5,
        topK: 0,
        minP: 0.1,
        repetitionPenalty: 1.2,
        seed: 42,
        stop: ['END'],
        ignoreEos: true,
        logprobs: 2,
        format: { kind: 'json_schema', schema: parameters },
      },
      priority: 3,
      timeoutSeconds: 1.5,
      signal: expect.any(AbortSignal),
      isBounded: true,
      taskId: null,
    })
  })

  it('a completion request: null or missing fields keep the configured values', async () => {
    await using served = await serve()
    await post(`${served.url}/v1/completions`, { prompt: 'a', temperature: null })
    expect(served.generator.requests[0]?.sampling).toEqual({ maxTokens: 100, logprobs: null })
  })
})
