import { describe, expect, it } from 'vitest'
import { inferenceError } from '../../../../src/inference/generation/inference-errors.ts'
import { surfaces } from '../../../../src/inference/server/surfaces/surfaces.ts'
import { FakeGenerator, type Script } from '../fake-generator.ts'
import { post, serve } from '../served.ts'
import { type Reading, type Scenario, surfaceClients, toParts } from './surface-clients.ts'

const schema = {
  type: 'object',
  properties: { city: { type: 'string' } },
  required: ['city'],
  additionalProperties: false,
}
const tool = { name: 'weather', description: 'tells the weather', schema }
const call = { id: 'call_1', name: 'weather', arguments: '{"city":"Paris"}' }
const question = { role: 'user', text: 'How is the weather?' } as const

const scenarios: Readonly<Record<string, Scenario>> = {
  'a prompt alone': { turns: [question] },
  'a conversation with sampling': {
    system: 'Be brief.',
    turns: [
      { role: 'user', text: 'Hello' },
      { role: 'assistant', text: 'Hi.', reasoning: 'They greet.' },
      question,
    ],
    maxTokens: 17,
    temperature: 0.25,
    topP: 0.75,
    stop: ['END', 'STOP'],
  },
  'a tool that may be called': { turns: [question], tool, toolChoice: 'auto' },
  'a call that is required': { turns: [question], tool, toolChoice: 'required' },
  'a named tool': { turns: [question], tool, toolChoice: { name: 'weather' } },
  'the result of a call': {
    turns: [
      question,
      { role: 'assistant', text: '', calls: [call] },
      { role: 'tool', text: 'sunny', callId: 'call_1' },
    ],
    tool,
  },
  'JSON that fits a schema': { turns: [question], schema },
}

const usage = { promptTokens: 3, completionTokens: 2 }

/** The deltas of each answer, and what every client must read. */
const answers: Readonly<Record<string, { script: Script; reading: Reading }>> = {
  'text in pieces': {
    async script(_, tell) {
      for (const text of ['It is ', 'sunny', '.']) await tell.delta?.({ text })
      return { text: 'It is sunny.', usage }
    },
    reading: { text: 'It is sunny.', reasoning: '', calls: [], finish: 'stop', tokens: [3, 2] },
  },
  'text that is cut': {
    async script(_, tell) {
      await tell.delta?.({ text: 'It' })
      return { text: 'It', usage, finishReason: 'length' }
    },
    reading: { text: 'It', reasoning: '', calls: [], finish: 'length', tokens: [3, 2] },
  },
  'text without deltas': {
    script: () => ({ text: 'It is sunny.', usage }),
    reading: { text: 'It is sunny.', reasoning: '', calls: [], finish: 'stop', tokens: [3, 2] },
  },
  'reasoning before text': {
    async script(_, tell) {
      const message = { reasoning_content: 'Look outside.' }
      await tell.delta?.({ text: '', fields: { message } })
      await tell.delta?.({ text: 'Sunny.' })
      return { text: 'Sunny.', usage, fields: { message } }
    },
    reading: {
      text: 'Sunny.',
      reasoning: 'Look outside.',
      calls: [],
      finish: 'stop',
      tokens: [3, 2],
    },
  },
  'text and two calls': {
    async script(_, tell) {
      await tell.delta?.({ text: 'Let me look.' })
      await tell.delta?.({ text: '', toolCalls: [call] })
      await tell.delta?.({ text: '', toolCalls: [{ ...call, id: 'call_2' }] })
      const toolCalls = [call, { ...call, id: 'call_2' }]
      return { text: 'Let me look.', toolCalls, usage, finishReason: 'tool_calls' }
    },
    reading: {
      text: 'Let me look.',
      reasoning: '',
      calls: [call, { ...call, id: 'call_2' }],
      finish: 'tool_calls',
      tokens: [3, 2],
    },
  },
}

it('every surface that takes a conversation is in this test', () => {
  const paths = new Set(Object.values(surfaceClients).map(({ path }) => path))
  const others = surfaces.filter(({ path }) => !paths.has(path)).map(({ path }) => path)
  expect(others).toEqual(['/v1/completions', '/api/generate'])
})

describe.each(Object.entries(surfaceClients))('surface %s', (_, client) => {
  it.each(Object.entries(scenarios))('surface: %s means the same to the model', async (__, one) => {
    await using served = await serve({ fields: ['messages.reasoning_content'] })
    const { generator, url } = served
    await post(`${url}/v1/chat/completions`, surfaceClients['chat']?.toBody(one))
    for (const fields of [{ stream: false }, client.streamFields]) {
      const { status, text } = await post(url + client.path, { ...client.toBody(one), ...fields })
      expect([status, text]).toEqual([200, expect.any(String)])
    }
    const [expected, ...given] = generator.requests.map(
      ({ signal: ___, onUsed: ____, spanAttributes: _____, ...rest }) => rest,
    )
    expect(given).toEqual([expected, expected])
  })

  it.each(Object.entries(answers))('surface: a client reads %s', async (__, answer) => {
    await using served = await serve({ generator: new FakeGenerator(answer.script) })
    const body = client.toBody({ turns: [question], tool })
    const whole = await post(served.url + client.path, { ...body, stream: false })
    expect(client.readWhole(whole.json)).toEqual(answer.reading)
    const streamed = await post(served.url + client.path, { ...body, ...client.streamFields })
    expect(client.readStream(toParts(streamed.text))).toEqual(answer.reading)
  })

  it('surface: a last message of the assistant is continued where the API says so', async () => {
    const started = { turns: [question, { role: 'assistant', text: 'It is' } as const] }
    const continued: unknown[] = []
    for (const fields of [['continue_final_message', 'add_generation_prompt'], []]) {
      await using served = await serve({ fields })
      const { status } = await post(served.url + client.path, client.toBody(started))
      const input = served.generator.requests[0]?.input
      continued.push(status, input?.kind === 'chat' && input.continuesFinalMessage)
    }
    const continues = ['/v1/messages', '/api/chat'].includes(client.path) ? true : undefined
    expect(continued).toEqual([200, continues, 200, undefined])
  })

  it('surface: errors have the form that its clients read', async () => {
    await using served = await serve({ apiKey: 'sk-test' })
    const url = served.url + client.path
    const authorization = 'Bearer sk-test'
    const body = client.toBody({ turns: [question] })
    const hot = client.toBody({ turns: [question], temperature: 9 })
    for (const [sent, headers, status, message] of [
      [body, {}, 401, /key/],
      [body, { authorization, origin: 'https://evil.example' }, 403, /Origin/],
      [hot, { authorization }, 400, /'.*temperature'.*maximum/],
      [{ ...body, model: 'other' }, { authorization }, 404, /'other'/],
      ['{', { authorization }, 400, /JSON/],
    ] as const) {
      const reply = await post(url, sent, headers)
      expect([reply.status, client.readError(reply.json)]).toEqual([
        status,
        expect.stringMatching(message),
      ])
    }
  })

  it('surface: an error in a stream follows what was sent', async () => {
    const generator = new FakeGenerator(async (__, tell) => {
      await tell.delta?.({ text: 'first' })
      throw inferenceError('engine_lost', 'gone')
    })
    await using served = await serve({ generator })
    const body = client.toBody({ turns: [question] })
    const { status, text } = await post(served.url + client.path, {
      ...body,
      ...client.streamFields,
    })
    const last = toParts(text).at(-1)
    expect([status, client.readError(last)]).toEqual([200, expect.stringContaining('lost')])
    const refused = await post(served.url + client.path, { ...body, n: 2 })
    expect([refused.status, refused.text]).toEqual([
      client.path === '/v1/chat/completions' ? 503 : 400,
      expect.any(String),
    ])
  })
})
