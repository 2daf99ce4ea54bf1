import { describe, expect, it } from 'vitest'
import type {
  GenerationDelta,
  GenerationEnd,
} from '../../../../src/inference/generation/inference-engine.ts'
import { toRequest } from '../generation.ts'
import { NoticedClock } from '../noticed-clock.ts'
import { cut, ends, hang, refuse, says, type Step, stream, used } from './fixtures/openai-server.ts'
import { openEngine } from './open-engine.ts'

describe('openai engine: a busy server', () => {
  it('openai engine: a busy server is asked again after Retry-After', async () => {
    const clock = new NoticedClock()
    const { engine, server, listener } = await openEngine({}, { clock })
    server.plan(refuse(429, {}, { 'retry-after': '3' }), refuse(503, {}))
    const done = engine.generate([toRequest('hello')], listener)
    await clock.timer(3000)
    await clock.advance(2999)
    expect(server.generations).toHaveLength(1)
    await clock.advance(1)
    await clock.timer(1000)
    await clock.advance(1000)
    await done
    expect(listener.textOf()).toBe('hello')
    expect(listener.ends).toMatchObject([{ kind: 'done' }])
    expect(server.generations).toHaveLength(3)
  })

  it('openai engine: a server that stays busy fails the request within limits', async () => {
    const clock = new NoticedClock()
    const { engine, server, listener } = await openEngine({}, { clock })
    const busy = refuse(429, { error: { message: 'quota' } }, { 'retry-after': '86400' })
    server.plan(busy, busy, busy)
    const done = engine.generate([toRequest('hello')], listener)
    for (const _ of [1, 2]) {
      await clock.timer(10_000)
      await clock.advance(10_000)
    }
    await done
    const error = { code: 'queue_full', cause: { message: 'quota' } }
    expect(listener.ends).toMatchObject([{ kind: 'failed', error }])
    expect(server.generations).toHaveLength(3)
  })

  it('openai engine: a busy server is asked again despite its endless body', async () => {
    const clock = new NoticedClock()
    const { engine, server, listener } = await openEngine({}, { clock })
    const endless: Step = (response) => {
      response.writeHead(429, { 'content-type': 'application/json', 'retry-after': '2' })
      response.write('{"error": {"message": "')
    }
    server.plan(endless, endless, endless)
    const done = engine.generate([toRequest('x')], listener)
    for (const at of [1, 2]) {
      await clock.timer(2000)
      expect([server.generations.length, clock.pendingTimers]).toEqual([at, 1])
      await clock.advance(2000)
    }
    // Only the client of the last one gets them.
    await clock.timer(5000)
    await clock.advance(5000)
    await done
    expect(listener.ends).toMatchObject([{ kind: 'failed', error: { code: 'queue_full' } }])
    expect(server.generations).toHaveLength(3)
  })

  it('openai engine: a busy server is not asked again for a canceled request', async () => {
    const clock = new NoticedClock()
    const { engine, server, listener } = await openEngine({}, { clock })
    server.plan(refuse(503, {}))
    const asker = new AbortController()
    const done = engine.generate([toRequest('x', {}, { signal: asker.signal })], listener)
    await clock.timer(1000)
    asker.abort()
    await done
    expect(listener.ends).toEqual([{ id: 'r1', kind: 'canceled' }])
    expect([server.generations.length, clock.pendingTimers]).toEqual([1, 0])
  })
})

describe('openai engine: a server that refuses', () => {
  it.each([
    [400, { error: { code: 'context_length_exceeded' } }, 'context_length_exceeded'],
    [400, { message: "This model's maximum context length is 8" }, 'context_length_exceeded'],
    [400, { error: { message: 'no grammar here' } }, 'unsupported'],
    [401, { error: { message: 'no' } }, 'upstream_error'],
    [302, {}, 'upstream_error'],
    [500, { error: { message: 'CUDA out of memory' } }, 'upstream_error'],
  ])(
    'openai engine: a refusal by %i %j fails that request alone as %s',
    async (status, body, code) => {
      const { engine, server, listener } = await openEngine()
      server.plan(refuse(status, body, { location: '/v1/models' }))
      await engine.generate([toRequest('x')], listener)
      await engine.generate([toRequest('y', {}, { id: 'r2' })], listener)
      expect(listener.ends).toMatchObject([
        { id: 'r1', kind: 'failed', error: { code } },
        { id: 'r2', kind: 'done' },
      ])
      expect(server.requests).toHaveLength(2)
    },
  )

  it.each([
    [400, 'unsupported'],
    [500, 'upstream_error'],
  ])(
    'openai engine: a refusal by %i with an endless body fails by the status',
    async (status, code) => {
      const clock = new NoticedClock()
      const { engine, server, listener } = await openEngine({}, { clock })
      server.plan((response) => {
        response.writeHead(status, { 'content-type': 'application/json' })
        response.write('{"error": {"message": "')
      })
      const done = engine.generate([toRequest('x')], listener)
      await clock.timer(5000)
      await clock.advance(5000)
      await done
      await engine.generate([toRequest('y', {}, { id: 'r2' })], listener)
      expect(listener.ends).toMatchObject([
        { id: 'r1', kind: 'failed', error: { code } },
        { id: 'r2', kind: 'done' },
      ])
    },
  )

  it('openai engine: a refusal with a long body is not read to the end', async () => {
    const { engine, server, listener } = await openEngine()
    let written = 0
    server.plan((response) => {
      response.writeHead(400, { 'content-type': 'text/plain' })
      const piece = 'x'.repeat(1 << 16)
      const write = (): void => {
        while (written < 1000 && !response.destroyed) {
          written++
          if (!response.write(piece)) return void response.once('drain', write)
        }
        response.end()
      }
      write()
    })
    await engine.generate([toRequest('x')], listener)
    expect(listener.ends).toMatchObject([{ kind: 'failed', error: { code: 'unsupported' } }])
    // 16 MB were read, and searched for words and secrets in one turn of the loop.
    expect(written).toBeLessThan(200)
  })

  it('openai engine: an error in the middle of a stream is the cause of the failure', async () => {
    const { engine, server, listener } = await openEngine()
    server.plan(stream(says('a'), { error: { message: 'worker died', code: 500 } }, says('b')))
    await engine.generate([toRequest('x')], listener)
    expect(listener.textOf()).toBe('a')
    const error = { code: 'upstream_error', cause: { message: 'worker died' } }
    expect(listener.ends).toMatchObject([{ kind: 'failed', error }])
  })

  it.each([
    ['no finish reason', stream(says('a'))],
    ['a chunk that is no JSON', stream(says('a'), undefined)],
  ])(
    'openai engine: a server that breaks the contract with %s fails the request',
    async (_, step) => {
      const { engine, server, listener } = await openEngine()
      server.plan(step)
      await engine.generate([toRequest('x')], listener)
      expect(listener.ends).toMatchObject([
        { kind: 'failed', error: { code: 'EngineContractError' } },
      ])
    },
  )
})

describe('openai engine: a broken connection', () => {
  it('openai engine: a connection that breaks in a response fails that request alone', async () => {
    const { engine, server, listener } = await openEngine()
    server.plan(cut(says('a'), says('b')))
    await engine.generate([toRequest('x'), toRequest('y', {}, { id: 'r2' })], listener)
    expect(listener.ends.toSorted((a, b) => a.id.localeCompare(b.id))).toMatchObject([
      { id: 'r1', kind: 'failed', error: { code: 'engine_error' } },
      { id: 'r2', kind: 'done' },
    ])
    expect(server.generations).toHaveLength(2)
  })

  it('openai engine: a connection that breaks before the response is retried once', async () => {
    const { engine, server, listener } = await openEngine()
    server.plan(cut())
    await engine.generate([toRequest('hello')], listener)
    expect(listener.textOf()).toBe('hello')
    expect(listener.ends).toMatchObject([{ kind: 'done' }])
    expect(server.generations).toHaveLength(2)
    server.plan(cut(), cut())
    await engine.generate([toRequest('hello', {}, { id: 'r2' })], listener)
    const error = { code: 'engine_error' }
    expect(listener.ends[1]).toMatchObject({ id: 'r2', kind: 'failed', error })
    expect(server.generations).toHaveLength(4)
  })

  it('openai engine: a server that is gone loses the engine: running requests reject', async () => {
    const clock = new NoticedClock()
    const { engine, server, listener } = await openEngine({}, { clock })
    const { url } = server
    server.plan(hang(says('a')), hang())
    const requests = [toRequest('x'), toRequest('y', {}, { id: 'r2' })]
    const done = engine.generate(requests, listener)
    const checked = expect(done).rejects.toMatchObject({ code: 'engine_lost' })
    await Promise.all([listener.begun, server.arrived(2)])
    await server.close()
    for (const _ of [1, 2]) {
      await clock.timer(1000)
      await clock.advance(1000)
    }
    await checked
    expect(await engine.lost()).toBe(`the server at ${url} does not respond anymore`)
    expect(listener.ends).toEqual([])
    await expect(engine.generate([toRequest('x')], listener)).rejects.toMatchObject({
      code: 'engine_lost',
    })
  })

  it('openai engine: a server that only responds with errors loses the engine', async () => {
    const clock = new NoticedClock()
    const { engine, server, listener } = await openEngine({}, { clock })
    server.plan(cut(says('a')))
    server.answerModelsWith(502)
    const done = engine.generate([toRequest('x')], listener)
    const checked = expect(done).rejects.toMatchObject({ code: 'engine_lost' })
    for (const _ of [1, 2]) {
      await clock.timer(1000)
      await clock.advance(1000)
    }
    await checked
    expect(server.requests.filter(({ path }) => path === '/v1/models')).toHaveLength(3)
  })
})

describe('openai engine: canceling', () => {
  it('openai engine: a canceled request ends at the server, as canceled', async () => {
    const { engine, server, listener } = await openEngine()
    server.plan(hang(says('a')))
    const asker = new AbortController()
    const done = engine.generate([toRequest('x', {}, { signal: asker.signal })], listener)
    await listener.begun
    asker.abort()
    await done
    await server.left
    expect(listener.ends).toEqual([{ id: 'r1', kind: 'canceled' }])
    expect(server.requests).toHaveLength(1)
  })

  it('openai engine: a canceled request discards text that had arrived already', async () => {
    const { engine, server, listener } = await openEngine()
    server.plan(stream(says('a'), says('b'), ends(), used(1, 2)))
    const asker = new AbortController()
    const leaving = {
      delta: (id: string, delta: GenerationDelta) => {
        asker.abort()
        return listener.delta(id, delta)
      },
      end: (id: string, end: GenerationEnd) => listener.end(id, end),
    }
    await engine.generate([toRequest('x', {}, { signal: asker.signal })], leaving)
    expect(listener.textOf()).toBe('a')
    expect(listener.ends).toEqual([{ id: 'r1', kind: 'canceled' }])
  })

  it('openai engine: a cancellation does not wait for a slow reader', async () => {
    const { engine, server, listener } = await openEngine()
    server.plan(stream(says('a'), says('b'), ends(), used(1, 2)))
    listener.hold = new Promise(() => {})
    const asker = new AbortController()
    const done = engine.generate([toRequest('x', {}, { signal: asker.signal })], listener)
    await listener.begun
    asker.abort()
    await done
    expect(listener.ends).toEqual([{ id: 'r1', kind: 'canceled' }])
    expect(listener.textOf()).toBe('a')
  })

  it('openai engine: a cancellation before the start sends nothing to the server', async () => {
    const { engine, server, listener } = await openEngine()
    await engine.generate([toRequest('x', {}, { signal: AbortSignal.abort() })], listener)
    expect(listener.ends).toEqual([{ id: 'r1', kind: 'canceled' }])
    expect(server.requests).toEqual([])
  })

  it('openai engine: close() ends all requests, and may be called twice', async () => {
    const { engine, server, listener } = await openEngine()
    server.plan(hang(says('a')))
    const done = engine.generate([toRequest('x')], listener)
    await listener.begun
    const closing = engine.close()
    expect(engine.close()).toBe(closing)
    await closing
    expect(listener.ends).toMatchObject([{ kind: 'failed', error: { code: 'closing' } }])
    await Promise.all([done, server.left])
    await engine.generate([toRequest('x', {}, { id: 'late' })], listener)
    expect(listener.ends).toMatchObject([{}, { id: 'late', error: { code: 'closing' } }])
    expect(server.requests).toHaveLength(1)
  })
})
