import { describe, expect, it } from 'vitest'
import {
  basicFields,
  requestFields,
} from '../../../../src/inference/generation/fields/request-fields.ts'
import { hello, post, serve } from '../served.ts'

const chatPath = '/v1/chat/completions'
/** Known fields that only an engine can support, and none supports by itself. */
const engineNames = Object.entries(requestFields)
  .filter(([name, { reader }]) => reader === 'engine' && !basicFields.has(name))
  .map(([name]) => name)

describe('fields of requests', () => {
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

  it('row 68: fields that nobody reads are ignored and listed in a response header', async () => {
    await using served = await serve()
    const message = { role: 'user', content: 'hi', cache_control: { type: 'ephemeral' } }
    const tool = { type: 'function', function: { name: 'add', strict: true } }
    const body = {
      ...hello,
      messages: [message],
      tools: [tool],
      user: 'me',
      metadata: { a: 'b' },
      store: true,
      service_tier: 'auto',
      prompt_cache_key: 'k',
      safety_identifier: 's',
      'odd\r\nname: x': 1,
      ünicode: 2,
    }
    const listed =
      'user, metadata, store, service_tier, prompt_cache_key, safety_identifier, ' +
      'odd%0D%0Aname%3A%20x, %C3%BCnicode, messages[0].cache_control, tools[0].function.strict'
    const { status, headers } = await post(`${served.url}${chatPath}`, body)
    expect(status).toBe(200)
    expect(headers.get('x-tutti-ignored-fields')).toBe(listed)
    const stream = { stream: true, stream_options: { include_obfuscation: false } }
    const streamed = await post(`${served.url}${chatPath}`, { ...body, ...stream })
    expect(streamed.headers.get('x-tutti-ignored-fields')).toBe(
      `stream_options.include_obfuscation, ${listed}`,
    )
    const nothing = await post(`${served.url}${chatPath}`, { ...hello, user: null, seed: null })
    expect(nothing.headers.has('x-tutti-ignored-fields')).toBe(false)
  })

  it('row 68: a strict server refuses fields that nobody reads', async () => {
    await using served = await serve({ limits: { isStrict: true } })
    for (const [name, value] of Object.entries({ user: 'me', metadata: {}, unheard_of: 0 })) {
      const { status, json } = await post(`${served.url}${chatPath}`, { ...hello, [name]: value })
      expect([name, status]).toEqual([name, 400])
      expect(json.error).toMatchObject({ code: 'unknown_parameter', param: name })
    }
    expect((await post(`${served.url}${chatPath}`, hello)).status).toBe(200)
  })

  it('row 68: an unsupported field that would change the answer gets 400', async () => {
    await using served = await serve()
    for (const name of engineNames) {
      const { status, json } = await post(`${served.url}${chatPath}`, { ...hello, [name]: 0.7 })
      expect([name, status]).toEqual([name, 400])
      expect(json.error).toEqual({
        message: expect.stringContaining(`'${name}' is not supported by the engine`),
        type: 'invalid_request_error',
        param: name,
        code: 'unsupported_parameter',
      })
    }
    expect(engineNames.length).toBeGreaterThan(90)
    expect(served.generator.requests).toEqual([])
  })

  it('row 68: fields of messages and stream options that are not supported get 400', async () => {
    await using served = await serve()
    const paramOf = async (body: object): Promise<unknown> => {
      const { status, json } = await post(`${served.url}${chatPath}`, { ...hello, ...body })
      return status === 400 ? json.error.param : status
    }
    const said = { role: 'assistant', content: 'a' }
    const asked = hello.messages[0]
    const thought = { messages: [asked, { ...said, reasoning_content: 'b' }] }
    expect(await paramOf(thought)).toBe('messages[1].reasoning_content')
    const refused = { messages: [asked, { ...said, refusal: 'no' }] }
    expect(await paramOf(refused)).toBe('messages[1].refusal')
    const stream = { stream: true, stream_options: { continuous_usage_stats: true } }
    expect(await paramOf(stream)).toBe('stream_options.continuous_usage_stats')
    // What the client libraries send when they repeat an answer.
    const repeated = { ...said, refusal: null, annotations: [], audio: null, function_call: null }
    expect(await paramOf({ messages: [asked, repeated] })).toBe(200)
  })

  it('values that change nothing are accepted for every known field', async () => {
    await using served = await serve()
    const neutral = {
      frequency_penalty: 0,
      presence_penalty: 0,
      logit_bias: {},
      parallel_tool_calls: true,
      best_of: 1,
      typical_p: 1,
      guided_json: null,
      stop_token_ids: [],
      use_beam_search: false,
    }
    const { status, headers } = await post(`${served.url}${chatPath}`, { ...hello, ...neutral })
    expect([status, headers.has('x-tutti-ignored-fields')]).toEqual([200, false])
  })

  it('a field of a message that the engine supports is accepted', async () => {
    await using served = await serve({ fields: ['messages.reasoning_content'] })
    const messages = [{ role: 'assistant', content: 'a', reasoning_content: 'b' }]
    expect((await post(`${served.url}${chatPath}`, { ...hello, messages })).status).toBe(200)
  })

  it('fields of structured_outputs that would change the answer are refused by name', async () => {
    await using served = await serve({ fields: ['structured_outputs'] })
    const ask = (fields: object) =>
      post(`${served.url}${chatPath}`, { ...hello, structured_outputs: { regex: 'a+', ...fields } })
    const accepted = await ask({ disable_fallback: false, whitespace_pattern: null, mine: 1 })
    expect(accepted.status).toBe(200)
    expect(accepted.headers.get('x-tutti-ignored-fields')).toBe('structured_outputs.mine')
    const format = { kind: 'regex', pattern: 'a+', field: 'structured_outputs.regex' }
    expect(served.generator.requests[0]?.sampling.format).toEqual(format)
    const refused = await ask({ whitespace_pattern: ' ' })
    expect([refused.status, refused.json.error.param, refused.json.error.code]).toEqual([
      400,
      'structured_outputs.whitespace_pattern',
      'unsupported_parameter',
    ])
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
