import { describe, expect, it } from 'vitest'
import { facts, openPool } from './open-pool.ts'
import { TestClient } from './test-client.ts'

describe('starting an engine pool', () => {
  it('the start of an engine pool resolves with the model when an engine serves', async () => {
    const { pool, puppet, puppets, pass } = openPool(2)
    expect(() => pool.model).toThrow('no engine has started yet')
    expect([pool.unreadyReason, pool.workers]).toEqual(['not started', 0])
    const starting = pool.start()
    expect(puppets.map(({ worker }) => worker)).toEqual([
      { index: 0, workerId: 'inference-0' },
      { index: 1, workerId: 'inference-1' },
    ])
    expect(pool.unreadyReason).toBe('inference-0 is starting')
    await expect(pool.tokenize('text')).rejects.toMatchObject({ code: 'not_ready' })
    puppet(1).begun.resolve(facts)
    await starting
    expect([pool.model, pool.workers, pool.unreadyReason]).toEqual([facts, 1, null])
    puppet(0).begun.resolve(facts)
    await pass(0)
    expect(pool.workers).toBe(2)
    expect(await pool.tokenize('text')).toEqual([0, 1, 2, 3])
    await pool.stop()
  })

  it('row 79: the start rejects with the first error when no engine starts', async () => {
    const { pool, puppets, puppet, pass, clock, warnings } = openPool(3)
    const starting = pool.start()
    puppet(1).begun.reject(new Error('out of memory'))
    puppet(0).begun.reject(new Error('no such model'))
    puppet(2).begun.reject(new Error('no such model'))
    await expect(starting).rejects.toThrow('no such model')
    // The rejection is not logged again; the error of the other engine is.
    expect(warnings).toEqual(['EngineStartFailed: inference-1 did not start: out of memory'])
    expect(puppets.map(({ closes }) => closes)).toEqual([1, 1, 1])
    await pass(60_000)
    expect([puppets.length, clock.pendingTimers]).toEqual([3, 0])
    await pool.stop()
  })

  it('the start of an engine pool continues while another engine is restarted', async () => {
    const { pool, puppet, puppets, pass, warnings } = openPool(2)
    const starting = pool.start()
    puppet(0).begun.reject(new Error('out of memory'))
    puppet(1).begun.resolve(facts)
    await starting
    expect(warnings).toEqual(['EngineStartFailed: inference-0 did not start: out of memory'])
    await pass(500)
    puppet(2).begun.resolve(facts)
    await pass(0)
    expect([pool.workers, puppets.length]).toEqual([2, 3])
    await pool.stop()
  })

  it('an engine pool warns of an engine that keeps failing once another one serves', async () => {
    const { pool, puppet, pass, warnings } = openPool(2)
    const starting = pool.start()
    puppet(0).begun.reject(new Error('out of memory'))
    await pass(500)
    puppet(2).begun.reject(new Error('out of memory'))
    await pass(0)
    expect(warnings).toEqual([])
    puppet(1).begun.resolve(facts)
    await starting
    const warning = 'EngineStartFailed: inference-0 did not start: out of memory'
    expect(warnings).toEqual([warning])
    await pass(1000)
    puppet(3).begun.reject(new Error('out of memory'))
    await pass(0)
    expect(warnings).toEqual([warning, warning])
    await pool.stop()
  })

  it('the start resolves if a failed engine serves before the last one fails', async () => {
    const { pool, puppet, pass } = openPool(2)
    const starting = pool.start()
    puppet(0).begun.reject(new Error('out of memory'))
    await pass(500)
    puppet(2).begun.resolve(facts)
    await pass(0)
    puppet(1).begun.reject(new Error('out of memory'))
    await starting
    expect([pool.workers, pool.unreadyReason]).toEqual([1, null])
    await pool.stop()
  })

  it('the start of an engine pool is abandoned by stop()', async () => {
    const { pool, puppet } = openPool()
    const starting = pool.start()
    const stopping = pool.stop()
    await expect(starting).rejects.toMatchObject({ code: 'closing' })
    await stopping
    expect([puppet(0).closes, pool.unreadyReason]).toEqual([1, 'closed'])
    expect(pool.stop()).toBe(stopping)
  })
})

describe('an engine pool that loses an engine', () => {
  it('row 79: an engine pool restarts a lost engine, which gets its requests', async () => {
    const { pool, puppet, puppets, pass, serve, losses, send } = openPool()
    await serve()
    const one = send('a')
    await pass(0)
    expect(puppet(0).asked).toEqual(['a'])
    puppet(0).loss.resolve('killed by SIGKILL')
    await pass(0)
    expect([pool.unreadyReason, pool.workers]).toEqual([
      'inference-0 was lost: killed by SIGKILL',
      0,
    ])
    expect([losses, puppet(0).closes]).toEqual([['inference-0: killed by SIGKILL'], 1])
    await pass(499)
    expect(puppets).toHaveLength(1)
    await pass(1)
    puppet(1).begun.resolve(facts)
    await pass(0)
    expect([puppet(1).worker.workerId, puppet(1).asked]).toEqual(['inference-0', ['a']])
    puppet(1).answer()
    expect([one.outcome, pool.unreadyReason]).toEqual(['done', null])
    await pool.stop()
  })

  it('row 79: an engine_lost rejection of a batch counts as a loss', async () => {
    const { pool, puppet, pass, serve, losses, send } = openPool()
    await serve()
    send('a')
    await pass(0)
    puppet(0).crash()
    await pass(0)
    expect([losses, puppet(0).closes]).toEqual([['inference-0: SEGV'], 1])
    await pool.stop()
  })

  it('row 79: an engine that does not end an aborted request counts as lost', async () => {
    const { pool, puppet, pass, serve, losses, send } = openPool()
    await serve()
    puppet(0).isMute = true
    const one = send('a')
    await pass(1000)
    expect([one.outcome, losses]).toEqual(['engine_timeout', []])
    await pass(1000)
    expect(losses).toEqual(['inference-0: an aborted request had not ended after 1 s'])
    await pass(500)
    puppet(1).begun.resolve(facts)
    const next = send('b')
    await pass(0)
    puppet(1).answer()
    expect(next.outcome).toBe('done')
    await pool.stop()
  })

  it('row 79: an engine pool restarts with exponential back-off, and status says why', async () => {
    const { pool, puppets, puppet, pass, serve, warnings } = openPool()
    await serve()
    puppet(0).loss.resolve('gone')
    await pass(0)
    for (const [at, pauseMs] of [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000].entries()) {
      await pass(pauseMs - 1)
      expect(puppets).toHaveLength(at + 1)
      await pass(1)
      expect(puppets).toHaveLength(at + 2)
      puppet(at + 1).begun.reject(new Error('no memory'))
      await pass(0)
      expect(pool.unreadyReason).toBe('inference-0 did not start: no memory')
    }
    expect(warnings).toHaveLength(8)
    await pass(30_000)
    puppets.at(-1)?.begun.resolve(facts)
    await pass(30_000)
    puppets.at(-1)?.loss.resolve('gone again')
    await pass(0)
    const before = puppets.length
    await pass(500)
    expect(puppets).toHaveLength(before + 1)
    await pool.stop()
  })

  it('row 79: requests do not wait for an engine that cannot be restarted', async () => {
    const { pool, puppet, pass, serve, send, batcher, clock } = openPool()
    await serve()
    const running = send('a')
    await pass(0)
    puppet(0).loss.resolve('gone')
    await pass(0)
    const waiting = send('b')
    // A session's tasks wait until an engine serves again.
    const task = new TestClient(clock, 'task')
    batcher.enqueue({ ...task.toOptions(), isBounded: false })
    await pass(500)
    expect([running.outcome, waiting.outcome]).toEqual(['open', 'open'])
    puppet(1).begun.reject(new Error('no server'))
    await pass(0)
    expect([running, waiting].map(({ outcome }) => outcome)).toEqual(['not_ready', 'not_ready'])
    expect([send('c').outcome, task.outcome, batcher.queued]).toEqual(['not_ready', 'open', 1])
    await pass(1000)
    // The next attempt is under way, and may take as long as the first start.
    expect(send('d').outcome).toBe('not_ready')
    puppet(2).begun.resolve(facts)
    await pass(0)
    const next = send('e')
    puppet(2).answer()
    await pass(0)
    puppet(2).answer()
    expect([next.outcome, task.outcome]).toEqual(['done', 'done'])
    await pool.stop()
  })

  it('row 79: requests wait while one of several engines may still start', async () => {
    const { pool, puppet, pass, serve, send } = openPool(2)
    await serve()
    puppet(0).loss.resolve('gone')
    puppet(1).loss.resolve('gone')
    await pass(500)
    const waiting = send('a')
    puppet(2).begun.reject(new Error('no memory'))
    await pass(0)
    expect(waiting.outcome).toBe('open')
    puppet(3).begun.resolve(facts)
    await pass(0)
    puppet(3).answer()
    expect(waiting.outcome).toBe('done')
    await pool.stop()
  })

  it('an engine pool that loses an engine does not restart an engine after stop()', async () => {
    const { pool, puppets, puppet, pass, serve, clock } = openPool()
    await serve()
    puppet(0).loss.resolve('gone')
    await pass(0)
    await pool.stop()
    await pass(60_000)
    expect([puppets.length, puppet(0).closes, clock.pendingTimers]).toEqual([1, 1, 0])
  })
})

describe('resizing an engine pool', () => {
  it('an engine pool grows immediately, and shrinks one by one after requests end', async () => {
    const { pool, puppets, puppet, pass, serve, send } = openPool()
    await serve()
    pool.resize(3)
    pool.resize(3)
    expect(puppets).toHaveLength(3)
    puppet(1).begun.resolve(facts)
    puppet(2).begun.resolve(facts)
    await pass(0)
    expect(pool.workers).toBe(3)
    const clients = []
    for (const id of ['a', 'b', 'c']) {
      clients.push(send(id))
      await pass(0)
    }
    pool.resize(1)
    pool.resize(1)
    await pass(0)
    expect([pool.workers, puppet(2).closes]).toEqual([2, 0])
    puppet(2).answer()
    await pass(0)
    expect([pool.workers, puppet(2).closes, puppet(1).closes]).toEqual([1, 1, 0])
    puppet(1).answer()
    puppet(0).answer()
    await pass(0)
    expect([pool.workers, puppet(1).closes, puppet(0).closes]).toEqual([1, 1, 0])
    expect(clients.map(({ outcome }) => outcome)).toEqual(['done', 'done', 'done'])
    await pool.stop()
  })

  it('an engine pool starts no replacement for a worker that still drains', async () => {
    const { pool, puppets, puppet, pass, serve, send } = openPool(2)
    await serve()
    send('a')
    await pass(0)
    send('b')
    await pass(0)
    pool.resize(1)
    pool.resize(2)
    await pass(0)
    expect([puppets.length, pool.workers]).toEqual([2, 1])
    puppet(1).answer()
    await pass(0)
    expect(puppets.map(({ worker }) => worker.index)).toEqual([0, 1, 1])
    await pool.stop()
  })

  it('an engine pool removes a worker that does not serve first', async () => {
    const { pool, puppet, pass, serve } = openPool(2)
    await serve()
    puppet(0).loss.resolve('gone')
    await pass(0)
    pool.resize(1)
    await pass(60_000)
    expect([pool.workers, puppet(1).closes]).toEqual([1, 0])
    await pool.stop()
  })
})

describe('stopping an engine pool', () => {
  it('an engine pool that stops ends all requests, even if an engine does not', async () => {
    const { pool, puppet, puppets, pass, serve, send } = openPool(2)
    await serve()
    const muted = [send('a'), send('b')]
    await pass(0)
    const other = send('c')
    await pass(0)
    puppet(0).isMute = true
    await pool.stop()
    await pass(0)
    const outcomes = [...muted, other].map(({ outcome }) => outcome)
    expect(outcomes).toEqual(['closing', 'closing', 'closing'])
    expect(puppets.map(({ closes }) => closes)).toEqual([1, 1])
    expect([pool.workers, pool.unreadyReason]).toEqual([0, 'closed'])
    pool.resize(4)
    expect(puppets).toHaveLength(2)
  })
})
