import { describe, expect, it } from 'vitest'
import { post } from '../../server/served.ts'
import { asked, openPassing } from './open-passing.ts'

describe('what a client sends reaches the server behind the engine', () => {
  it('every field but ours goes through as it was written', async () => {
    const { upstream, chat } = await openPassing()
    const fields = {
      frequency_penalty: 0.5,
      presence_penalty: -0.5,
      logit_bias: { 50256: -100 },
      chat_template_kwargs: { enable_thinking: false },
      reasoning_effort: 'low',
      parallel_tool_calls: false,
      guided_json: { type: 'object', properties: { a: { type: 'string' } } },
      structured_outputs: { regex: '[a-z]+' },
      min_p: 0.05,
      top_k: -1,
      repetition_penalty: 1,
      temperature: 2.5,
      stop: 'END',
      response_format: { type: 'structural_tag', structures: [] },
      metadata: { a: 'b' },
      user: 'me',
      whatever_comes_next: { a: [1, null, 'x'] },
    }
    const { status, headers } = await chat({ ...asked, ...fields, priority: 2, timeout: 60, n: 1 })
    expect([status, headers.has('x-tutti-ignored-fields')]).toEqual([200, false])
    expect(upstream.generations.map(({ body }) => body)).toEqual([
      {
        ...fields,
        model: 'tiny',
        messages: asked.messages,
        max_tokens: 100,
        top_p: 0.95,
        stream: true,
        stream_options: { include_usage: true },
      },
    ])
  })

  it('defaults that not every server knows are sent only if somebody set them', async () => {
    const plain = await openPassing()
    await plain.chat(asked)
    const [sent] = plain.upstream.generations
    expect(Object.keys(sent?.body ?? {}).toSorted()).toEqual([
      'max_tokens',
      'messages',
      'model',
      'stream',
      'stream_options',
      'temperature',
      'top_p',
    ])
    const set = await openPassing({ llm: { top_k: 40, repetition_penalty: 1.2 } })
    await set.chat({ ...asked, max_completion_tokens: 7, temperature: null })
    const [body] = set.upstream.generations.map((one) => one.body)
    expect(body).toMatchObject({ top_k: 40, repetition_penalty: 1.2, temperature: 0.5 })
    expect(body).toMatchObject({ max_completion_tokens: 7 })
    expect(body).not.toHaveProperty('max_tokens')
  })

  it('messages with images, audio, roles and fields of their own arrive unchanged', async () => {
    const { upstream, chat } = await openPassing({ llm: { system_prompt: 'Be brief.' } })
    const messages = [
      { role: 'developer', content: 'Look closely.' },
      {
        role: 'user',
        content: [
          { type: 'text', text: 'What is ' },
          { type: 'image_url', image_url: { url: 'data:image/png;base64,iVBORw0KGgo=' } },
          { type: 'input_audio', input_audio: { data: 'UklGRg==', format: 'wav' } },
          { type: 'text', text: 'this?', cache_control: { type: 'ephemeral' } },
        ],
        name: 'ann',
      },
      {
        role: 'assistant',
        content: null,
        reasoning_content: 'Hm.',
        tool_calls: [
          {
            id: 'c1',
            type: 'function',
            function: { name: 'look', arguments: '{"at":1}' },
            extra_content: { google: { thought_signature: 'abc' } },
          },
        ],
      },
      { role: 'tool', tool_call_id: 'c1', content: 'a cat' },
    ]
    const tools = [
      { type: 'function', function: { name: 'look', strict: true, parameters: {} } },
      { type: 'web_search', search_context_size: 'low' },
    ]
    expect((await chat({ ...asked, messages, tools, tool_choice: 'auto' })).status).toBe(200)
    expect(upstream.generations[0]?.body).toMatchObject({ messages, tools, tool_choice: 'auto' })
    const sent = upstream.generations[0]?.body['messages'] as readonly unknown[]
    expect(sent).toHaveLength(messages.length)
  })

  it('several choices are several requests, with seeds one after the other', async () => {
    const { upstream, chat } = await openPassing()
    const { json } = await chat({ ...asked, n: 2, seed: 5, logit_bias: { 1: 2 } })
    expect(json.choices).toHaveLength(2)
    expect(upstream.generations.map(({ body }) => [body['seed'], body['logit_bias']])).toEqual([
      [5, { 1: 2 }],
      [6, { 1: 2 }],
    ])
  })

  it('text completions: token ids, echo and suffix are left to the server', async () => {
    const { upstream, endpoint } = await openPassing()
    const url = `${endpoint}/v1/completions`
    const prompt = [
      [1, 2, 3],
      [4, 5],
    ]
    const { status, json } = await post(url, { prompt, echo: true, suffix: '.', logprobs: 1 })
    expect([status, json.choices.length]).toEqual([200, 2])
    expect(upstream.generations.map(({ body }) => body)).toMatchObject([
      { prompt: [1, 2, 3], echo: true, suffix: '.', logprobs: 1 },
      { prompt: [4, 5], echo: true, suffix: '.', logprobs: 1 },
    ])
    const generated = await post(`${endpoint}/generate`, { prompts: ['a'], min_tokens: 3 })
    expect(generated.json.results).toEqual(['a'])
    expect(upstream.generations[2]?.body).toMatchObject({ min_tokens: 3 })
  })

  it.each<[string, unknown, readonly unknown[]]>([
    ['token ids and texts in one prompt', [1, 'text', 2], [[1, 'text', 2]]],
    ['several prompts of both', [[1, 'text'], 'other', [3]], [[1, 'text'], 'other', [3]]],
    ['an object', [{ prompt_string: 'text' }], [{ prompt_string: 'text' }]],
  ])('text completions: %s go through as the server reads them', async (_, prompt, prompts) => {
    const { upstream, endpoint } = await openPassing()
    const { status, json } = await post(`${endpoint}/v1/completions`, { prompt })
    expect([status, json.choices.length]).toEqual([200, prompts.length])
    expect(upstream.generations.map(({ body }) => body['prompt'])).toEqual(prompts)
  })

  it('more prompts than the queue holds are refused with the limit', async () => {
    const { upstream, endpoint } = await openPassing({ hardware: { queue_limit: 2 } })
    const ask = (body: object) => post(`${endpoint}/v1/completions`, body)
    const { status, json } = await ask({ prompt: ['a', 'b', 'c'] })
    expect([status, json.error.param, json.error.code]).toEqual([
      400,
      'prompt',
      'array_above_max_length',
    ])
    expect(json.error.message).toContain('at most 2 per request (hardware.queue_limit)')
    expect(upstream.generations).toEqual([])
    expect((await ask({ prompt: [1, 2, 3] })).status).toBe(200)
  })

  it('the begun answer of an assistant and a refusal in a history arrive unchanged', async () => {
    const { upstream, chat } = await openPassing()
    const messages = [
      { role: 'user', content: 'How?' },
      { role: 'assistant', content: [{ type: 'refusal', refusal: 'No.' }] },
      { role: 'assistant', content: null, refusal: 'No.' },
      { role: 'user', content: 'Once more.' },
      { role: 'assistant', content: 'It began' },
    ]
    expect((await chat({ ...asked, messages })).status).toBe(200)
    expect(upstream.generations[0]?.body).toMatchObject({ messages })
  })

  it('the usage of a stream is sent only if the client asks for it', async () => {
    const { upstream, chatStream } = await openPassing()
    const isUsage = ({ usage }: { usage?: unknown }): boolean => usage !== undefined
    const stream = { ...asked, stream: true }
    expect((await chatStream(stream)).filter(isUsage)).toEqual([])
    expect(upstream.generations[0]?.body).toMatchObject({ stream_options: { include_usage: true } })
    const stream_options = { include_usage: true }
    const last = (await chatStream({ ...stream, stream_options })).at(-1)
    expect(last).toMatchObject({ choices: [], usage: { total_tokens: expect.any(Number) } })
  })

  it('fields that this server reads itself are still checked', async () => {
    const { upstream, chat } = await openPassing()
    const paramOf = async (body: object): Promise<unknown> => (await chat(body)).json.error.param
    expect(await paramOf({ ...asked, messages: [] })).toBe('messages')
    expect(await paramOf({ ...asked, messages: [{ content: 'a' }] })).toBe('messages[0].role')
    expect(await paramOf({ ...asked, n: 0 })).toBe('n')
    expect(await paramOf({ ...asked, stream: 'yes' })).toBe('stream')
    expect(await paramOf({ ...asked, model: 'other' })).toBe('model')
    const options = { stream: true, stream_options: { continuous_usage_stats: true } }
    expect(await paramOf({ ...asked, ...options })).toBe('stream_options.continuous_usage_stats')
    expect(upstream.generations).toEqual([])
  })
})

describe('guardrails and what is passed on', () => {
  const rule = { id: 'secret-word', keywords: ['swordfish'], stage: 'input' }
  const guardrails = { toggle_on: true, rules: [rule] }
  const redacting = { toggle_on: true, rules: [{ ...rule, action: 'redact' }] }

  it.each<[string, object]>([
    [
      'a text part',
      { messages: [{ role: 'user', content: [{ type: 'text', text: 'swordfish' }] }] },
    ],
    [
      'a word that two parts divide',
      {
        messages: [
          {
            role: 'user',
            content: [
              { type: 'text', text: 'sword' },
              { type: 'text', text: 'fish' },
            ],
          },
        ],
      },
    ],
    [
      'the address of an image',
      {
        messages: [
          {
            role: 'user',
            content: [{ type: 'image_url', image_url: { url: 'http://a.example/swordfish' } }],
          },
        ],
      },
    ],
    [
      'reasoning of an earlier answer',
      { messages: [{ role: 'assistant', content: 'a', reasoning_content: 'a swordfish' }] },
    ],
    [
      'arguments of an earlier call',
      {
        messages: [
          {
            role: 'assistant',
            content: null,
            tool_calls: [
              { id: 'c', type: 'function', function: { name: 'f', arguments: '"swordfish"' } },
            ],
          },
        ],
      },
    ],
    ['the schema of a tool', { tools: [{ type: 'custom', format: { syntax: 'swordfish' } }] }],
    ['a field that only the server knows', { documents: [{ text: 'the swordfish' }] }],
  ])('a rule that rejects sees %s', async (_, body) => {
    const { upstream, chat } = await openPassing({ guardrails })
    const { status, json } = await chat({ ...asked, ...body })
    expect([status, json.error?.code]).toEqual([400, 'content_filter'])
    expect(upstream.generations).toEqual([])
  })

  it('a rule that redacts changes texts and leaves images alone', async () => {
    const { upstream, chat } = await openPassing({ guardrails: redacting })
    const image = { type: 'image_url', image_url: { url: 'data:image/png;base64,swordfish' } }
    const messages = [
      {
        role: 'user',
        content: [{ type: 'text', text: 'a sword' }, image, { type: 'text', text: 'fish b' }],
      },
      { role: 'assistant', content: 'c', reasoning_content: 'swordfish!' },
    ]
    const mark = '[redacted:secret-word]'
    expect((await chat({ ...asked, messages })).status).toBe(200)
    expect(upstream.generations[0]?.body['messages']).toEqual([
      { role: 'user', content: [{ type: 'text', text: `a ${mark} b` }, image] },
      { role: 'assistant', content: 'c', reasoning_content: `${mark}!` },
    ])
  })

  it('a prompt of token ids, which no rule can read, is refused', async () => {
    const { upstream, endpoint } = await openPassing({ guardrails })
    for (const prompt of [
      [1, 2],
      [1, 'swordfish'],
    ]) {
      const { status, json } = await post(`${endpoint}/v1/completions`, { prompt })
      expect([status, json.error.param]).toEqual([400, 'prompt'])
    }
    const prompt = [{ prompt_string: 'a swordfish' }]
    const { json } = await post(`${endpoint}/v1/completions`, { prompt })
    expect(json.error.code).toBe('content_filter')
    expect(upstream.generations).toEqual([])
  })
})
