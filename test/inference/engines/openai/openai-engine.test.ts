import { describe, expect, it } from 'vitest'
import { toRequest } from '../generation.ts'
import { begin, ends, hang, says, send, stream, used } from './fixtures/openai-server.ts'
import { openEngine } from './open-engine.ts'

describe('openai engine: attaching to a server', () => {
  it("openai engine: the server's context length is used, else the configured one", async () => {
    const plain = await openEngine()
    expect(await plain.engine.start()).toEqual({
      name: 'tiny',
      contextLength: 2048,
      hasChatTemplate: true,
    })
    expect(plain.engine.capacity).toEqual({ admits: 'step', slots: 4 })
    const telling = await openEngine({
      models: [{ id: 'other' }, { id: 'tiny', max_model_len: 512 }],
    })
    expect(await telling.engine.start()).toMatchObject({ contextLength: 512 })
  })

  it('openai engine: an address without the path of the API is accepted', async () => {
    const { server } = await openEngine()
    const { engine } = await openEngine({}, { baseUrl: `http://127.0.0.1:${server.port}/` })
    await engine.start()
    expect(server.requests.map(({ path }) => path)).toEqual(['/v1/models'])
  })

  it('openai engine: the served models are listed if the wanted one is missing', async () => {
    const { engine } = await openEngine(
      { models: [{ id: 'tiny' }, { id: 'large' }] },
      { modelName: 'tny' },
    )
    await expect(engine.start()).rejects.toMatchObject({
      code: 'engine_error',
      message: 'the server does not serve "tny": it serves "tiny", "large"; did you mean "tiny"?',
    })
  })

  it('openai engine: attaching fails with not_ready if no server responds', async () => {
    const { engine, server } = await openEngine()
    const { port } = server
    await server.close()
    await expect(engine.start()).rejects.toMatchObject({
      code: 'not_ready',
      message: `no server responds at http://127.0.0.1:${port}/v1`,
    })
  })

  it('openai engine: the key is sent in one header and kept out of messages', async () => {
    const key = 'sk-very-secret-1'
    const { engine, server, listener } = await openEngine({ apiKey: key }, { apiKey: key })
    await engine.start()
    await engine.generate([toRequest('a b')], listener)
    expect(listener.textOf()).toBe('a b')
    expect(server.requests.map(({ authorization }) => authorization)).toEqual(
      server.requests.map(() => `Bearer ${key}`),
    )
    const wrong = await openEngine({ apiKey: 'another-one' }, { apiKey: key })
    const error = await wrong.engine.start().catch((thrown: Error) => thrown)
    expect(error).toMatchObject({
      code: 'upstream_error',
      message: 'the server behind this one answered 401',
      hint: "check the engine's API key",
      cause: { message: 'Incorrect key: Bearer [masked]' },
    })
    expect(JSON.stringify([error, (error as Error).stack])).not.toContain(key)
  })

  it.each(['ftp://host/v1', 'http://user:word@host/v1', 'http://host/v1?key=word', 'host'])(
    'openai engine: the address %s is refused without repeating secrets',
    async (baseUrl) => {
      const attempt = openEngine({}, { baseUrl })
      await expect(attempt).rejects.toMatchObject({ name: 'ValueError', field: 'baseUrl' })
      await expect(attempt).rejects.not.toThrow('word')
    },
  )

  it('openai engine: a key that is no header value is refused, without repeating it', async () => {
    const attempt = openEngine({}, { apiKey: 'se\r\ncret' })
    await expect(attempt).rejects.toMatchObject({ field: 'apiKey' })
    await expect(attempt).rejects.not.toThrow('cret')
  })
})

describe('openai engine: generating', () => {
  it('openai engine: deltas are passed on as they arrive, then the usage', async () => {
    const { engine, listener } = await openEngine()
    await engine.generate([toRequest('one two three', { maxTokens: 2 })], listener)
    expect(listener.deltas.map(({ text }) => text)).toEqual(['one', ' two'])
    const usage = { promptTokens: 3, completionTokens: 2 }
    expect(listener.ends).toEqual([{ id: 'r1', kind: 'done', finishReason: 'length', usage }])
  })

  it('openai engine: plain text is sent to the completions endpoint', async () => {
    const { engine, listener, server } = await openEngine()
    await engine.generate([toRequest({ kind: 'text', text: 'one two' })], listener)
    expect(listener.textOf()).toBe('one two')
    expect(server.generations).toMatchObject([
      { path: '/v1/completions', body: { model: 'tiny', prompt: 'one two', stream: true } },
    ])
  })

  it('openai engine: each request of a batch gets its own result, whatever the order', async () => {
    const { engine, listener, server } = await openEngine()
    const requests = Array.from({ length: 40 }, (_, at) =>
      toRequest(`prompt number ${at}`, {}, { id: `r${at}` }),
    )
    await engine.generate(requests, listener)
    expect(requests.map(({ id }) => listener.textOf(id))).toEqual(
      requests.map((_, at) => `prompt number ${at}`),
    )
    expect(listener.ends.map(({ kind }) => kind)).toEqual(requests.map(() => 'done'))
    expect(server.generations).toHaveLength(40)
  })

  it('openai engine: connections are reused, and none is open after close', async () => {
    const { engine, listener, server } = await openEngine()
    for (let at = 0; at < 30; at++) {
      const { promise: answered, resolve } = Promise.withResolvers<void>()
      server.plan(async (response) => {
        hang(says('x'), ends(), used(1, 1))(response)
        response.write('data: [DONE]\n\n')
        await answered
        response.end()
      })
      await engine.generate([toRequest('x')], listener)
      resolve()
    }
    expect(listener.ends).toHaveLength(30)
    expect(new Set(server.generations.map(({ port }) => port)).size).toBeLessThan(9)
    await engine.close()
    await server.deserted()
  })

  it('openai engine: tool calls are delivered piece by piece', async () => {
    const { engine, listener, server } = await openEngine()
    const part = (call: unknown): unknown => ({ choices: [{ delta: { tool_calls: [call] } }] })
    server.plan(
      stream(
        says('let me see'),
        part({ index: 0, id: 'c1', function: { name: 'look', arguments: '' } }),
        part({ index: 0, function: { arguments: '{"at":' } }),
        part({ index: 1, id: 'c2', function: { name: 'listen', arguments: '{}' } }),
        part({ index: 0, function: { arguments: '1}' } }),
        ends('tool_calls'),
        used(1, 2),
      ),
    )
    await engine.generate([toRequest('x')], listener)
    expect(listener.deltas).toEqual([
      { id: 'r1', text: 'let me see' },
      {
        id: 'r1',
        text: '',
        toolCallPieces: [{ index: 0, id: 'c1', name: 'look', arguments: '' }],
      },
      { id: 'r1', text: '', toolCallPieces: [{ index: 0, arguments: '{"at":' }] },
      {
        id: 'r1',
        text: '',
        toolCallPieces: [{ index: 1, id: 'c2', name: 'listen', arguments: '{}' }],
      },
      { id: 'r1', text: '', toolCallPieces: [{ index: 0, arguments: '1}' }] },
    ])
    expect(listener.ends).toMatchObject([{ kind: 'done', finishReason: 'tool_calls' }])
  })

  it('openai engine: a slow reader stops the reading', async () => {
    const { engine, listener, server } = await openEngine()
    const piece = 'x'.repeat(64 * 1024)
    const total = 512
    let written = 0
    const blocked = Promise.withResolvers<void>()
    server.plan(async (response) => {
      begin(response)
      for (; written < total; written++) {
        if (send(response, says(piece))) continue
        blocked.resolve()
        await new Promise((resolve) => response.once('drain', resolve))
      }
      for (const chunk of [ends(), used(1, total)]) send(response, chunk)
      response.end('data: [DONE]\n\n')
    })
    const held = Promise.withResolvers<void>()
    listener.hold = held.promise
    const done = engine.generate([toRequest('x')], listener)
    await listener.begun
    await blocked.promise
    expect(listener.deltas).toHaveLength(1)
    expect(written).toBeLessThan(total)
    listener.hold = undefined
    held.resolve()
    await done
    expect(listener.deltas).toHaveLength(total)
    expect(listener.ends).toMatchObject([{ kind: 'done' }])
  })

  it.each([
    ['its tokenizer', true, { promptTokens: 2, completionTokens: 3 }],
    ['the length of the text', false, { promptTokens: 3, completionTokens: 2 }],
  ])(
    'openai engine: tokens are counted by %s without reported usage, with one warning',
    async (_, has, usage) => {
      const { engine, listener, server, warnings } = await openEngine({ hasTokenizer: has })
      server.plan(stream(says('a b c'), ends()), stream(says('a b c'), ends()))
      const input = { kind: 'text', text: 'twelve chars' } as const
      await engine.generate([toRequest(input)], listener)
      await engine.generate([toRequest(input)], listener)
      expect(listener.ends).toMatchObject([{ usage }, { usage }])
      expect(warnings).toEqual(['UsageEstimated'])
    },
  )
})

describe('openai engine: tokenize', () => {
  it('openai engine: tokenize returns the numbers that the server reports', async () => {
    const { engine } = await openEngine()
    expect(await engine.tokenize('one two three')).toEqual([0, 1, 2])
  })

  it('openai engine: tokenize is unsupported if the server has no such endpoint', async () => {
    const { engine } = await openEngine({ hasTokenizer: false })
    await expect(engine.tokenize('x')).rejects.toMatchObject({ code: 'unsupported' })
  })

  it('openai engine: tokenize fails with upstream_error on any other answer', async () => {
    const pages = { '/tokenize': { answer: 42 } }
    const { engine } = await openEngine({ pages })
    await expect(engine.tokenize('x')).rejects.toMatchObject({
      code: 'upstream_error',
      message: 'the server behind this one gave no list of tokens',
    })
  })
})

describe('openai engine: an answer that comes at once', () => {
  it('openai engine: an answer in one piece is delivered in many turns of the loop', async () => {
    const { engine, server, listener } = await openEngine()
    const count = 5000
    server.plan(stream(...Array.from({ length: count }, () => says('a')), ends('stop')))
    let inTurn = 0
    let max = 0
    const turn = (): void => {
      max = Math.max(max, inTurn)
      inTurn = 0
      next = setImmediate(turn)
    }
    let next = setImmediate(turn)
    await engine.generate([toRequest('x')], {
      delta(id, delta) {
        inTurn++
        return listener.delta(id, delta)
      },
      end: (id, end) => listener.end(id, end),
    })
    clearImmediate(next)
    expect(listener.textOf()).toHaveLength(count)
    expect(max).toBeLessThanOrEqual(100)
  })
})
