import { getEventListeners, once } from 'node:events'
import { createServer, type IncomingMessage } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { gzipSync } from 'node:zlib'
import { describe, expect, it, onTestFinished } from 'vitest'
import { readBody } from '../../../../src/runtime/http/json-body.ts'
import { hello, post, raw, serve, type Served } from '../served.ts'

const head = (served: Served, ...more: readonly string[]): string =>
  [
    'POST /v1/chat/completions HTTP/1.1',
    `Host: 127.0.0.1:${served.port}`,
    'Content-Type: application/json',
    ...more,
    '',
    '',
  ].join('\r\n')

const errorOf = (answer: string): unknown =>
  JSON.parse(answer.slice(answer.indexOf('\r\n\r\n') + 4)).error

/** A chat body of exactly so many bytes. */
function bodyOf(bytes: number): string {
  const frame = JSON.stringify({ messages: [{ role: 'user', content: '' }] })
  return frame.replace('""', `"${'x'.repeat(bytes - frame.length)}"`)
}

describe('bodies', () => {
  it('row 62: a body whose content-length is above the limit is refused unread', async () => {
    await using served = await serve({ limits: { chatBodyBytes: 1000 } })
    const answer = await raw(served.port, head(served, 'Content-Length: 100000000'))
    expect(answer).toMatch(/^HTTP\/1\.1 413 /)
    expect(answer).toMatch(/connection: close/i)
    expect(errorOf(answer)).toEqual({
      message: 'The body is larger than 1000 bytes.',
      type: 'invalid_request_error',
      param: 'body',
      code: 'request_too_large',
    })
  })

  it('row 62: a body of exactly the limit is accepted, one byte more is not', async () => {
    await using served = await serve({ limits: { chatBodyBytes: 70_000 } })
    const url = `${served.url}/v1/chat/completions`
    expect((await post(url, bodyOf(70_000))).status).toBe(200)
    expect((await post(url, bodyOf(70_001))).status).toBe(413)
    for (const [bytes, status] of [
      [70_000, 200],
      [70_001, 413],
    ] as const) {
      const body = bodyOf(bytes)
      const answer = await raw(
        served.port,
        head(served, 'Transfer-Encoding: chunked', 'Connection: close'),
        ...chunked(body.slice(0, 50_000)),
        ...chunked(body.slice(50_000)),
        '0\r\n\r\n',
      )
      expect(answer, String(bytes)).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `))
    }
    expect(served.generator.requests).toHaveLength(2)
  })

  it('row 62: an endless body is refused at the limit without buffering it', async () => {
    await using served = await serve({ limits: { chatBodyBytes: 100_000 } })
    const socket = connect(served.port, '127.0.0.1')
    socket.on('error', () => {})
    socket.write(head(served, 'Transfer-Encoding: chunked'))
    const before = process.memoryUsage().arrayBuffers
    const answered = once(socket, 'data') as Promise<[Buffer]>
    const closed = new Promise((resolve) => socket.once('close', resolve))
    const sent = await pour(socket, Buffer.alloc(65_536, 0x20))
    const [answer] = await answered
    await closed
    expect(answer.toString()).toMatch(/^HTTP\/1\.1 413 /)
    expect(sent).toBeGreaterThan(100_000)
    expect(sent).toBeLessThan(maxPoured)
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(64 * 1_048_576)
  })

  it('row 62: a client that is still sending can read the error first', async () => {
    await using served = await serve({ limits: { chatBodyBytes: 1000 } })
    const socket = connect(served.port, '127.0.0.1')
    const story: string[] = []
    socket.on('end', () => story.push('end'))
    socket.write(head(served, 'Content-Length: 100000'))
    await once(socket, 'data')
    // A whole request of another client takes longer than a premature close would.
    await post(`${served.url}/v1/chat/completions`, bodyOf(100))
    story.push('sent')
    socket.write('x'.repeat(100_000))
    await once(socket, 'close')
    expect(story).toEqual(['sent', 'end'])
  })

  it('row 62: a client that waits for 100-continue is refused before it sends', async () => {
    await using served = await serve({ limits: { chatBodyBytes: 1000 } })
    const refused = await raw(
      served.port,
      head(served, 'Content-Length: 2000', 'Expect: 100-continue'),
    )
    expect(refused).toMatch(/^HTTP\/1\.1 413 /)
    const body = JSON.stringify(hello)
    const accepted = await raw(
      served.port,
      head(served, `Content-Length: ${body.length}`, 'Expect: 100-continue', 'Connection: close'),
      body,
    )
    expect(accepted).toMatch(/^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 200 /)
  })

  it('row 63: compressed, differently typed and empty bodies are refused', async () => {
    await using served = await serve()
    const url = `${served.url}/v1/chat/completions`
    const bomb = gzipSync(Buffer.alloc(10_000_000, 0x20))
    const gzip = await raw(
      served.port,
      head(served, 'Content-Encoding: gzip', `Content-Length: ${bomb.length}`, 'Connection: close'),
      bomb,
    )
    expect(gzip).toMatch(/^HTTP\/1\.1 415 /)
    const types = [
      'text/plain',
      'application/x-www-form-urlencoded',
      'multipart/form-data; boundary=x',
      'application/jsonp',
      'application/json; charset=utf-16',
      '',
    ]
    for (const type of types) {
      const { status, json } = await post(url, hello, { 'content-type': type })
      expect([type, status, json.error.code]).toEqual([type, 415, 'unsupported_media_type'])
    }
    for (const type of ['application/json', 'Application/JSON; charset=UTF-8']) {
      expect((await post(url, hello, { 'content-type': type })).status, type).toBe(200)
    }
    const empty = await post(url, '')
    expect([empty.status, empty.json.error.param]).toEqual([400, 'body'])
    expect(served.generator.requests).toHaveLength(2)
  })

  it('readBody: rejects with the reason of the signal when it is aborted', async () => {
    const { request, socket } = await openRequest('{"half":')
    const controller = new AbortController()
    const { signal } = controller
    const body = readBody(request, 1000, signal)
    const reason = new Error('the server is closing')
    controller.abort(reason)
    await expect(body).rejects.toBe(reason)
    await expect(readBody(request, 1000, signal)).rejects.toBe(reason)
    expect(request.listenerCount('data')).toBe(0)
    expect(getEventListeners(signal, 'abort')).toEqual([])
    socket.destroy()
  })

  it('readBody: removes its abort listener once the body is read or refused', async () => {
    const { signal } = new AbortController()
    for (const [text, limit] of [
      ['{"whole":1}', 1000],
      ['{"whole":2}', 5],
    ] as const) {
      const { request, socket } = await openRequest(text)
      const body = readBody(request, limit, signal)
      if (limit === 5) await expect(body).rejects.toMatchObject({ code: 'request_too_large' })
      else expect((await body).toString()).toBe(text)
      expect(getEventListeners(signal, 'abort')).toEqual([])
      socket.destroy()
    }
  })

  it('a connection stays usable after a small body was refused', async () => {
    await using served = await serve()
    const body = JSON.stringify(hello)
    const answer = await raw(
      served.port,
      head(served, 'Content-Encoding: gzip', `Content-Length: ${body.length}`) + body,
      head(served, `Content-Length: ${body.length}`, 'Connection: close') + body,
    )
    expect(answer.match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 415', 'HTTP/1.1 200'])
  })
})

/** A request of eleven bytes, only some of which are sent. */
async function openRequest(text: string): Promise<{ request: IncomingMessage; socket: Socket }> {
  const server = createServer().listen(0, '127.0.0.1')
  onTestFinished(() => void server.close())
  await once(server, 'listening')
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1')
  socket.write(`POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n${text}`)
  const [request] = (await once(server, 'request')) as [IncomingMessage]
  request.on('error', () => {})
  return { request, socket }
}

const chunked = (text: string): string[] => [`${text.length.toString(16)}\r\n`, text, '\r\n']

const maxPoured = 512 * 1_048_576

/** Writes until the server closes the connection; resolves with the bytes written. */
async function pour(socket: Socket, block: Buffer): Promise<number> {
  let sent = 0
  while (!socket.destroyed && socket.writable && sent < maxPoured) {
    socket.write(`${block.length.toString(16)}\r\n`)
    socket.write(block)
    const isReady = socket.write('\r\n')
    sent += block.length
    if (!isReady) await Promise.race([once(socket, 'drain'), once(socket, 'close')]).catch(() => {})
  }
  return sent
}
