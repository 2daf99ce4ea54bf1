import { describe, expect, it } from 'vitest'
import { TaskCanceledError } from '../../src/foundation/task-errors.ts'
import { attribute, rejection, turns, typesOf } from '../session/open-session.ts'
import { openEngine, settled } from './open-engine.ts'

const one = (_given: unknown): number => 1

describe('handle.cancel()', () => {
  it('cancel: ends a running task and its dependents, and nothing else', async () => {
    const { flow, backend, eventsOf } = await openEngine()
    const f = flow.functionTask(one, { name: 'f' })
    const a = f(0)
    const [b, beside] = [f(a), f(0)]
    const c = f([b, beside])
    await settled()
    backend.start(a)
    expect([a.cancel('enough'), a.cancel('again')]).toEqual([true, false])
    expect(backend.cancels.map(({ job }) => job.uid)).toEqual([a.uid])
    expect(b.state).toBe('CREATED')
    backend.report(backend.jobOf(a), { kind: 'cancel', reason: 'enough' })
    expect(await rejection(c)).toBeInstanceOf(TaskCanceledError)
    expect([a, b, c, beside].map(({ state }) => state)).toEqual([
      'CANCELED',
      'CANCELED',
      'CANCELED',
      'QUEUED',
    ])
    const reason = `f (${a.uid}) was canceled: enough`
    expect(attribute((await eventsOf(b)).at(-1), 'reason')).toBe(reason)
    expect(backend.cancels).toHaveLength(1)
  })

  it('cancel: dependents and later calls name the first canceled task only', async () => {
    const { flow, eventsOf } = await openEngine()
    const f = flow.functionTask(one, { name: 'f' })
    const first = f(f(0))
    let last = f(first)
    for (let count = 0; count < 500; count++) last = f(last)
    first.cancel('enough')
    await rejection(last)
    for (let count = 0; count < 10; count++) {
      last = f(last)
      await rejection(last)
    }
    const reason = `f (${first.uid}) was canceled: enough`
    expect(last.error).toMatchObject({ reason })
    expect(attribute((await eventsOf(last)).at(-1), 'reason')).toBe(reason)
  })

  it('cancel: a waiting task ends at once, its dependencies continue', async () => {
    const { flow, backend, eventsOf } = await openEngine()
    const f = flow.functionTask(one)
    const a = f(0)
    const b = f(a)
    await settled()
    expect(b.cancel('never mind')).toBe(true)
    expect([a.state, b.state]).toEqual(['QUEUED', 'CANCELED'])
    backend.complete(a, 1)
    expect(await a).toBe(1)
    await turns()
    expect(backend.jobs).toHaveLength(1)
    const events = await eventsOf(b)
    expect(typesOf(events)).toEqual(['TaskCreated', 'TaskSubmitted', 'TaskCanceled'])
    expect(events.at(-1)).toMatchObject({ duration_seconds: 0 })
    expect(attribute(events.at(-1), 'incomplete_lifecycle')).toBe(true)
  })

  it('row 23: a canceled handle ends CANCELED, whatever its backend says', async () => {
    const { flow, backend } = await openEngine()
    const f = flow.functionTask(one)
    const a = f(0)
    const b = f(a)
    await settled()
    expect([a.cancel(), a.cancel()]).toEqual([true, false])
    backend.complete(a, 1)
    await settled()
    expect([a.state, b.state]).toEqual(['CANCELED', 'CANCELED'])
  })

  it('cancel: an empty reason is refused', async () => {
    const { flow } = await openEngine()
    expect(() => flow.functionTask(one)(0).cancel('')).toThrow('reason')
  })
})

describe('a signal', () => {
  it('signal: an abort cancels every open call, also one that waits', async () => {
    const { flow, backend } = await openEngine()
    const controller = new AbortController()
    const f = flow.functionTask(one, { signal: controller.signal })
    const a = f(0)
    const b = f(a)
    await settled()
    controller.abort(new Error('over'))
    expect([b.state, backend.cancels.length]).toEqual(['CANCELED', 1])
    expect((await rejection(b)).message).toContain('over')
    expect(f(1).state).toBe('CANCELED')
    expect(f(b).state).toBe('CANCELED')
  })
})
