import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { describe, expect, it } from 'vitest'
import { inferenceError } from '../../../src/inference/generation/inference-errors.ts'
import { FakeGenerator, silent } from './fake-generator.ts'
import { ask, hello, post, raw, serve, type Served } from './served.ts'
import { byRun } from '../../long-run.ts'

const crowd = byRun(200, 10_000)

const health = (served: Served, ...more: readonly string[]): string =>
  ['GET /health HTTP/1.1', `Host: 127.0.0.1:${served.port}`, ...more, '\r\n'].join('\r\n')

async function open(port: number): Promise<Socket> {
  const socket = connect(port, '127.0.0.1')
  socket.on('error', () => {})
  await once(socket, 'connect')
  return socket
}

describe('floods of requests', () => {
  it('row 74: a connection is limited to maxRequestsPerSocket, also if pipelining', async () => {
    await using served = await serve({ limits: { maxRequestsPerSocket: 50, keepAliveMs: 100 } })
    const answer = await raw(served.port, health(served).repeat(crowd))
    const statuses = answer.match(/HTTP\/1\.1 \d+/g) ?? []
    expect(statuses.filter((status) => status.endsWith('200'))).toHaveLength(50)
    expect(answer.match(/connection: close/gi)?.length).toBeGreaterThan(0)
    expect((await ask(`${served.url}/health`)).status).toBe(200)
  })

  it('row 74: too many and too large headers get 431', async () => {
    await using served = await serve({ limits: { headerCount: 32 } })
    for (const [more, status] of [
      [30, 200],
      [31, 431],
      [64, 431],
      [1000, 431],
    ] as const) {
      const many = Array.from({ length: more }, (_, at) => `X-${at}: 1`)
      const answer = await raw(served.port, health(served, ...many, 'Connection: close'))
      expect([more, answer.slice(9, 12)]).toEqual([more, String(status)])
    }
    const large = await raw(served.port, health(served, `X-Large: ${'x'.repeat(100_000)}`))
    expect(large).toMatch(/^HTTP\/1\.1 431 /)
    expect(large).toContain('"headers_too_large"')
  })

  it('row 74: two content lengths in one request get 400 and close the connection', async () => {
    await using served = await serve()
    const smuggled = [
      'POST /v1/chat/completions HTTP/1.1',
      `Host: 127.0.0.1:${served.port}`,
      'Content-Type: application/json',
      'Content-Length: 5',
      'Transfer-Encoding: chunked',
      '',
      '0\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n',
    ].join('\r\n')
    const answer = await raw(served.port, smuggled)
    expect(answer).toMatch(/^HTTP\/1\.1 400 /)
    expect(answer.match(/HTTP\/1\.1 /g)).toHaveLength(1)
    expect(answer).toContain('"bad_request"')
  })

  it('row 74: invalid bytes during a stream close the connection without a reply', async () => {
    const generator = new FakeGenerator(async (request, tell) => {
      await tell.delta?.({ text: 'begun' })
      return silent(request, tell)
    })
    await using served = await serve({ generator })
    const socket = await open(served.port)
    const text = JSON.stringify({ ...hello, stream: true })
    socket.write(
      `POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n` +
        `Content-Type: application/json\r\nContent-Length: ${text.length}\r\n\r\n${text}`,
    )
    let answer = ''
    await new Promise<void>((resolve) => {
      socket.on('data', (chunk) => {
        answer += chunk.toString()
        if (answer.includes('begun')) resolve()
      })
    })
    socket.write('\0\0\0 nonsense\r\n\r\n')
    await new Promise((resolve) => socket.once('close', resolve))
    expect(answer.match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 200'])
    expect(generator.requests[0]?.signal.aborted).toBe(true)
  })

  it('row 75: a full queue gets 429 at once, with Retry-After', async () => {
    const generator = new FakeGenerator(() => {
      throw inferenceError('queue_full', 'The queue has no room: 10000 requests wait.')
    })
    await using served = await serve({ generator })
    const expected = {
      message: 'The queue has no room: 10000 requests wait.',
      type: 'rate_limit_error',
      param: null,
      code: 'queue_full',
    }
    for (let sent = 0; sent < crowd; sent += 100) {
      const replies = await Promise.all(
        Array.from({ length: 100 }, () => post(`${served.url}/v1/chat/completions`, hello)),
      )
      for (const { status, headers, json } of replies) {
        expect([status, headers.get('retry-after')]).toEqual([429, '1'])
        expect(json.error).toEqual(expected)
      }
    }
    const stream = await post(`${served.url}/v1/chat/completions`, { ...hello, stream: true })
    expect([stream.status, stream.json.error.code]).toEqual([429, 'queue_full'])
    const generate = await post(`${served.url}/generate`, { prompts: ['a', 'b'] })
    expect([generate.status, generate.headers.get('retry-after')]).toEqual([429, '1'])
    expect(generate.json).toMatchObject({ status: 'error' })
    expect(served.log.lines).toEqual([])
  })
})
