import { describe, expect, it } from 'vitest'
import { FakeGenerator, type Script } from './fake-generator.ts'
import { hello, post, type Reply, serve, type Served } from './served.ts'

const chatPath = '/v1/chat/completions'

const logprobs = [
  { token: 'né', logprob: -0.1, top: [{ token: 'né', logprob: -0.1 }] },
  { token: '!', logprob: -0.5, top: [] },
]

/** Generates its seed as text, in two deltas with logprobs. */
const saysSeed: Script = async ({ sampling }, tell) => {
  await tell.delta?.({ text: 'né', logprobs: logprobs.slice(0, 1) })
  await tell.delta?.({ text: `! ${sampling.seed}`, logprobs: logprobs.slice(1) })
  return { text: `né! ${sampling.seed}`, logprobs, finishReason: 'length' }
}

async function chunksOf(served: Served, path: string, body: object): Promise<Reply['json'][]> {
  const { text } = await post(`${served.url}${path}`, { ...body, stream: true })
  const events = [...text.matchAll(/^data: (.*)$/gm)].map(([, data]) => data ?? '')
  expect(events.pop()).toBe('[DONE]')
  return events.map((event) => JSON.parse(event))
}

describe('HTTP replies', () => {
  it('n choices have consecutive seeds, and count the prompt tokens once', async () => {
    await using served = await serve({ generator: new FakeGenerator(saysSeed) })
    const { json } = await post(`${served.url}${chatPath}`, { ...hello, n: 3, seed: 7 })
    const said = json.choices.map((choice: Reply['json']) => [choice.index, choice.message.content])
    expect(said).toEqual([
      [0, 'né! 7'],
      [1, 'né! 8'],
      [2, 'né! 9'],
    ])
    expect(json.choices[0].finish_reason).toBe('length')
    expect(json.usage).toEqual({ prompt_tokens: 3, completion_tokens: 6, total_tokens: 9 })
    const chunks = await chunksOf(served, chatPath, { ...hello, n: 2, seed: 7 })
    for (const index of [0, 1]) {
      const own = chunks.map(({ choices }) => choices[0]).filter((one) => one.index === index)
      expect(own.map(({ delta }) => delta.content ?? '').join('')).toBe(`né! ${7 + index}`)
      expect(own[0].delta.role).toBe('assistant')
      expect(own.at(-1)).toMatchObject({ delta: {}, finish_reason: 'length' })
    }
  })

  it('HTTP replies contain logprobs only when they are requested', async () => {
    await using served = await serve({ generator: new FakeGenerator(saysSeed) })
    const content = [
      {
        token: 'né',
        logprob: -0.1,
        bytes: [110, 195, 169],
        top_logprobs: [{ token: 'né', logprob: -0.1, bytes: [110, 195, 169] }],
      },
      { token: '!', logprob: -0.5, bytes: [33], top_logprobs: [] },
    ]
    const asked = { ...hello, logprobs: true, top_logprobs: 1 }
    const { json } = await post(`${served.url}${chatPath}`, asked)
    expect(json.choices[0].logprobs).toEqual({ content, refusal: null })
    const chunks = await chunksOf(served, chatPath, asked)
    const told = chunks.flatMap(({ choices }) => choices[0].logprobs?.content ?? [])
    expect(told).toEqual(content)
    const silent = await chunksOf(served, chatPath, hello)
    expect(silent.every(({ choices }) => choices[0].logprobs === null)).toBe(true)
    expect(silent.every((chunk) => !('usage' in chunk))).toBe(true)
  })

  it.each([
    [{ token: '\uFFFD' }, null],
    [{ token: 'a\uFFFD' }, null],
    [{ token: '\uD83D' }, null],
    [{ token: '\uFFFD', bytes: [0xe2, 0x80] }, [0xe2, 0x80]],
    [{ token: '\\xe2', bytes: [0xe2] }, [0xe2]],
    [{ token: '', bytes: [] }, []],
  ])('the logprob of the token %j has the bytes %j', async (named, bytes) => {
    const chance = { ...named, logprob: -1 }
    const told = [{ ...chance, top: [chance] }]
    const generator = new FakeGenerator(() => ({ text: 'x', logprobs: told, finishReason: 'stop' }))
    await using served = await serve({ generator })
    const asked = { ...hello, logprobs: true, top_logprobs: 1 }
    const { json } = await post(`${served.url}${chatPath}`, asked)
    const [first] = json.choices[0].logprobs.content
    expect([first.bytes, first.top_logprobs[0].bytes]).toEqual([bytes, bytes])
  })

  it('text completions contain the echoed prompt and logprobs', async () => {
    await using served = await serve({ generator: new FakeGenerator(saysSeed) })
    const body = { prompt: ['ab', 'c'], n: 2, seed: 1, echo: true, logprobs: 1 }
    const { json } = await post(`${served.url}/v1/completions`, body)
    expect(json).toMatchObject({
      id: expect.stringMatching(/^cmpl-/),
      object: 'text_completion',
      model: 'tiny',
      usage: { prompt_tokens: 6, completion_tokens: 8, total_tokens: 14 },
    })
    expect(json.choices.map(({ index, text }: Reply['json']) => [index, text])).toEqual([
      [0, 'abné! 1'],
      [1, 'abné! 2'],
      [2, 'cné! 1'],
      [3, 'cné! 2'],
    ])
    expect(json.choices[0].logprobs).toEqual({
      tokens: ['né', '!'],
      token_logprobs: [-0.1, -0.5],
      top_logprobs: [{ né: -0.1 }, {}],
      text_offset: [2, 4],
    })
    const chunks = await chunksOf(served, '/v1/completions', { ...body, prompt: 'ab', n: 1 })
    expect(chunks.map(({ choices }) => choices[0].text)).toEqual(['ab', 'né', '! 1', ''])
    expect(chunks[2].choices[0].logprobs.text_offset).toEqual([4])
    expect(chunks[3].choices[0].finish_reason).toBe('length')
  })

  it('best_of returns the answers to each prompt whose tokens are the likeliest', async () => {
    const means = [-0.5, -0.1, -0.3, -0.9, -0.7, -0.8]
    let count = 0
    const generator = new FakeGenerator(() => {
      const at = count++
      const logprob = means[at] ?? 0
      // The number of tokens must not matter.
      const all = Array.from({ length: at + 1 }, () => ({ token: 'a', logprob, top: [] }))
      return { text: `answer ${at}`, logprobs: all }
    })
    await using served = await serve({ generator })
    const body = { prompt: ['a', 'b'], n: 2, best_of: 3 }
    const { json } = await post(`${served.url}/v1/completions`, body)
    expect(json.choices.map((choice: Reply['json']) => [choice.text, choice.logprobs])).toEqual([
      ['answer 1', null],
      ['answer 2', null],
      ['answer 4', null],
      ['answer 5', null],
    ])
    expect(json.usage).toEqual({ prompt_tokens: 6, completion_tokens: 12, total_tokens: 18 })
    expect(generator.requests.map(({ sampling }) => sampling.logprobs)).toEqual(
      Array.from({ length: 6 }, () => 0),
    )
  })

  it('streamed tool calls are numbered, also those that only the result contains', async () => {
    const call = (id: string): { id: string; name: string; arguments: string } => ({
      id,
      name: 'add',
      arguments: '{}',
    })
    await using served = await serve({
      generator: new FakeGenerator(async (_, tell) => {
        await tell.delta?.({ text: '', toolCalls: [call('a')] })
        return { toolCalls: [call('a'), call('b')], finishReason: 'tool_calls' }
      }),
    })
    const body = { ...hello, tools: [{ type: 'function', function: { name: 'add' } }] }
    const chunks = await chunksOf(served, chatPath, body)
    const calls = chunks.flatMap(({ choices }) => choices[0].delta.tool_calls ?? [])
    expect(calls).toEqual([
      { index: 0, id: 'a', type: 'function', function: { name: 'add', arguments: '{}' } },
      { index: 1, id: 'b', type: 'function', function: { name: 'add', arguments: '{}' } },
    ])
    expect(chunks.at(-1).choices[0].finish_reason).toBe('tool_calls')
    const { json } = await post(`${served.url}${chatPath}`, body)
    expect(json.choices[0].message.content).toBeNull()
    expect(json.choices[0].message.tool_calls).toHaveLength(2)
    served.generator.script = () => ({ text: 'I cannot say that.', finishReason: 'content_filter' })
    const refused = await chunksOf(served, chatPath, hello)
    expect(refused.map(({ choices }) => choices[0].delta.content)).toEqual([
      '',
      'I cannot say that.',
      undefined,
    ])
  })
})
