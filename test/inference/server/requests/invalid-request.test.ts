import { describe, expect, it } from 'vitest'
import { hello, post, serve } from '../served.ts'

const chatPath = '/v1/chat/completions'
const textPath = '/v1/completions'
const fields = [
  'guided_choice',
  'guided_regex',
  'structured_outputs',
  'reasoning_effort',
  'chat_template_kwargs',
]

const isStrict = true
const strictReason = 'It has no effect, and the server refuses such fields (server.strict).'

describe('the message of a field that is refused tells what helps:', () => {
  it.each([
    ['regex', 'a+', 'guided_regex'],
    ['think', true, 'reasoning_effort'],
  ])('%s has another name with this engine', async (name, value, other) => {
    await using served = await serve({ fields })
    const { status, json } = await post(served.url + chatPath, { ...hello, [name]: value })
    expect([status, json.error.code, json.error.param]).toEqual([
      400,
      'unsupported_parameter',
      name,
    ])
    expect(json.error.message).toBe(
      `Unsupported parameter: '${name}' is not supported by the engine of this model. ` +
        `Use '${other}' instead.`,
    )
  })

  it('the name that the path takes is told', async () => {
    await using served = await serve()
    const { json } = await post(served.url + textPath, { prompt: 'a', n_probs: 2 })
    expect(json.error.message).toContain("Use 'logprobs' instead.")
  })

  it.each([
    ['/generate', { prompts: ['a'], guided_choice: ['a'] }, `${chatPath} or ${textPath}`],
    ['/generate', { prompts: ['a'], tools: [{}] }, chatPath],
    [textPath, { prompt: 'a', chat_template_kwargs: { a: 1 } }, chatPath],
    [chatPath, { ...hello, echo: true }, textPath],
  ])('%s %j is supported by another path', async (path, body, others) => {
    await using served = await serve({ fields })
    const { status, json } = await post(served.url + path, body)
    const { param, code, message } = json.error
    expect([status, code]).toEqual([400, 'unsupported_parameter'])
    expect(message).toBe(
      `Unsupported parameter: '${param}' is not supported by this path. Send it to ${others}.`,
    )
  })

  it('a field that the engine does not support on any path is not sent elsewhere', async () => {
    await using served = await serve()
    const body = { prompts: ['a'], guided_choice: ['a'] }
    const { json } = await post(`${served.url}/generate`, body)
    expect(json.error.message).toContain('is not supported by the engine of this model')
  })

  it('structured_outputs without a known key is refused instead of ignored', async () => {
    await using served = await serve({ fields })
    const send = async (given: object) =>
      await post(served.url + chatPath, { ...hello, structured_outputs: given })
    const { status, json } = await send({ choices: ['a'] })
    expect([status, json.error]).toEqual([
      400,
      {
        message:
          "Unrecognized request argument supplied: 'structured_outputs.choices'. " +
          "Did you mean 'choice'? 'structured_outputs' takes one of " +
          'json, regex, choice, grammar, json_object.',
        type: 'invalid_request_error',
        param: 'structured_outputs.choices',
        code: 'unknown_parameter',
      },
    ])
    const known = await send({ choice: ['a'], odd: 1 })
    expect(known.headers.get('x-tutti-ignored-fields')).toBe('structured_outputs.odd')
    expect((await send({})).status).toBe(200)
  })

  it.each([
    [{ temperatur: 0 }, 'temperatur', " Did you mean 'temperature'?"],
    [{ maxTokens: 5 }, 'maxTokens', " Did you mean 'max_tokens'?"],
    [{ metadata: {} }, 'metadata', ''],
    [
      { stream: true, stream_options: { include_usag: true } },
      'stream_options.include_usag',
      " Did you mean 'include_usage'?",
    ],
  ])('a strict server tells the nearest name and why: %j', async (body, param, hint) => {
    await using served = await serve({ limits: { isStrict } })
    const { status, json } = await post(served.url + chatPath, { ...hello, ...body })
    expect([status, json.error.code, json.error.param]).toEqual([400, 'unknown_parameter', param])
    expect(json.error.message).toBe(
      `Unrecognized request argument supplied: '${param}'.${hint} ${strictReason}`,
    )
  })
})

it('how much to reason is ignored by a model without a choice, on every surface', async () => {
  await using served = await serve()
  await using strict = await serve({ limits: { isStrict } })
  const chat = { ...hello, reasoning_effort: 'low' }
  const messages = { ...hello, max_tokens: 5, thinking: { type: 'enabled', budget_tokens: 1024 } }
  for (const [path, body, ignored] of [
    [chatPath, chat, 'reasoning_effort'],
    ['/v1/responses', { input: 'hi', reasoning: { effort: 'low' } }, 'reasoning_effort'],
    ['/v1/messages', messages, null],
    ['/api/chat', { ...hello, think: true }, null],
  ] as const) {
    const { status, headers } = await post(served.url + path, body)
    expect([path, status, headers.get('x-tutti-ignored-fields')]).toEqual([path, 200, ignored])
  }
  const { json } = await post(strict.url + chatPath, chat)
  expect(json.error).toMatchObject({ param: 'reasoning_effort', code: 'unknown_parameter' })
})

it('GET /openapi.json describes only fields that are not refused', async () => {
  const names = async (options: Parameters<typeof serve>[0]): Promise<ReadonlySet<string>> => {
    await using served = await serve(options)
    const response = await fetch(`${served.url}/openapi.json`)
    const { components } = (await response.json()) as Described
    return new Set(Object.keys(components.schemas.ChatCompletionRequest.properties))
  }
  const described = ['guided_choice', 'guided_json', 'user', 'temperature']
  const [some, none] = [await names({ fields }), await names({ limits: { isStrict } })]
  expect(described.filter((name) => some.has(name))).toEqual([
    'guided_choice',
    'user',
    'temperature',
  ])
  expect(described.filter((name) => none.has(name))).toEqual(['temperature'])
})

interface Described {
  readonly components: {
    readonly schemas: { readonly ChatCompletionRequest: { readonly properties: object } }
  }
}
