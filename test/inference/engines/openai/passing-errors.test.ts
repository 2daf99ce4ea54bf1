import { describe, expect, it } from 'vitest'
import { refuse } from './fixtures/openai-server.ts'
import { asked, openPassing } from './open-passing.ts'

describe('errors that the server behind the engine words', () => {
  it('a 500 has the words of the server, which sends it for mistakes of clients too', async () => {
    const { upstream, chat } = await openPassing()
    upstream.plan(
      refuse(500, { error: { message: 'image input is not supported.', type: 'server_error' } }),
      refuse(500, 'crashed at /srv/a.cu'),
    )
    const messages: string[] = []
    for (let at = 0; at < 2; at++) {
      const { status, json } = await chat(asked)
      expect([status, json.error.code]).toEqual([502, 'upstream_error'])
      messages.push(json.error.message)
    }
    expect(messages[0]).toMatch('answered 500: image input is not supported. Request id')
    expect(messages[1]).toMatch('answered 500. Request id')
  })

  it('numbers of an error reach the client', async () => {
    const { upstream, chat } = await openPassing()
    const type = 'exceed_context_size_error'
    const message = 'the request exceeds the available context size'
    const numbers = { n_prompt_tokens: 9000, n_ctx: 4096 }
    upstream.plan(refuse(400, { error: { code: 400, message, type, ...numbers } }))
    const { status, json } = await chat(asked)
    expect([status, json.error]).toEqual([
      400,
      {
        message,
        type: 'invalid_request_error',
        param: null,
        code: 'context_length_exceeded',
        ...numbers,
      },
    ])
  })
})
