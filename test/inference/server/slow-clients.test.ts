import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import { connect, type Socket } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { FakeGenerator } from './fake-generator.ts'
import { ask, hello, raw, serve, type Served } from './served.ts'
import { eventually } from '../../eventually.ts'
import { byRun } from '../../long-run.ts'

/** More than the socket buffers hold. */
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

/** Opens a connection that reads nothing until `resume()`. */
async function openSilent(port: number, text: string): Promise<Socket> {
  const socket = connect(port, '127.0.0.1')
  socket.on('error', () => {})
  await once(socket, 'connect')
  socket.pause()
  socket.write(text)
  return socket
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

/** The responses of the server, in the order of their requests. */
function watchResponses(): readonly ServerResponse[] {
  const responses: ServerResponse[] = []
  const note = (message: unknown): void => {
    responses.push((message as { readonly response: ServerResponse }).response)
  }
  subscribe('http.server.request.start', note)
  onTestFinished(() => void unsubscribe('http.server.request.start', note))
  return responses
}

/** The bytes that the kernel has accepted from the socket of the server. */
const taken = ({ bytesWritten, writableLength }: Socket): number => bytesWritten - writableLength

/** Waits until the socket buffers are full. */
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
  it('row 73: heads and bodies that arrive too late get 408, others are served', async () => {
    await using served = await serve({
      limits: { headersTimeoutMs: 300, requestTimeoutMs: 600, connectionsCheckMs: 50 },
    })
    const slow = Array.from({ length: crowd }, (_, at) =>
      raw(served.port, at % 2 === 0 ? 'POST /generate HTTP/1.1\r\nHo' : chatHead(served, 10)),
    )
    // A busy machine may be too late with these as well.
    const isServed = async (): Promise<void> =>
      expect((await ask(`${served.url}/health`)).status).toBe(200)
    await eventually(isServed)
    const answers = await Promise.all(slow)
    for (const answer of answers) {
      expect(answer).toMatch(/^HTTP\/1\.1 408 /)
      expect(answer).toContain('"request_timeout"')
      expect(answer).toContain('"timeout_error"')
    }
    expect(served.generator.requests).toEqual([])
    await eventually(isServed)
  })

  it('row 73: a stream that is not read pauses its generation, then is canceled', async () => {
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
    // The socket buffers may accept some more before the generation is paused for good.
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

  it('row 73: a paused generation resumes when its client reads again', async () => {
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

  it('row 73: a response that is not read is cut off', async () => {
    const clock = new ManualClock()
    const responses = watchResponses()
    const generator = new FakeGenerator(() => ({ text: 'z'.repeat(long) }))
    await using served = await serve({ generator, clock })
    const socket = await openSilent(served.port, chat(served, hello))
    while (clock.pendingTimers === 0) await turn()
    await stands(await socketOf(responses, 0))
    // At the first check, the bytes in the socket buffers count as read.
    await clock.advance(60_000)
    const gone = once(socket, 'close')
    socket.resume()
    await gone
    expect(socket.bytesRead).toBeLessThan(long)
    expect(clock.pendingTimers).toBe(0)
  })

  it('row 73: a response that is read slowly but steadily is not cut off', async () => {
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
    ['a response', {}],
    ['a stream', { stream: true }],
  ])('row 73: %s behind another one of its connection is not cut off', async (_, more) => {
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

  it('row 73: a pipelined response is watched only from its turn on', async () => {
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
