import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { describe, expect, it } from 'vitest'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { FakeDesk } from './fake-desk.ts'
import { ask, hello, raw, serve, type Served } from './served.ts'

const crowd = process.env['TUTTI_LONG'] === undefined ? 100 : 1000

const chatHead = (served: Served, length: number): string =>
  [
    'POST /v1/chat/completions HTTP/1.1',
    `Host: 127.0.0.1:${served.port}`,
    'Content-Type: application/json',
    `Content-Length: ${length}`,
    '\r\n',
  ].join('\r\n')

const chat = (served: Served, body: object): string => {
  const text = JSON.stringify(body)
  return chatHead(served, text.length) + text
}

/** Opens a connection that reads nothing before it is told to. */
async function openSilent(port: number, text: string): Promise<Socket> {
  const socket = connect(port, '127.0.0.1')
  socket.on('error', () => {})
  await once(socket, 'connect')
  socket.pause()
  socket.write(text)
  return socket
}

describe('slow clients', () => {
  it('row 73: heads and bodies that do not come in time get 408, others are served', async () => {
    await using served = await serve({
      limits: { headersTimeoutMs: 300, requestTimeoutMs: 600, connectionsCheckMs: 50 },
    })
    const slow = Array.from({ length: crowd }, (_, at) =>
      raw(served.port, at % 2 === 0 ? 'POST /generate HTTP/1.1\r\nHo' : chatHead(served, 10)),
    )
    expect((await ask(`${served.url}/health`)).status).toBe(200)
    const answers = await Promise.all(slow)
    for (const answer of answers) {
      expect(answer).toMatch(/^HTTP\/1\.1 408 /)
      expect(answer).toContain('"request_timeout"')
      expect(answer).toContain('"timeout_error"')
    }
    expect(served.desk.questions).toEqual([])
    expect((await ask(`${served.url}/health`)).status).toBe(200)
  })

  it('row 73: a stream that is not read holds its generation, then loses its place', async () => {
    const clock = new ManualClock()
    const held = Promise.withResolvers<void>()
    const ended = Promise.withResolvers<unknown>()
    let told = 0
    const desk = new FakeDesk(async ({ signal }, tell) => {
      signal.addEventListener('abort', () => ended.resolve(signal.reason))
      while (!signal.aborted) {
        const wait = tell.delta?.({ text: 'x'.repeat(1000) })
        told += 1000
        if (wait !== undefined) {
          held.resolve()
          await wait
        }
        await new Promise((resolve) => setImmediate(resolve))
      }
      throw signal.reason
    })
    await using served = await serve({ desk, clock, limits: { streamBufferBytes: 20_000 } })
    const socket = await openSilent(served.port, chat(served, { ...hello, stream: true }))
    await held.promise
    // The system's own buffers may take some more before it is held for good.
    let before = -1
    while (before !== told) {
      before = told
      for (let turn = 0; turn < 50; turn++) await new Promise((resolve) => setImmediate(resolve))
    }
    await clock.advance(29_000)
    expect(told).toBe(before)
    await clock.advance(1100)
    await expect(ended.promise).resolves.toMatchObject({ code: 'canceled' })
    socket.destroy()
  })

  it('row 73: a held generation goes on when its reader does', async () => {
    const held = Promise.withResolvers<void>()
    let told = 0
    const desk = new FakeDesk(async (_, tell) => {
      for (let left = Infinity; left > 0; left--) {
        const wait = tell.delta?.({ text: 'y'.repeat(1000) })
        told++
        if (wait !== undefined) {
          left = Math.min(left, 500)
          held.resolve()
          await wait
        }
        if (told % 10 === 0) await new Promise((resolve) => setImmediate(resolve))
      }
      return { text: 'y' }
    })
    await using served = await serve({ desk, limits: { streamBufferBytes: 20_000 } })
    const socket = await openSilent(served.port, chat(served, { ...hello, stream: true }))
    await held.promise
    let text = ''
    const done = new Promise<void>((resolve) => {
      socket.on('data', (chunk) => {
        text += chunk.toString()
        if (text.includes('[DONE]')) resolve()
      })
    })
    socket.resume()
    await done
    socket.destroy()
    expect(text.match(/y{1000}/g)).toHaveLength(told)
  })

  it('row 73: an answer that is not read is given up', async () => {
    const clock = new ManualClock()
    const answered = Promise.withResolvers<void>()
    const desk = new FakeDesk(() => {
      answered.resolve()
      return { text: 'z'.repeat(50_000_000) }
    })
    await using served = await serve({ desk, clock })
    const socket = await openSilent(served.port, chat(served, hello))
    await answered.promise
    while (clock.pendingTimers === 0) await new Promise((resolve) => setImmediate(resolve))
    await clock.advance(30_000)
    const gone = once(socket, 'close')
    socket.resume()
    await gone
    expect(socket.bytesRead).toBeLessThan(50_000_000)
  })
})
