import { describe, expect, it } from 'vitest'
import { openPassing } from '../../engines/openai/open-passing.ts'
import { hello, post, type Reply, serve } from '../served.ts'

const chatPath = '/v1/chat/completions'

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

  it('row 68: fields of messages and stream options that are not supported get 400', async () => {
    await using served = await serve()
    const paramOf = async (body: object): Promise<unknown> => {
      const { status, json } = await post(`${served.url}${chatPath}`, { ...hello, ...body })
      return status === 400 ? json.error.param : status
    }
    const said = { role: 'assistant', content: 'a' }
    const asked = hello.messages[0]
    const shown = { messages: [{ ...asked, images: ['AAAA'] }] }
    expect(await paramOf(shown)).toBe('messages[0].images')
    const refused = { messages: [asked, { ...said, refusal: 'no' }] }
    expect(await paramOf(refused)).toBe('messages[1].refusal')
    const stream = { stream: true, stream_options: { continuous_usage_stats: true } }
    expect(await paramOf(stream)).toBe('stream_options.continuous_usage_stats')
    const { json } = await post(`${served.url}${chatPath}`, { ...hello, ...stream })
    expect(json.error.message).toMatch(/not supported by this server\. With 'include_usage'/)
    expect(json.error.message).not.toContain('openai')
    // Messages that client libraries send when they repeat an answer.
    const repeated = { ...said, refusal: null, annotations: [], audio: null, function_call: null }
    expect(await paramOf({ messages: [asked, repeated] })).toBe(200)
  })

  it('thoughts of an earlier answer that the engine does not read are listed', async () => {
    const thought = { content: 'a', reasoning_content: 'b' }
    const body = {
      ...hello,
      messages: [
        { role: 'user', ...thought },
        { role: 'assistant', ...thought, reasoning: 'b' },
        { role: 'user', content: 'a' },
      ],
    }
    const ignoredBy = async (fields: readonly string[]): Promise<string | null> => {
      await using served = await serve({ fields })
      const { status, headers } = await post(`${served.url}${chatPath}`, body)
      expect(status).toBe(200)
      return headers.get('x-tutti-ignored-fields')
    }
    const ofUser = 'messages[0].reasoning_content'
    expect(await ignoredBy([])).toBe(
      `${ofUser}, messages[1].reasoning_content, messages[1].reasoning`,
    )
    const fields = ['messages.reasoning_content', 'messages.reasoning']
    expect(await ignoredBy(fields)).toBe(ofUser)
  })

  it('names of participants that the engine does not read are listed', async () => {
    const named = (role: string) => ({ role, content: 'a', name: 'ann' })
    const tool = { ...named('tool'), tool_call_id: 'c1' }
    const body = { messages: [named('system'), named('user'), named('assistant'), tool] }
    const answerOf = async (options: Parameters<typeof serve>[0]): Promise<Reply> => {
      await using served = await serve(options)
      return await post(`${served.url}${chatPath}`, body)
    }
    const unread = await answerOf({ fields: [] })
    expect(unread.headers.get('x-tutti-ignored-fields')).toBe(
      'messages[0].name, messages[1].name, messages[2].name',
    )
    const { status, headers } = await answerOf({ fields: ['messages.name'] })
    expect([status, headers.get('x-tutti-ignored-fields')]).toEqual([200, null])
    const strict = await answerOf({ fields: [], limits: { isStrict: true } })
    expect(strict.status).toBe(400)
    expect(strict.json.error).toMatchObject({
      param: 'messages[0].name',
      code: 'unknown_parameter',
    })
  })

  it('fields within calls, the choice of a tool and the format are listed as ignored', async () => {
    await using served = await serve()
    const called = { id: 'c1', index: 0, type: 'function' }
    const schema = { type: 'object' }
    const body = {
      messages: [
        ...hello.messages,
        {
          role: 'assistant',
          tool_calls: [{ ...called, function: { name: 'f', arguments: '{}', mine: 1 } }],
        },
        { role: 'tool', tool_call_id: 'c1', content: 'ok' },
      ],
      tools: [{ type: 'function', function: { name: 'f' } }],
      tool_choice: { type: 'function', function: { name: 'f', mine: 1 }, mine: 2 },
      response_format: {
        type: 'json_schema',
        json_schema: { name: 'a', schema, strict: true, description: 'b', mine: 1 },
        mine: 2,
      },
    }
    const { status, headers } = await post(`${served.url}${chatPath}`, body)
    expect(status).toBe(200)
    expect(headers.get('x-tutti-ignored-fields')?.split(', ')).toEqual([
      'messages[1].tool_calls[0].index',
      'messages[1].tool_calls[0].function.mine',
      'tool_choice.mine',
      'tool_choice.function.mine',
      'response_format.mine',
      'response_format.json_schema.description',
      'response_format.json_schema.mine',
      // A forced call leaves it unused.
      'response_format',
    ])
  })

  it.each([
    [{ type: 'text', schema: {} }, 'response_format.schema'],
    [{ type: 'json_object', json_schema: { schema: {} } }, 'response_format.json_schema'],
    [{ type: 'json_schema', json_schema: { schema: {} }, schema: {} }, 'response_format.schema'],
  ])('a schema that the type does not read gets 400: %j', async (format, param) => {
    await using served = await serve()
    const body = { ...hello, response_format: format }
    const { status, json } = await post(`${served.url}${chatPath}`, body)
    expect([status, json.error.param, json.error.code]).toEqual([400, param, 'invalid_value'])
  })

  it('a form of the whole answer cannot be had beside a forced call', async () => {
    const fields = ['guided_choice', 'structured_outputs']
    await using served = await serve({ fields })
    const tools = [{ type: 'function', function: { name: 'f' } }]
    const ask = (more: object) => post(`${served.url}${chatPath}`, { ...hello, tools, ...more })
    const named = { type: 'function', function: { name: 'f' } }
    const guided = { guided_choice: ['a'] }
    for (const [more, param] of [
      [{ ...guided, tool_choice: 'required' }, 'guided_choice'],
      [{ ...guided, tool_choice: named }, 'guided_choice'],
      [{ structured_outputs: { json_object: true }, tool_choice: named }, 'structured_outputs'],
    ] as const) {
      const { status, json } = await ask(more)
      expect([status, json.error?.param]).toEqual([400, param])
    }
    expect((await ask({ ...guided, tool_choice: 'auto' })).status).toBe(200)
    await using strict = await serve({ limits: { isStrict: true } })
    const forced = { tools, tool_choice: named, response_format: { type: 'json_object' } }
    const { json } = await post(`${strict.url}${chatPath}`, { ...hello, ...forced })
    expect(json.error).toMatchObject({ code: 'unknown_parameter', param: 'response_format' })
  })

  it('an answer can be continued only if the last message is a text of the assistant', async () => {
    await using served = await serve({
      fields: ['continue_final_message', 'add_generation_prompt'],
    })
    const started = [...hello.messages, { role: 'assistant', content: 'Once' }]
    const calls = [{ id: '1', function: { name: 'add', arguments: '{}' } }]
    const continued = { ...hello, messages: started, continue_final_message: true }
    const rows: readonly (readonly [object, string])[] = [
      [{ ...continued, messages: hello.messages }, 'continue_final_message'],
      [
        { ...continued, messages: [{ role: 'assistant', content: 'a', tool_calls: calls }] },
        'continue_final_message',
      ],
      [{ ...continued, messages: [{ role: 'assistant', content: '' }] }, 'continue_final_message'],
      [{ ...continued, response_format: { type: 'json_object' } }, 'continue_final_message'],
      [{ ...continued, add_generation_prompt: true }, 'continue_final_message'],
      [{ ...hello, add_generation_prompt: false }, 'add_generation_prompt'],
    ]
    for (const [body, param] of rows) {
      const { status, json } = await post(`${served.url}${chatPath}`, body)
      expect([status, json.error.code, json.error.param]).toEqual([400, 'invalid_value', param])
    }
    for (const more of [{}, { add_generation_prompt: false }]) {
      const { status } = await post(`${served.url}${chatPath}`, { ...continued, ...more })
      expect(status).toBe(200)
    }
    const inputs = served.generator.requests.map(({ input }) => input)
    const messages = [hello.messages[0], { role: 'assistant', content: 'Once' }]
    const input = { kind: 'chat', messages, continuesFinalMessage: true }
    expect(inputs).toEqual([input, input])
  })

  it('repeat_penalty is the same as repetition_penalty', async () => {
    await using served = await serve()
    const ask = (more: object) => post(`${served.url}${chatPath}`, { ...hello, ...more })
    await ask({ repeat_penalty: 1 })
    expect(served.generator.requests[0]?.sampling.repetitionPenalty).toBe(1)
    await ask({ repeat_penalty: 1.2, repetition_penalty: 1.2 })
    expect(served.generator.requests[1]?.sampling.repetitionPenalty).toBe(1.2)
    const { json } = await ask({ repeat_penalty: 1.2, repetition_penalty: 1.3 })
    expect(json.error).toMatchObject({ code: 'invalid_value', param: 'repeat_penalty' })
  })

  it('POST /tokenize: no field is ignored silently', async () => {
    await using served = await serve()
    const ask = (more: object) => post(`${served.url}/tokenize`, { prompt: 'a', ...more })
    const changing = {
      with_pieces: true,
      add_special: true,
      parse_special: true,
      return_token_strs: true,
      add_special_tokens: true,
      messages: hello.messages,
      chat_template: 'x',
    }
    for (const [name, value] of Object.entries(changing)) {
      const { status, json } = await ask({ [name]: value })
      const { param, code } = json.error
      expect([name, status, param, code]).toEqual([name, 400, name, 'unsupported_parameter'])
    }
    const neutral = await ask({ with_pieces: false, add_special: false, return_token_strs: null })
    expect([neutral.status, neutral.headers.has('x-tutti-ignored-fields')]).toEqual([200, false])
    const unknown = await ask({ mine: 1 })
    expect(unknown.headers.get('x-tutti-ignored-fields')).toBe('mine')
  })

  it('POST /tokenize of an engine that passes requests on takes the text alone', async () => {
    const { endpoint } = await openPassing()
    const ask = (more: object) => post(`${endpoint}/tokenize`, { prompt: 'a', ...more })
    // The server behind adds special tokens unless the request prevents it.
    const { status, json } = await ask({ add_special_tokens: false })
    expect([status, json.error?.param]).toEqual([400, 'add_special_tokens'])
    expect(json.error.message).toContain("'/tokenize' is among the paths that are passed on")
    expect((await ask({ mine: 1 })).headers.get('x-tutti-ignored-fields')).toBe('mine')
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
      client: 'address 127.0.0.1',
      spanAttributes: { 'http.route': '/v1/chat/completions' },
      onUsed: expect.any(Function),
    })
  })

  it('a completion request: null or missing fields keep the configured values', async () => {
    await using served = await serve()
    await post(`${served.url}/v1/completions`, { prompt: 'a', temperature: null })
    expect(served.generator.requests[0]?.sampling).toEqual({ maxTokens: 100, logprobs: null })
  })
})
