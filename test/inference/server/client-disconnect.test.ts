import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { describe, expect, it } from 'vitest'
import type { PromptRequest } from '../../../src/inference/generation/text-generator.ts'
import { inferenceError } from '../../../src/inference/generation/inference-errors.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { FakeGenerator, type Script, silent } from './fake-generator.ts'
import { hello, post, raw, serve, type Served } from './served.ts'
import { byRun } from '../../long-run.ts'

const cycles = byRun(200, 10_000)

/** With `isLast`, the server closes the connection after its response. */
function requestOf(path: string, body: object, isLast = false): string {
  const text = JSON.stringify(body)
  return (
    `POST ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n` +
    `Content-Length: ${text.length}\r\n${isLast ? 'Connection: close\r\n' : ''}\r\n${text}`
  )
}

async function open(served: Served, text: string): Promise<Socket> {
  const socket = connect(served.port, '127.0.0.1')
  socket.on('error', () => {})
  await once(socket, 'connect')
  socket.write(text)
  return socket
}

/** A generator that lets a test wait for each request and for its abort. */
class WatchedGenerator extends FakeGenerator {
  readonly #waiting: ((request: PromptRequest) => void)[] = []
  readonly #arrived: PromptRequest[] = []

  constructor(script: Script) {
    super((request, tell) => {
      const next = this.#waiting.shift()
      if (next === undefined) this.#arrived.push(request)
      else next(request)
      return script(request, tell)
    })
  }

  next(): Promise<PromptRequest> {
    const arrived = this.#arrived.shift()
    if (arrived !== undefined) return Promise.resolve(arrived)
    return new Promise((resolve) => this.#waiting.push(resolve))
  }
}

const aborted = ({ signal }: PromptRequest): Promise<unknown> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve(signal.reason)
    else signal.addEventListener('abort', () => resolve(signal.reason))
  })

const streaming: Script = async (request, tell) => {
  await tell.delta?.({ text: 'begun' })
  return silent(request, tell)
}

describe('clients that disconnect', () => {
  it('row 76: a disconnect cancels the request, waiting or streaming', async () => {
    const paths: readonly (readonly [string, object, Script])[] = [
      ['/v1/chat/completions', hello, silent],
      ['/v1/chat/completions', { ...hello, stream: true }, silent],
      ['/v1/chat/completions', { ...hello, stream: true }, streaming],
      ['/v1/completions', { prompt: ['a', 'b'], stream: true }, streaming],
      ['/generate', { prompts: ['a', 'b', 'c'] }, silent],
    ]
    for (const [path, body, script] of paths) {
      const watched = new WatchedGenerator(script)
      await using one = await serve({ generator: watched })
      const socket = await open(one, requestOf(path, body))
      const request = await watched.next()
      expect(request.signal.aborted).toBe(false)
      if (script === streaming) await once(socket, 'data')
      socket.destroy()
      await expect(aborted(request)).resolves.toMatchObject({ code: 'canceled' })
      for (const asked of watched.requests) expect(asked.signal.aborted).toBe(true)
      expect(one.log.lines).toEqual([])
    }
  })

  it('row 76: a disconnect cancels the queued requests of a pipelining client, too', async () => {
    const generator = new WatchedGenerator(silent)
    await using served = await serve({ generator })
    const socket = await open(served, requestOf('/v1/chat/completions', hello).repeat(5))
    const requests = await Promise.all(Array.from({ length: 5 }, () => generator.next()))
    socket.destroy()
    await Promise.all(requests.map(aborted))
    expect(generator.requests).toHaveLength(5)
  })

  it('row 76: a disconnect releases a paused stream whose turn has not come', async () => {
    const held = Promise.withResolvers<void>()
    const released = Promise.withResolvers<void>()
    const generator = new FakeGenerator(async (request, tell) => {
      if (generator.requests.length === 1) return silent(request, tell)
      let wait: Promise<void> | undefined
      while (wait === undefined) wait = tell.delta?.({ text: 'x'.repeat(10_000) })
      held.resolve()
      await wait
      released.resolve()
      throw request.signal.reason
    })
    await using served = await serve({ generator, clock: new ManualClock() })
    const first = requestOf('/v1/chat/completions', hello)
    const second = requestOf('/v1/chat/completions', { ...hello, stream: true })
    const socket = await open(served, first + second)
    await held.promise
    socket.destroy()
    await released.promise
  })

  it('row 76: many connects and disconnects leave nothing behind', async () => {
    const generator = new WatchedGenerator(streaming)
    await using served = await serve({ generator })
    for (let cycle = 0; cycle < cycles; cycle++) {
      const isStream = cycle % 2 === 0
      const body = requestOf('/v1/chat/completions', { ...hello, stream: isStream })
      const socket = await open(served, body)
      const request = await generator.next()
      socket.destroy()
      await aborted(request)
    }
    expect(generator.requests).toHaveLength(cycles)
    generator.script = () => ({ text: 'still here' })
    const reply = await post(`${served.url}/v1/chat/completions`, hello)
    expect(reply.json.choices[0].message.content).toBe('still here')
  })

  it('a request is not canceled while its client is connected', async () => {
    await using served = await serve()
    await post(`${served.url}/v1/chat/completions`, { ...hello, stream: true })
    expect(served.generator.requests[0]?.signal.aborted).toBe(false)
  })
})

describe('errors of a running request', () => {
  const chatPath = '/v1/chat/completions'

  it('row 80: an error after the head is sent as an event, and the response ends', async () => {
    const generator = new FakeGenerator(async (_, tell) => {
      await tell.delta?.({ text: 'so far' })
      throw inferenceError('engine_timeout', 'engine 10.0.0.7 hangs')
    })
    await using served = await serve({ generator })
    const answer = await raw(served.port, requestOf(chatPath, { ...hello, stream: true }, true))
    expect(answer).toMatch(/^HTTP\/1\.1 200 /)
    const events = [...answer.matchAll(/^data: (.*)$/gm)].map(([, data]) => data ?? '')
    expect(events.at(-1)).toBe('[DONE]')
    expect(JSON.parse(events.at(-2) ?? '')).toEqual({
      error: {
        message: expect.stringMatching(
          /^The engine did not answer in time\. Request id: req_\w+\.$/,
        ),
        type: 'timeout_error',
        param: null,
        code: 'engine_timeout',
      },
    })
    expect(events.slice(0, -2).join('')).toContain('so far')
    expect(events.join('')).not.toContain('finish_reason":"stop')
    expect(answer.endsWith('0\r\n\r\n')).toBe(true)
  })

  it('row 80: when one choice fails, the others are canceled', async () => {
    const generator = new FakeGenerator(async (request, tell) => {
      await tell.delta?.({ text: 'x' })
      if (request.sampling.seed === 8) throw new Error('boom')
      return silent(request, tell)
    })
    await using served = await serve({ generator })
    const body = { ...hello, stream: true, n: 3, seed: 7 }
    const answer = await raw(served.port, requestOf(chatPath, body, true))
    expect(answer).toContain('"engine_error"')
    expect(generator.requests.map(({ sampling }) => sampling.seed)).toEqual([7, 8, 9])
    for (const { signal } of generator.requests) expect(signal.aborted).toBe(true)
  })

  it('row 80: text of a choice is not sent after another choice has failed', async () => {
    const flooded = Promise.withResolvers<void>()
    const late = Promise.withResolvers<void>()
    const generator = new FakeGenerator(async (request, tell) => {
      if (request.sampling.seed === 8) {
        await flooded.promise
        throw new Error('boom')
      }
      // More than the socket buffers hold, so that the end is not sent when the rest comes.
      for (let at = 0; at < 200; at++) void tell.delta?.({ text: 'x'.repeat(100_000) })
      flooded.resolve()
      await Promise.resolve(silent(request, tell)).catch(() => {})
      for (let turn = 0; turn < 10; turn++) {
        await new Promise((resolve) => setImmediate(resolve))
        void tell.delta?.({ text: 'late' })
      }
      late.resolve()
      return { text: 'late' }
    })
    await using served = await serve({ generator })
    const body = { ...hello, stream: true, n: 2, seed: 7 }
    const socket = await open(served, requestOf(chatPath, body, true))
    await late.promise
    let tail = ''
    socket.on('data', (chunk) => (tail = (tail + chunk.toString()).slice(-1000)))
    await new Promise((resolve) => socket.once('close', resolve))
    expect(tail).toMatch(/"error".*\n\ndata: \[DONE\]\n\n\r\n0\r\n\r\n$/)
    expect(tail).not.toContain('late')
  })

  it('row 84: the message of an engine is logged, the client gets a fixed sentence', async () => {
    const canary = 'cannot open /data/ann/model.gguf with hf_canaryToken at 10.1.2.3:5000'
    const codes = ['engine_error', 'EngineContractError', 'engine_lost', 'not_ready'] as const
    const thrown: unknown[] = [
      ...codes.map((code) => inferenceError(code, canary)),
      new Error('it failed', { cause: new Error(canary) }),
      canary,
      Object.assign(new Error(canary), { code: 'queue_full' }),
      null,
    ]
    const statuses: number[] = []
    for (const error of thrown) {
      await using served = await serve({
        generator: new FakeGenerator(() => {
          throw error
        }),
      })
      for (const [path, body] of [
        [chatPath, hello],
        [chatPath, { ...hello, stream: true }],
        ['/generate', { prompts: ['a'] }],
      ] as const) {
        const reply = await post(`${served.url}${path}`, body, { 'x-request-id': 'find-me' })
        statuses.push(reply.status)
        expect(reply.text).not.toMatch(/gguf|canary|10\.1\.2\.3|ann/)
        expect(reply.text).toContain('Request id: find-me.')
        const line = served.log.lines.at(-1)
        expect(line).toContain('find-me')
        if (error !== null) expect(line).toContain(canary)
      }
    }
    const server = [500, 500, 500]
    const away = [503, 503, 503]
    expect(statuses).toEqual([server, server, away, away, server, server, server, server].flat())
  })

  it('row 84: the client gets our own error messages, with a hint', async () => {
    const shown = [
      ['content_filter', 400, 'content_filter'],
      ['context_length_exceeded', 400, 'context_length_exceeded'],
      ['unsupported', 400, 'unsupported_value'],
      ['request_timeout', 504, 'request_timeout'],
    ] as const
    for (const [code, status, told] of shown) {
      await using served = await serve({
        generator: new FakeGenerator(() => {
          throw inferenceError(code, 'This is why.', { hint: 'do that' })
        }),
      })
      const reply = await post(`${served.url}${chatPath}`, hello)
      expect(reply.status).toBe(status)
      expect(reply.json.error).toMatchObject({ code: told, message: 'This is why. (do that)' })
      expect(served.log.lines).toEqual([])
    }
  })

  it('row 84: /generate returns an error entry for a blocked prompt', async () => {
    await using served = await serve({
      generator: new FakeGenerator(() => {
        throw inferenceError('content_filter', 'A rule rejected it.')
      }),
    })
    const reply = await post(`${served.url}/generate`, { prompts: ['a'] })
    expect(reply.status).toBe(200)
    expect(reply.json.results).toEqual([
      { error: { code: 'content_filter', message: 'A rule rejected it.' } },
    ])
  })
})
