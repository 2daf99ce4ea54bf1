import { once } from 'node:events'
import { type AddressInfo, connect, createServer } from 'node:net'
import { describe, expect, it } from 'vitest'
import { InferenceError, ValueError } from '../../../src/foundation/errors.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import type { GenerationResult } from '../../../src/inference/generation/text-generator.ts'
import { FakeGenerator, silent } from './fake-generator.ts'
import { ask, hello, post, serve } from './served.ts'

const chatPath = '/v1/chat/completions'

describe('starting the server', () => {
  it('row 82: the error of a port in use names it, with a hint', async () => {
    const owner = createServer()
    owner.listen(0, '127.0.0.1')
    await once(owner, 'listening')
    const { port } = owner.address() as AddressInfo
    const error = await serve({ port }).catch((thrown: unknown) => thrown)
    owner.close()
    expect(InferenceError.isInstance(error)).toBe(true)
    expect(error).toMatchObject({
      code: 'port_in_use',
      message: `port ${port} in use; try --port 0`,
      hint: expect.stringMatching(`\`useService: false\`.*${port}`),
    })
  })

  it('row 82: invalid addresses are rejected with the field', async () => {
    for (const port of [70_000, -1, 1.5, Number.NaN]) {
      await expect(serve({ port })).rejects.toMatchObject({ name: 'ValueError', field: 'port' })
    }
    const unknown = await serve({ host: 'no-such-host.invalid', port: 8123, apiKey: 'k' }).catch(
      (thrown: unknown) => thrown,
    )
    expect(unknown).toMatchObject({
      code: 'host_unknown',
      message: expect.stringContaining('8123'),
    })
    const foreign = await serve({ host: '203.0.113.7', port: 8123, apiKey: 'k' }).catch(
      (thrown: unknown) => thrown,
    )
    expect(foreign).toMatchObject({ code: 'host_unknown' })
  })

  it('a host that other machines can reach requires an API key', async () => {
    for (const host of ['0.0.0.0', '::', 'example.org', '10.0.0.1', '127.0.0.1.evil.com']) {
      const error = await serve({ host, apiKey: null }).catch((thrown: unknown) => thrown)
      expect(ValueError.isInstance(error), host).toBe(true)
      expect(error).toMatchObject({ field: 'apiKey' })
    }
    for (const host of ['localhost', '127.0.0.1']) {
      await using served = await serve({ host })
      expect((await ask(`${served.url}/health`)).status).toBe(200)
    }
    await expect(serve({ apiKey: '' })).rejects.toThrow('`apiKey`')
  })

  it('invalid limits are rejected', async () => {
    const bad = [{ depth: 0 }, { bodyBytes: 1.5 }, { slowReaderSeconds: -1 }, { isStrict: 1 }]
    for (const limits of bad) {
      await expect(serve({ limits: limits as object })).rejects.toThrow(/Expected `limits\./)
    }
    await expect(serve({ limits: { dept: 3 } as object })).rejects.toThrow('did you mean "depth"?')
  })
})

describe('stopping the server', () => {
  /** A generator that holds its requests until `release()`. */
  function heldGenerator(): { readonly generator: FakeGenerator; readonly release: () => void } {
    const held = Promise.withResolvers<Partial<GenerationResult>>()
    return {
      generator: new FakeGenerator(() => held.promise),
      release: () => held.resolve({ text: 'done' }),
    }
  }

  async function asked(generator: FakeGenerator, count: number): Promise<void> {
    while (generator.requests.length < count) await new Promise((resolve) => setImmediate(resolve))
  }

  it('row 83: while draining, new requests get 503 and running ones finish', async () => {
    const { generator, release } = heldGenerator()
    await using served = await serve({ generator })
    const old = Array.from({ length: 100 }, () => post(`${served.url}${chatPath}`, hello))
    await asked(generator, 100)
    const idle = connect(served.port, '127.0.0.1')
    await once(idle, 'connect')
    served.server.beginDraining()
    const health = await ask(`${served.url}/health`)
    expect([health.status, health.json.status]).toEqual([503, 'unhealthy'])
    expect(health.json.reason).toBe('the server is closing')
    expect((await ask(`${served.url}/health/ready`)).status).toBe(503)
    expect((await ask(`${served.url}/health/live`)).status).toBe(200)
    const late = await post(`${served.url}${chatPath}`, hello)
    expect([late.status, late.json.error.code]).toEqual([503, 'closing'])
    expect(late.headers.get('connection')).toBe('close')
    const stopped = served.server.stop()
    const later = await post(`${served.url}${chatPath}`, hello)
    expect(later.status).toBe(503)
    release()
    for (const reply of await Promise.all(old)) {
      expect(reply.status).toBe(200)
      expect(reply.json.choices[0].message.content).toBe('done')
    }
    await stopped
    if (!idle.destroyed) await once(idle, 'close')
    await expect(fetch(`${served.url}/health`)).rejects.toThrow()
    expect(generator.requests).toHaveLength(100)
  })

  it('row 83: a request that does not finish in time is aborted with an error', async () => {
    const clock = new ManualClock()
    const generator = new FakeGenerator(async (request, tell) => {
      if (generator.requests.length % 2 === 0) await tell.delta?.({ text: 'begun' })
      return silent(request, tell)
    })
    const served = await serve({ generator, clock, limits: { drainSeconds: 30 } })
    const body = { ...hello, stream: true }
    const pending = Array.from({ length: 10 }, () => post(`${served.url}${chatPath}`, body))
    await asked(generator, 10)
    const stopped = served.server.stop()
    await clock.advance(0)
    await clock.advance(29_999)
    expect(generator.requests.some(({ signal }) => signal.aborted)).toBe(false)
    await clock.advance(1)
    const replies = await Promise.all(pending)
    const cut = replies.filter(({ status }) => status === 200)
    expect([cut.length, replies.length]).toEqual([5, 10])
    for (const { status, text } of replies) {
      expect(text).toContain('The server is closing.')
      expect([200, 503]).toContain(status)
      if (status === 200) expect(text).toMatch(/begun[\s\S]*"error"[\s\S]*data: \[DONE\]\n\n$/)
    }
    await stopped
    expect(generator.requests.every(({ signal }) => signal.aborted)).toBe(true)
    expect(clock.pendingTimers).toBe(0)
  })

  it('an idle server stops immediately, also twice and without a start', async () => {
    const clock = new ManualClock()
    const served = await serve({ clock })
    const idle = connect(served.port, '127.0.0.1')
    await once(idle, 'connect')
    await ask(`${served.url}/health`)
    const first = served.server.stop()
    expect(served.server.stop()).toBe(first)
    await first
    if (!idle.destroyed) await once(idle, 'close')
    expect(clock.pendingTimers).toBe(0)
  })
})
