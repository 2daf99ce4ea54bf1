import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { describe, expect, it } from 'vitest'
import { FakeGenerator } from './fake-generator.ts'
import { ask, hello, serve, type Served } from './served.ts'
import { byRun } from '../../long-run.ts'

const crowd = byRun(200, 10_000)

const health = 'GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n'
const chatText = JSON.stringify(hello)
const chatHead =
  'POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n' +
  `Content-Length: ${chatText.length}\r\n\r\n`

async function open(served: Served, text = ''): Promise<Socket> {
  const socket = connect(served.port, '127.0.0.1')
  socket.on('error', () => {})
  await once(socket, 'connect')
  if (text !== '') socket.write(text)
  return socket
}

async function answerOf(socket: Socket): Promise<string> {
  const [chunk] = (await once(socket, 'data')) as [Buffer]
  return chunk.toString().slice(0, 12)
}

async function closeOf(socket: Socket): Promise<void> {
  socket.resume()
  if (!socket.closed) await new Promise((resolve) => socket.once('close', resolve))
}

/** A generator that holds its requests until the test answers them. */
function heldGenerator(): {
  readonly generator: FakeGenerator
  readonly asked: (count: number) => Promise<void>
  readonly answer: () => void
} {
  const held = Promise.withResolvers<{ readonly text: string }>()
  const generator = new FakeGenerator(() => held.promise)
  return {
    generator,
    asked: async (count) => {
      while (generator.requests.length < count)
        await new Promise((resolve) => setImmediate(resolve))
    },
    answer: () => held.resolve({ text: 'at last' }),
  }
}

describe('the connection limit', () => {
  it('an idle connection stays open for 75 s', async () => {
    await using served = await serve()
    const { headers } = await fetch(`${served.url}/health`)
    expect(headers.get('keep-alive')).toMatch(/^timeout=75\b/)
  })

  it('row 74: idle connections are closed for new ones, the oldest first', async () => {
    await using served = await serve({ limits: { maxConnections: 3 } })
    const silent = [await open(served), await open(served), await open(served)]
    for (const socket of silent) {
      expect(await answerOf(await open(served, health))).toBe('HTTP/1.1 200')
      await closeOf(socket)
      const younger = silent.slice(silent.indexOf(socket) + 1)
      expect(younger.every(({ closed }) => !closed)).toBe(true)
    }
  })

  it('row 74: a regular client is served during a flood', async () => {
    await using served = await serve({ limits: { maxConnections: 20 } })
    const flood: Socket[] = []
    for (let at = 0; at < crowd; at++) flood.push(await open(served, at % 2 === 0 ? '' : 'GET /he'))
    expect((await ask(`${served.url}/health`)).status).toBe(200)
    await Promise.all(flood.slice(0, crowd - 20).map(closeOf))
    for (const socket of flood) socket.destroy()
  })

  it('row 74: running requests are not dropped, the new connection is closed', async () => {
    const { generator, asked, answer } = heldGenerator()
    await using served = await serve({ generator, limits: { maxConnections: 2 } })
    const busy = [await open(served, chatHead + chatText), await open(served, chatHead + chatText)]
    await asked(2)
    for (let at = 0; at < 5; at++) await closeOf(await open(served, health))
    const answers = busy.map(answerOf)
    answer()
    expect(await Promise.all(answers)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 200'])
    // Both are idle now.
    expect(await answerOf(await open(served, health))).toBe('HTTP/1.1 200')
  })

  it('row 74: a connection with an incomplete body is closed after idle ones', async () => {
    const { generator, asked, answer } = heldGenerator()
    await using served = await serve({ generator, limits: { maxConnections: 3 } })
    const busy = await open(served, chatHead + chatText)
    await asked(1)
    const slow = await open(served, `${chatHead}{`)
    const idle = await open(served, health)
    expect(await answerOf(idle)).toBe('HTTP/1.1 200')
    const next = await open(served, chatHead + chatText)
    await closeOf(idle)
    await asked(2)
    expect(slow.closed).toBe(false)
    expect(await answerOf(await open(served, health))).toBe('HTTP/1.1 200')
    await closeOf(slow)
    const answers = [answerOf(busy), answerOf(next)]
    answer()
    expect(await Promise.all(answers)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 200'])
  })

  it('row 74: a recently used connection is closed after one that was never used', async () => {
    await using served = await serve({ limits: { maxConnections: 2 } })
    const used = await open(served)
    const silent = await open(served)
    used.write(health)
    expect(await answerOf(used)).toBe('HTTP/1.1 200')
    expect(await answerOf(await open(served, health))).toBe('HTTP/1.1 200')
    await closeOf(silent)
    used.write(health)
    expect(await answerOf(used)).toBe('HTTP/1.1 200')
  })
})
