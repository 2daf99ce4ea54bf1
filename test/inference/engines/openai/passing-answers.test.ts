import { once } from 'node:events'
import { Agent, type IncomingMessage, request as httpRequest } from 'node:http'
import { describe, expect, it, onTestFinished } from 'vitest'
import { InferenceBackend } from '../../../../src/inference/inference-backend.ts'
import { post, type Reply } from '../../server/served.ts'
import { cut, ends, hang, refuse, says, sendJson, stream, used } from './fixtures/openai-server.ts'
import {
  llamaContextRefusal,
  llamaReasoningStream,
  llamaTimings,
  vllmLogprobStream,
  vllmRefusal,
  vllmToolStream,
  vllmWhole,
} from './fixtures/server-shapes.ts'
import { asked, openBefore, openPassing } from './open-passing.ts'

const deltasOf = (chunks: readonly Reply['json'][]): Reply['json'][] =>
  chunks.flatMap(({ choices }) => (choices[0] === undefined ? [] : [choices[0].delta]))

const streaming = { stream: true, stream_options: { include_usage: true } }

describe('what the server behind the engine answers reaches the client whole', () => {
  it('vLLM: reasoning, tool calls piece by piece, the stop reason and cached tokens', async () => {
    const { upstream, chatStream, chat } = await openPassing()
    upstream.plan(stream(...vllmToolStream), stream(...vllmToolStream))
    const chunks = await chatStream({ ...asked, ...streaming })
    expect(deltasOf(chunks)).toEqual([
      { role: 'assistant', content: '', refusal: null },
      { reasoning_content: 'The user wants ' },
      { reasoning_content: 'the weather.' },
      {
        tool_calls: [
          {
            index: 0,
            id: 'chatcmpl-tool-1',
            type: 'function',
            function: { name: 'get_weather', arguments: '' },
          },
        ],
      },
      { tool_calls: [{ index: 0, function: { arguments: '{"city": ' } }] },
      { tool_calls: [{ index: 0, function: { arguments: '"Paris"}' } }] },
      {},
    ])
    expect(chunks.at(-2).choices[0]).toMatchObject({
      finish_reason: 'tool_calls',
      stop_reason: 128_008,
    })
    const usage = {
      prompt_tokens: 40,
      completion_tokens: 12,
      total_tokens: 52,
      prompt_tokens_details: { cached_tokens: 32 },
    }
    expect(chunks.at(-1)).toMatchObject({ choices: [], usage })
    const { json } = await chat(asked)
    expect(json.choices).toEqual([
      {
        index: 0,
        message: {
          role: 'assistant',
          content: null,
          refusal: null,
          reasoning_content: 'The user wants the weather.',
          tool_calls: [
            {
              id: 'chatcmpl-tool-1',
              type: 'function',
              function: { name: 'get_weather', arguments: '{"city": "Paris"}' },
            },
          ],
        },
        logprobs: null,
        finish_reason: 'tool_calls',
        stop_reason: 128_008,
      },
    ])
    expect(json.usage).toEqual(usage)
  })

  it('vLLM: log probabilities and token ids as they are', async () => {
    const { upstream, chatStream, chat } = await openPassing()
    upstream.plan(stream(...vllmLogprobStream), stream(...vllmLogprobStream))
    const wanted = { ...asked, logprobs: true, top_logprobs: 1, return_token_ids: true }
    const chunks = await chatStream({ ...wanted, ...streaming })
    const told = vllmLogprobStream.slice(1, 3) as Reply['json'][]
    expect(chunks.slice(1, 3).map(({ choices }) => choices[0].logprobs)).toEqual(
      told.map(({ choices }) => choices[0].logprobs),
    )
    expect(chunks[2].choices[0].token_ids).toEqual([8])
    const { json } = await chat(wanted)
    expect(json.choices[0]).toMatchObject({ token_ids: [7, 8], stop_reason: 'END' })
    expect(json.choices[0].logprobs.content).toEqual(
      told.map(({ choices }) => choices[0].logprobs.content[0]),
    )
  })

  it('vLLM: what it answers only without a stream is asked for without one', async () => {
    const { upstream, chat } = await openPassing()
    upstream.plan((response) => sendJson(response, 200, vllmWhole))
    const { status, json } = await chat({ ...asked, prompt_logprobs: 1 })
    expect([status, json.choices[0].message.content]).toEqual([200, 'Hi'])
    expect(json).toMatchObject({
      prompt_logprobs: [null, { 791: { logprob: -3.5 } }],
      usage: { prompt_tokens_details: { cached_tokens: 32 } },
    })
    expect(upstream.generations[0]?.body).toMatchObject({ stream: false, prompt_logprobs: 1 })
  })

  it('llama-server: reasoning, its fingerprint and its timings', async () => {
    const { upstream, chatStream, chat } = await openPassing()
    upstream.plan(stream(...llamaReasoningStream), stream(...llamaReasoningStream))
    const chunks = await chatStream({ ...asked, ...streaming })
    expect(deltasOf(chunks)).toEqual([
      { role: 'assistant', content: '', refusal: null },
      { reasoning_content: 'Two and ' },
      { reasoning_content: 'two.' },
      { content: 'Four' },
      { content: '.' },
      {},
    ])
    expect(chunks[1].system_fingerprint).toBe('b6123-79c1160b')
    expect(chunks.at(-2).timings).toEqual(llamaTimings)
    const { json } = await chat(asked)
    expect(json).toMatchObject({ system_fingerprint: 'b6123-79c1160b', timings: llamaTimings })
    expect(json.choices[0].message).toEqual({
      role: 'assistant',
      content: 'Four.',
      refusal: null,
      reasoning_content: 'Two and two.',
    })
  })

  it('refusals, annotations and fields that nobody knows yet', async () => {
    const { upstream, chat, chatStream } = await openPassing()
    const link = { type: 'url_citation', url_citation: { url: 'http://a.example', title: 'A' } }
    const one = { delta: { refusal: 'I ' } }
    const two = { delta: { refusal: 'cannot.', annotations: [link], later: { a: 1 } } }
    const answer = stream(
      ...[one, two].map((choice) => ({ choices: [{ index: 0, ...choice }], provider: 'x' })),
      ends(),
      used(1, 2),
    )
    upstream.plan(answer, answer)
    const { json } = await chat(asked)
    expect(json.choices[0].message).toEqual({
      role: 'assistant',
      content: '',
      refusal: 'I cannot.',
      annotations: [link],
      later: { a: 1 },
    })
    expect(json.provider).toBe('x')
    expect(deltasOf(await chatStream({ ...asked, stream: true }))).toMatchObject([
      { role: 'assistant' },
      { refusal: 'I ' },
      { refusal: 'cannot.', annotations: [link], later: { a: 1 } },
      {},
    ])
  })

  it('several choices: the cached tokens of a prompt count once', async () => {
    const { upstream, chat } = await openPassing()
    const usage = {
      prompt_tokens: 5,
      completion_tokens: 2,
      prompt_tokens_details: { cached_tokens: 4 },
      completion_tokens_details: { reasoning_tokens: 1 },
    }
    const answer = stream(says('a'), ends(), { choices: [], usage })
    upstream.plan(answer, answer)
    expect((await chat({ ...asked, n: 2 })).json.usage).toEqual({
      prompt_tokens: 5,
      completion_tokens: 4,
      total_tokens: 9,
      prompt_tokens_details: { cached_tokens: 4 },
      completion_tokens_details: { reasoning_tokens: 2 },
    })
  })
})

describe('errors of the server behind the engine', () => {
  it('a refusal reaches the client with its words, its param and its status', async () => {
    const { upstream, chat } = await openPassing()
    upstream.plan(refuse(400, vllmRefusal), refuse(400, llamaContextRefusal))
    expect(await chat({ ...asked, temperature: -1 })).toMatchObject({
      status: 400,
      json: {
        error: {
          message: 'temperature must be non-negative, got -1.0.',
          type: 'invalid_request_error',
          param: 'temperature',
          code: null,
        },
      },
    })
    expect(await chat(asked)).toMatchObject({
      status: 400,
      json: {
        error: {
          message:
            'the request exceeds the available context size. try increasing the context size',
          code: 'context_length_exceeded',
        },
      },
    })
    const body = { error: { message: 'Bad tool.', param: 'tools[0]', code: 'invalid_value' } }
    upstream.plan(refuse(422, body))
    expect(await chat(asked)).toMatchObject({
      status: 422,
      json: { error: { message: 'Bad tool.', param: 'tools[0]', code: 'invalid_value' } },
    })
  })

  it('a server that stays busy: the client gets its time and its words', async () => {
    const { upstream, chat } = await openPassing()
    const busy = { error: { message: 'slow down', type: 'requests', code: 'rate_limit' } }
    const now = { 'retry-after': '0' }
    upstream.plan(
      refuse(429, {}, now),
      refuse(429, {}, now),
      refuse(429, busy, { 'retry-after': '7' }),
    )
    const { status, json, headers } = await chat(asked)
    expect([status, headers.get('retry-after')]).toEqual([429, '7'])
    const { message, code } = json.error
    expect([message, code]).toEqual(['slow down', 'rate_limit'])
  })

  it('a server that cuts every connection is asked twice', async () => {
    const { upstream, chat } = await openPassing()
    upstream.plan(cut(), cut(), cut())
    expect((await chat(asked)).status).toBe(500)
    expect(upstream.generations).toHaveLength(2)
  })

  it('a failure of the server that has another status keeps its words to the log', async () => {
    const logged: string[] = []
    const log = { warn: (_: string, text: string) => logged.push(text) }
    const { upstream, chat } = await openPassing({}, {}, { log })
    for (const answered of [502, 401, 404]) {
      upstream.plan(refuse(answered, { error: { message: 'CUDA error at /srv/a.cu' } }))
      const { status, text, json } = await chat(asked)
      expect([status, json.error.code]).toEqual([502, 'upstream_error'])
      expect(json.error.message).toMatch(`the server behind this one answered ${answered}. Request`)
      expect(text).not.toContain('CUDA')
      expect(logged.pop()).toContain('CUDA error')
    }
  })

  it('the connection is used again after a stream that ended with an error', async () => {
    const { upstream, chat } = await openPassing({ engine: { max_concurrency: 1 } })
    const failure = { error: { message: 'out of blocks', type: 'x', param: null, code: 400 } }
    const fails = stream(says('a'), failure)
    upstream.plan(fails, fails, fails)
    for (let at = 0; at < 3; at++) {
      const { json } = await chat(asked)
      expect(json.error).toMatchObject({ message: 'out of blocks' })
    }
    expect((await chat(asked)).status).toBe(200)
    const ports = new Set(upstream.generations.map(({ port }) => port))
    expect([upstream.generations.length, ports.size]).toEqual([4, 1])
  })

  it('our own server keeps the connection after a stream that ended with an error', async () => {
    const { upstream, endpoint } = await openPassing()
    const failure = { error: { message: 'no more', type: 'x', param: null, code: 400 } }
    upstream.plan(stream(says('a'), failure), stream(says('a'), failure))
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    onTestFinished(() => agent.destroy())
    const isReused: boolean[] = []
    for (let at = 0; at < 3; at++) {
      const request = httpRequest(`${endpoint}/v1/chat/completions`, {
        agent,
        method: 'POST',
        headers: { 'content-type': 'application/json' },
      })
      request.end(JSON.stringify({ ...asked, stream: true }))
      const [response] = (await once(request, 'response')) as [IncomingMessage]
      const text = (await response.toArray()).join('')
      expect(text.includes('no more')).toBe(at < 2)
      isReused.push(request.reusedSocket)
    }
    expect(isReused).toEqual([false, true, true])
  })
})

describe('output rules and what is passed on', () => {
  const rule = { id: 'word', keywords: ['swordfish'], stage: 'output' }
  const rejecting = { guardrails: { toggle_on: true, rules: [rule] } }
  const redacting = { guardrails: { toggle_on: true, rules: [{ ...rule, action: 'redact' }] } }
  const piece = (delta: object): object => ({ choices: [{ index: 0, delta }] })

  it('reasoning that a rule rejects ends the answer', async () => {
    const { upstream, chatStream, chat } = await openPassing(rejecting)
    const parts = [piece({ reasoning_content: 'the sword' }), piece({ reasoning_content: 'fish' })]
    const answer = stream(...parts, says('ok'), ends(), used(1, 2))
    upstream.plan(answer, answer)
    const chunks = await chatStream({ ...asked, stream: true })
    expect(JSON.stringify(chunks)).not.toContain('fish')
    expect(chunks.at(-1).choices[0].finish_reason).toBe('content_filter')
    const { json } = await chat(asked)
    expect(json.choices[0].finish_reason).toBe('content_filter')
    expect(JSON.stringify(json)).not.toContain('fish')
  })

  it('arguments in pieces are passed on only when they are complete and judged', async () => {
    const { upstream, chatStream } = await openPassing(redacting)
    const call = (index: number, fields: object): object =>
      piece({ tool_calls: [{ index, ...fields }] })
    upstream.plan(
      stream(
        piece({ reasoning_content: 'swordfish' }),
        call(0, { id: 'c', type: 'function', function: { name: 'f', arguments: '{"a":"sword' } }),
        call(0, { function: { arguments: 'fish"}' } }),
        ends('tool_calls'),
        used(1, 1),
      ),
    )
    const deltas = deltasOf(await chatStream({ ...asked, stream: true }))
    const calls = deltas.flatMap(({ tool_calls: all = [] }) => all)
    expect(calls).toEqual([
      {
        index: 0,
        id: 'c',
        type: 'function',
        function: { name: 'f', arguments: '{"a":"[redacted:word]"}' },
      },
    ])
    expect(deltas.map(({ reasoning_content: text = '' }) => text).join('')).toBe('[redacted:word]')
  })

  it('log probabilities and other fields, which would reveal the text, are left out', async () => {
    const { upstream, chat } = await openPassing(redacting)
    upstream.plan(stream(...vllmLogprobStream))
    const { json } = await chat({ ...asked, logprobs: true })
    expect(json.choices[0]).toEqual({
      index: 0,
      message: { role: 'assistant', content: 'Hi!', refusal: null },
      logprobs: { content: [], refusal: null },
      finish_reason: 'stop',
    })
  })

  it('a client that leaves ends the request at the server behind the engine', async () => {
    const { upstream, endpoint } = await openPassing()
    upstream.plan(hang(says('a')))
    const leaving = new AbortController()
    const response = await fetch(`${endpoint}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ ...asked, stream: true }),
      signal: leaving.signal,
    })
    await response.body?.getReader().read()
    leaving.abort()
    await upstream.left
  })
})

describe('our own server behind our own server', () => {
  it('a tutti server behind a tutti server answers as if it were asked directly', async () => {
    await using last = await InferenceBackend.fromConfig(
      { required: { model_name: 'tiny' }, engine: { kind: 'echo' } },
      { port: 0 },
    )
    const endpoint = await openBefore(`${last.endpoint}/v1`)
    const tools = [{ type: 'function', function: { name: 'f', parameters: { type: 'object' } } }]
    const bodies = [
      asked,
      { ...asked, logprobs: true, top_logprobs: 2 },
      { ...asked, tools, tool_choice: 'required' },
      { ...asked, logit_bias: { 1: 1 } },
      { ...asked, max_tokens: 0 },
      { ...asked, temperature: 9 },
      { ...asked, messages: [{ role: 'user', content: [{ type: 'image_url' }] }] },
    ]
    for (const body of bodies) {
      const [direct, passed] = await Promise.all(
        [last.endpoint, endpoint].map((origin) => post(`${origin}/v1/chat/completions`, body)),
      )
      expect(passed?.status).toBe(direct?.status)
      expect(withoutIds(passed?.json)).toEqual(withoutIds(direct?.json))
    }
  })
})

/** Without what differs between two answers anyway. */
const withoutIds = (json: unknown): unknown =>
  JSON.parse(
    JSON.stringify(json, (name, value: unknown) =>
      ['id', 'created'].includes(name) ? undefined : value,
    ),
  )
