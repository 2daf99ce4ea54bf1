import OpenAI from 'openai'
import { describe, expect, it } from 'vitest'
import { inferenceError } from '../../../../src/inference/generation/inference-errors.ts'
import { FakeGenerator } from '../fake-generator.ts'
import { serve, type Served } from '../served.ts'
import { key, neverEnds, refusesOnce, schema, usesTool, writesJson } from './scenarios.ts'

const request = { model: 'tiny', input: 'say it in two words' }

const openai = (served: Served, options: object = {}): OpenAI =>
  new OpenAI({ baseURL: `${served.url}/v1`, apiKey: key, ...options })

/** The messages of each request that reached the generator, as `role: text`. */
const conversations = ({ generator }: Served): readonly (readonly string[])[] =>
  generator.requests.map(({ input }) =>
    input.kind === 'chat' ? input.messages.map(({ role, content }) => `${role}: ${content}`) : [],
  )

describe('the openai client and the Responses API', () => {
  it('the openai client gets a response, and streams one', async () => {
    await using served = await serve({ apiKey: key })
    const client = openai(served)
    const whole = await client.responses.create(request)
    expect([whole.output_text, whole.status, whole.usage?.total_tokens]).toEqual([
      'say it in two words',
      'completed',
      5,
    ])
    const stream = client.responses.stream(request)
    const texts: string[] = []
    stream.on('response.output_text.delta', ({ delta }) => texts.push(delta))
    const last = await stream.finalResponse()
    expect(texts.length).toBeGreaterThan(1)
    expect([texts.join(''), last.output_text]).toEqual([
      'say it in two words',
      'say it in two words',
    ])
  })

  it('the openai client continues a response, and the server keeps its items', async () => {
    await using served = await serve({ apiKey: key })
    const client = openai(served)
    const first = await client.responses.create({ ...request, instructions: 'Be brief.' })
    const previous_response_id = first.id
    const second = await client.responses.create({
      ...request,
      input: 'more',
      previous_response_id,
    })
    const [item] = second.output
    await client.responses.create({
      ...request,
      input: [
        { type: 'item_reference', id: item?.id ?? '' },
        { role: 'user', content: 'again' },
      ],
    })
    expect(conversations(served)).toEqual([
      ['system: Be brief.', 'user: say it in two words'],
      ['user: say it in two words', 'assistant: say it in two words', 'user: more'],
      ['assistant: more', 'user: again'],
    ])
  })

  it('the openai client gets 404 for a response that was not stored', async () => {
    await using served = await serve({ apiKey: key })
    const client = openai(served)
    const { id, output } = await client.responses.create({ ...request, store: false })
    const failure = (options: object): Promise<unknown> =>
      client.responses.create({ ...request, ...options }).then(
        () => 'answered',
        (error: unknown) => error,
      )
    const missing = await failure({ previous_response_id: id })
    expect(missing).toBeInstanceOf(OpenAI.NotFoundError)
    expect(missing).toMatchObject({
      code: 'previous_response_not_found',
      param: 'previous_response_id',
    })
    const input = [{ type: 'item_reference', id: output[0]?.id }]
    expect(await failure({ input })).toMatchObject({ status: 404, param: 'input[0].id' })
  })

  it('the openai client runs a tool loop with the id of the response before', async () => {
    await using served = await serve({ apiKey: key, generator: new FakeGenerator(usesTool) })
    const client = openai(served)
    const tools = [{ type: 'function' as const, name: 'weather', parameters: schema, strict: true }]
    const first = await client.responses.create({ ...request, tools })
    const [call] = first.output
    expect(call).toMatchObject({ type: 'function_call', name: 'weather' })
    const second = await client.responses.create({
      ...request,
      tools,
      previous_response_id: first.id,
      input: [{ type: 'function_call_output', call_id: 'call_1', output: 'sunny in Paris' }],
    })
    expect(second.output_text).toBe('It is sunny in Paris.')
  })

  it('the openai client runs a tool loop with streams', async () => {
    await using served = await serve({ apiKey: key, generator: new FakeGenerator(usesTool) })
    const client = openai(served)
    const tools = [{ type: 'function' as const, name: 'weather', parameters: schema, strict: true }]
    const first = await client.responses.stream({ ...request, tools }).finalResponse()
    expect(first.output).toMatchObject([{ type: 'function_call', arguments: '{"city":"Paris"}' }])
    const second = client.responses.stream({
      ...request,
      tools,
      previous_response_id: first.id,
      input: [{ type: 'function_call_output', call_id: 'call_1', output: 'sunny in Paris' }],
    })
    expect((await second.finalResponse()).output_text).toBe('It is sunny in Paris.')
  })

  it.each([false, true])(
    'the openai client reads and deletes a response, stream %j',
    async (stream) => {
      await using served = await serve({ apiKey: key })
      const client = openai(served, { maxRetries: 0 })
      let created: OpenAI.Responses.Response | undefined
      if (!stream) created = await client.responses.create(request)
      else {
        for await (const event of await client.responses.create({ ...request, stream: true })) {
          if (event.type === 'response.completed') created = event.response
        }
      }
      const id = created?.id ?? ''
      const read = await client.responses.retrieve(id)
      expect([read.output_text, read.usage]).toEqual(['say it in two words', created?.usage])
      expect(read.output).toEqual(created?.output)
      const next = await client.responses.create({ ...request, previous_response_id: id })
      await client.responses.delete(id)
      for (const gone of [client.responses.retrieve(id), client.responses.delete(id)]) {
        await expect(gone).rejects.toMatchObject({ status: 404, code: 'response_not_found' })
      }
      expect((await client.responses.retrieve(next.id)).previous_response_id).toBe(id)
      await expect(client.responses.inputItems.list(next.id)).rejects.toMatchObject({ status: 404 })
      const { status, headers } = await fetch(`${served.url}/v1/responses/${next.id}`, {
        method: 'PUT',
        headers: { authorization: `Bearer ${key}` },
      })
      expect([status, headers.get('allow')]).toEqual([405, 'GET, HEAD, DELETE'])
    },
  )

  it('the openai client parses JSON that fits a schema', async () => {
    await using served = await serve({ apiKey: key, generator: new FakeGenerator(writesJson) })
    const { output_parsed: parsed } = await openai(served).responses.parse({
      ...request,
      text: { format: { type: 'json_schema', name: 'place', schema } },
    })
    expect(parsed).toEqual({ city: 'Paris' })
    expect(served.generator.requests[0]?.sampling.format).toEqual({ kind: 'json_schema', schema })
  })

  it('the openai client gets errors with status, code and param of its own request', async () => {
    await using served = await serve({ apiKey: key })
    const failure = (options: object, client = {}): Promise<unknown> =>
      openai(served, { maxRetries: 0, ...client })
        .responses.create({ ...request, ...options })
        .then(
          () => 'answered',
          (error: unknown) => error,
        )
    for (const [options, param] of [
      [{ max_output_tokens: 0 }, 'max_output_tokens'],
      [{ text: { format: { type: 'xml' } } }, 'text.format.type'],
      [{ input: [{ role: 'user', content: [{ type: 'text' }] }] }, 'input[0].content[0].text'],
      [{ tools: [{ type: 'web_search' }] }, 'tools[0].type'],
      [{ input: [{ role: 'tool', content: 'a' }] }, 'input[0].role'],
      [{ input: [{ role: 'user', content: [image] }] }, 'input[0]'],
    ] as const) {
      expect(await failure(options)).toMatchObject({ status: 400, param })
    }
    expect(await failure({}, { apiKey: 'wrong' })).toBeInstanceOf(OpenAI.AuthenticationError)
  })

  it('the openai client gets an error in the middle of a stream of a response', async () => {
    const generator = new FakeGenerator(async (_, tell) => {
      await tell.delta?.({ text: 'first' })
      throw inferenceError('engine_lost', 'gone')
    })
    await using served = await serve({ apiKey: key, generator })
    const stream = await openai(served).responses.create({ ...request, stream: true })
    const read = async (): Promise<void> => {
      for await (const _ of stream);
    }
    await expect(read()).rejects.toMatchObject({ code: 'engine_lost' })
  })

  it('the openai client asks for a response again when the queue is full', async () => {
    const { generator, calls } = refusesOnce()
    await using served = await serve({ apiKey: key, generator })
    const { output_text: text } = await openai(served).responses.create(request)
    expect([calls(), text]).toEqual([2, 'second time'])
  })

  it('aborting a stream of a response cancels its request', async () => {
    const { generator, canceled } = neverEnds()
    await using served = await serve({ apiKey: key, generator })
    const stream = await openai(served).responses.create({ ...request, stream: true })
    for await (const { type } of stream) {
      if (type === 'response.output_text.delta') stream.controller.abort()
    }
    await canceled
  })
})

const image = { type: 'input_image', image_url: 'https://example.org/a.png' }
