import { describe, expect, it } from 'vitest'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { loadInferenceConfig } from '../../../src/inference/config/config.ts'
import { ModelPool, type PooledModel } from '../../../src/inference/pool/model-pool.ts'
import { FakeGenerator } from '../server/fake-generator.ts'
import { configWith } from '../open-backend.ts'

/** A model whose load ends when the test says so. */
class FakeModel implements PooledModel {
  readonly generator = new FakeGenerator()
  readonly loading = Promise.withResolvers<void>()
  isStopped = false

  start(): Promise<void> {
    return this.loading.promise
  }

  async drain(): Promise<void> {}

  async stop(): Promise<void> {
    this.isStopped = true
  }
}

/** Models of 6 bytes in a memory of 10. */
async function openPool(queueLimit = 10) {
  const clock = new ManualClock()
  const created: FakeModel[] = []
  const base = await loadInferenceConfig(configWith())
  const models = ['a', 'b'].map((name) => ({
    config: { ...base, modelName: name, servedNames: [name] },
    isPreloaded: false,
    scheduled: { name, bytes: 6, keepAliveMs: 1000, isPinned: false },
    create() {
      const model = new FakeModel()
      created.push(model)
      return model
    },
  }))
  const log = { warn: () => {} }
  const pool = new ModelPool<FakeModel>({ models, budgetBytes: 10, queueLimit, clock, log })
  const acquire = (name: string, more: { signal?: AbortSignal; timeoutMs?: number } = {}) => {
    const model = pool.find(name)
    if (model === undefined) throw new Error(name)
    const { signal = new AbortController().signal, timeoutMs = null } = more
    return pool.acquire(model, { signal, timeoutMs, isBounded: true })
  }
  const load = async (): Promise<void> => {
    created.at(-1)?.loading.resolve()
    await clock.advance(0)
  }
  return { pool, clock, created, acquire, load }
}

describe('a pool of models', () => {
  it('a loaded model begins at once, and is stopped when its time has passed', async () => {
    const { pool, clock, created, acquire, load } = await openPool()
    const waiting = acquire('a')
    expect(pool.getInstance('a')).toBeNull()
    await load()
    const lease = await waiting
    const second = acquire('a')
    expect(second).not.toBeInstanceOf(Promise)
    lease.release()
    ;(await second).release()
    lease.release()
    await clock.advance(999)
    expect([pool.leftMs('a'), pool.status().unreadyReason]).toEqual([1, null])
    expect(created[0]?.isStopped).toBe(false)
    await clock.advance(1)
    expect([created[0]?.isStopped, pool.getInstance('a')]).toEqual([true, null])
    expect(clock.pendingTimers).toBe(0)
  })

  it('a model in use is not stopped, however long it takes and whoever waits', async () => {
    const { clock, created, acquire, load } = await openPool()
    const first = acquire('a')
    await load()
    const lease = await first
    const second = acquire('b')
    await clock.advance(1e6)
    expect([created.length, created[0]?.isStopped]).toEqual([1, false])
    lease.release()
    await clock.advance(0)
    expect([created.length, created[0]?.isStopped]).toEqual([2, true])
    await load()
    expect((await second).instance).toBe(created[1])
  })

  it('a request that no longer waits loads nothing', async () => {
    const { clock, created, acquire, load } = await openPool()
    const first = acquire('a')
    await load()
    const abort = new AbortController()
    const aborted = acquire('b', { signal: abort.signal })
    const late = acquire('b', { timeoutMs: 500 })
    abort.abort(new Error('gone'))
    await expect(aborted).rejects.toThrow('gone')
    const expired = expect(late).rejects.toMatchObject({ code: 'request_timeout' })
    await clock.advance(500)
    await expired
    ;(await first).release()
    await clock.advance(0)
    expect([created.length, created[0]?.isStopped]).toEqual([1, false])
  })

  it('a failed load fails its requests, and the next request tries again', async () => {
    const { clock, created, acquire } = await openPool()
    const failing = expect(acquire('a')).rejects.toMatchObject({
      code: 'not_ready',
      message: 'the model "a" did not load: broken file',
    })
    created[0]?.loading.reject(new Error('broken file'))
    await failing
    const again = acquire('a')
    created[1]?.loading.resolve()
    expect((await again).instance).toBe(created[1])
    await clock.advance(0)
  })

  it('a full queue refuses requests, and closing refuses those that wait', async () => {
    const { pool, created, acquire } = await openPool(1)
    const waiting = expect(acquire('a')).rejects.toMatchObject({ code: 'closing' })
    await expect(acquire('a')).rejects.toMatchObject({ code: 'queue_full' })
    expect(pool.status().queued).toBe(1)
    await pool.stop()
    await waiting
    await expect(acquire('a')).rejects.toMatchObject({ code: 'closing' })
    expect(created[0]?.isStopped).toBe(true)
  })

  it.each(['a load that is stopped', 'an unload'])(
    'row 83: %s while the pool closes is followed by no other load',
    async (what) => {
      const { pool, clock, created, acquire, load } = await openPool()
      const first = Promise.resolve(acquire('a'))
      first.catch(() => {})
      if (what === 'an unload') {
        await load()
        ;(await first).release()
      }
      const waiting = expect(acquire('b')).rejects.toMatchObject({ code: 'closing' })
      const isOver = new AbortController()
      await pool.drain(isOver.signal)
      await waiting
      await pool.stop()
      created[0]?.loading.reject(new Error('stopped'))
      await clock.advance(0)
      expect(created).toHaveLength(1)
      expect(clock.pendingTimers).toBe(0)
    },
  )

  it('prompts go to the model that they name, within their time limit', async () => {
    const { pool, created, load } = await openPool()
    const prompt = {
      input: { kind: 'text', text: 'hello' },
      sampling: {},
      priority: 0,
      timeoutSeconds: 5,
      signal: new AbortController().signal,
      isBounded: false,
      taskId: null,
    } as const
    const answer = pool.generate({ ...prompt, model: 'b' })
    await load()
    expect((await answer).text).toBe('hello')
    expect(created[0]?.generator.requests).toMatchObject([{ timeoutSeconds: 5, model: 'b' }])
    await expect(pool.generate({ ...prompt, model: 'c' })).rejects.toThrow('"c" is not served')
  })
})
