import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import { connect, type Socket } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { FakeGenerator } from './fake-generator.ts'
import { ask, hello, raw, serve, type Served } from './served.ts'
import { byRun } from '../../long-run.ts'

/** More than the system's buffers take. */
const long = 50_000_000
const crowd = byRun(100, 1000)

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

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

/** The responses that the server of this test is asked for, as they come. */
function watchResponses(): readonly ServerResponse[] {
  const responses: ServerResponse[] = []
  const note = (message: unknown): void => {
    responses.push((message as { readonly response: ServerResponse }).response)
  }
  subscribe('http.server.request.start', note)
  onTestFinished(() => void unsubscribe('http.server.request.start', note))
  return responses
}

/** How much of what was written to it has left a server's socket. */
const taken = ({ bytesWritten, writableLength }: Socket): number => bytesWritten - writableLength

/** Waits until the system's buffers take no more. */
async function stands(socket: Socket): Promise<void> {
  for (let before = -1; before !== taken(socket);) {
    before = taken(socket)
    for (let left = 50; left > 0; left--) await turn()
  }
}

async function socketOf(responses: readonly ServerResponse[], at: number): Promise<Socket> {
  for (;;) {
    const socket = responses[at]?.socket
    if (socket !== undefined && socket !== null) return socket
    await turn()
  }
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
    expect(served.generator.requests).toEqual([])
    expect((await ask(`${served.url}/health`)).status).toBe(200)
  })

  it('row 73: a stream that is not read holds its generation, then loses its place', async () => {
    const clock = new ManualClock()
    const held = Promise.withResolvers<void>()
    const ended = Promise.withResolvers<unknown>()
    let told = 0
    const generator = new FakeGenerator(async ({ signal }, tell) => {
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
    await using served = await serve({ generator, clock, limits: { streamBufferBytes: 20_000 } })
    const socket = await openSilent(served.port, chat(served, { ...hello, stream: true }))
    await held.promise
    // The system's own buffers may take some more before it is held for good.
    let before = -1
    while (before !== told) {
      before = told
      for (let left = 50; left > 0; left--) await turn()
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
    const generator = new FakeGenerator(async (_, tell) => {
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
    await using served = await serve({ generator, limits: { streamBufferBytes: 20_000 } })
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
    const responses = watchResponses()
    const generator = new FakeGenerator(() => ({ text: 'z'.repeat(long) }))
    await using served = await serve({ generator, clock })
    const socket = await openSilent(served.port, chat(served, hello))
    while (clock.pendingTimers === 0) await turn()
    await stands(await socketOf(responses, 0))
    // What the system's buffers took counts as read, at the first look.
    await clock.advance(60_000)
    const gone = once(socket, 'close')
    socket.resume()
    await gone
    expect(socket.bytesRead).toBeLessThan(long)
    expect(clock.pendingTimers).toBe(0)
  })

  it('row 73: an answer that is read slowly but steadily is not cut', async () => {
    const clock = new ManualClock()
    const responses = watchResponses()
    const generator = new FakeGenerator(() => ({ text: 'z'.repeat(long) }))
    await using served = await serve({ generator, clock })
    const socket = await openSilent(served.port, chat(served, hello))
    const serverSide = await socketOf(responses, 0)
    while (clock.pendingTimers === 0) await turn()
    await stands(serverSide)
    let looks = 0
    while (clock.pendingTimers > 0) {
      const before = taken(serverSide)
      socket.resume()
      while (taken(serverSide) === before && clock.pendingTimers > 0) await turn()
      socket.pause()
      await clock.advance(30_000)
      looks++
    }
    socket.resume()
    while (socket.bytesRead < long && !socket.closed) await turn()
    expect(socket.bytesRead).toBeGreaterThan(long)
    expect(looks).toBeGreaterThan(2)
    socket.destroy()
  })

  it.each([
    ['an answer', {}],
    ['a stream', { stream: true }],
  ])('row 73: %s that waits behind another of its connection is not cut', async (_, more) => {
    const clock = new ManualClock()
    const responses = watchResponses()
    const first = Promise.withResolvers<{ readonly text: string }>()
    const held = Promise.withResolvers<void>()
    const generator = new FakeGenerator(async (_question, tell) => {
      if (generator.requests.length === 1) return first.promise
      let wait: Promise<void> | undefined
      while (tell.delta !== undefined && wait === undefined) {
        wait = tell.delta({ text: 'x'.repeat(10_000) })
      }
      held.resolve()
      await wait
      return { text: 'the second' }
    })
    await using served = await serve({ generator, clock })
    const socket = connect(served.port, '127.0.0.1')
    let text = ''
    socket.on('data', (chunk) => (text += chunk.toString()))
    socket.write(chat(served, hello) + chat(served, { ...hello, ...more }))
    await held.promise
    while (responses[1]?.headersSent !== true) await turn()
    for (let left = 10; left > 0; left--) await turn()
    await clock.advance(90_000)
    expect(socket.closed).toBe(false)
    first.resolve({ text: 'the first' })
    await Promise.all(responses.map((response) => once(response, 'close')))
    while (!/the second|DONE/.test(text)) await turn()
    expect(text).toContain('the first')
    expect(clock.pendingTimers).toBe(0)
    socket.destroy()
  })

  it('row 73: an answer is watched from its turn on', async () => {
    const clock = new ManualClock()
    const responses = watchResponses()
    const first = Promise.withResolvers<{ readonly text: string }>()
    const generator = new FakeGenerator(() =>
      generator.requests.length === 1 ? first.promise : { text: 'z'.repeat(long) },
    )
    await using served = await serve({ generator, clock })
    const socket = await openSilent(served.port, chat(served, hello).repeat(2))
    while (responses[1]?.headersSent !== true) await turn()
    first.resolve({ text: 'the first' })
    await stands(await socketOf(responses, 1))
    await clock.advance(60_000)
    const gone = once(socket, 'close')
    socket.resume()
    await gone
    expect(socket.bytesRead).toBeLessThan(long)
  })
})
