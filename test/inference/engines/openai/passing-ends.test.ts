import { describe, expect, it } from 'vitest'
import { InferenceBackend } from '../../../../src/inference/inference-backend.ts'
import { ends, OpenAiServer, says, stream, used } from './fixtures/openai-server.ts'
import { asked, openPassing } from './open-passing.ts'

const withEnd = (delta: object, finish_reason: string) => ({
  choices: [{ index: 0, delta, finish_reason }],
})

describe('how the server behind the engine ends an answer', () => {
  it.each(['repetition', 'function_call', 'constructor'])(
    'the finish reason %s reaches the client as it is, once',
    async (reason) => {
      const { upstream, chat, chatStream } = await openPassing()
      const answer = stream(says('a'), withEnd({ content: 'b' }, reason), used(3, 2))
      upstream.plan(answer, answer)
      const { json } = await chat(asked)
      expect(json.choices[0]).toMatchObject({ message: { content: 'ab' }, finish_reason: reason })
      const chunks = await chatStream({ ...asked, stream: true })
      expect(chunks.map(({ choices }) => choices[0].finish_reason)).toEqual([
        null,
        null,
        null,
        reason,
      ])
    },
  )

  it.each([
    ['max_tokens', 'length'],
    ['eos', 'stop'],
  ])('the finish reason %s becomes the public %s', async (told, reason) => {
    const { upstream, chat } = await openPassing()
    upstream.plan(stream(says('a'), ends(told)))
    expect((await chat(asked)).json.choices[0].finish_reason).toBe(reason)
  })

  it('a call by `generate` ends with a reason of the public API', async () => {
    const server = new OpenAiServer({})
    await server.listen()
    const config = {
      required: { model_name: 'tiny' },
      engine: { kind: 'openai' as const, base_url: server.url },
    }
    const backend = await InferenceBackend.fromConfig(config, { useService: false })
    server.plan(stream(says('a'), ends('repetition'), used(1, 1)))
    expect(await backend.generate(['x'], 10)).toMatchObject([{ text: 'a', finish_reason: 'stop' }])
    await backend.close()
    await server.close()
  })

  it.each(['abort', 'error'])('%s is a failure of the server', async (reason) => {
    const { upstream, chat } = await openPassing()
    upstream.plan(stream(says('a'), ends(reason)))
    const { status, json } = await chat(asked)
    expect(status).toBe(502)
    expect(json.error).toMatchObject({ code: 'upstream_error', type: 'server_error' })
    expect(json.error.message).toContain(`'${reason}'`)
  })

  it('every chunk has the fingerprint of the server', async () => {
    const { upstream, chatStream } = await openPassing()
    const printed = [says('a'), says('b'), ends(), used(1, 2)].map((chunk) => ({
      ...(chunk as object),
      system_fingerprint: 'b5432-abc',
    }))
    upstream.plan(stream(...printed))
    const chunks = await chatStream({
      ...asked,
      stream: true,
      stream_options: { include_usage: true },
    })
    expect(chunks.map((chunk) => chunk.system_fingerprint)).toEqual(chunks.map(() => 'b5432-abc'))
  })
})
