import { describe, expect, it } from 'vitest'
import { ConcurrentBackend } from '../../src/backends/local/concurrent-backend.ts'
import { StateError, TimeoutError, ValueError } from '../../src/foundation/errors.ts'
import { TaskCanceledError, TaskFailedError } from '../../src/foundation/task-errors.ts'
import type { TaskSpec } from '../../src/tasks/spec.ts'
import { FakeBackend } from '../../src/testing/fake-backend.ts'
import { DependencyFailedError, type Handle, WorkflowEngine } from '../../src/workflow/index.ts'
import { attribute, rejection, turns, typesOf } from '../session/open-session.ts'
import { openEngine, settled } from './open-engine.ts'

const one = (_given: unknown): number => 1

describe('row 30: a dependency that fails', () => {
  it('row 30: a failed dependency fails all dependents with root cause and path', async () => {
    const { flow, backend, eventsOf } = await openEngine()
    const f = flow.functionTask(one, { name: 'f' })
    const a = f(0)
    const b = f(a)
    const c = f([b, a])
    const beside = f(1)
    await settled()
    const cause = new RangeError('bad seed')
    backend.start(a)
    backend.fail(a, cause)
    const error = await rejection(c)
    expect(error).toBeInstanceOf(DependencyFailedError)
    expect(error).toBeInstanceOf(TaskFailedError)
    expect(DependencyFailedError.isInstance(error)).toBe(true)
    expect(error).toMatchObject({ uid: c.uid, code: 'DependencyFailedError', rootUid: a.uid })
    expect(error).toMatchObject({ rootCause: cause, cause })
    expect((error as DependencyFailedError).path.at(0)).toBe(a.uid)
    expect(((await rejection(b)) as DependencyFailedError).path).toEqual([a.uid, b.uid])
    expect(error.message).toContain('RangeError: bad seed')
    expect(await rejection(a)).toMatchObject({ cause })

    const events = await eventsOf(c)
    expect(typesOf(events)).toEqual(['TaskCreated', 'TaskSubmitted', 'TaskFailed'])
    const end = events.at(-1)
    expect(end).toMatchObject({ error_type: 'DependencyFailedError', duration_seconds: 0 })
    expect(attribute(end, 'incomplete_lifecycle')).toBe(true)
    expect(attribute(end, 'tutti.root_task')).toBe(a.uid)
    const why = `${a.uid} failed: RangeError: bad seed`
    expect((await rejection(b)).message).toBe(`task ${b.uid} cannot run: ${why}`)
    expect(events.map((event) => event.backend)).toEqual(['', 'local', 'local'])

    backend.complete(beside, 1)
    expect(await beside).toBe(1)
    expect(backend.jobs).toHaveLength(2)
  })

  it('row 30: a task that ends undispatched names its intended backend', async () => {
    const refuseOthers = (kind: string) => (spec: TaskSpec) =>
      spec.kind === kind ? null : { field: kind, message: `runs a ${kind} only` }
    const backends = [
      new FakeBackend({ name: 'local', refuse: refuseOthers('closure') }),
      new FakeBackend({ name: 'programs', refuse: refuseOthers('program') }),
      new FakeBackend({ name: 'llm', model: 'tiny', refuse: refuseOthers('prompt') }),
    ] as const
    const { flow, eventsOf } = await openEngine({ backend: backends })
    const [local] = backends
    const dependents = (before: Handle<number>) => [
      flow.functionTask(one)(before),
      flow.executableTask((n: number) => ['echo', String(n)])(before),
      flow.promptTask((n: number) => `${n}?`)(before),
      flow.block(one)(before),
      flow.functionTask(one, { backend: 'nowhere' })(before),
    ]
    const [failing, canceled, open] = [1, 2, 3].map(flow.functionTask(one)) as [
      Handle<number>,
      Handle<number>,
      Handle<number>,
    ]
    const [failed, asked, closed] = [dependents(failing), dependents(canceled), dependents(open)]
    await settled()
    for (const handle of asked) expect(handle.cancel()).toBe(true)
    local.fail(failing, new Error('no'))
    await turns()
    await flow.shutdown()
    const expected = ['local', 'programs', 'llm', 'workflow', 'nowhere']
    for (const [list, end] of [
      [failed, 'TaskFailed'],
      [asked, 'TaskCanceled'],
      [closed, 'TaskCanceled'],
    ] as const) {
      for (const [at, handle] of list.entries()) {
        const events = await eventsOf(handle)
        expect(typesOf(events)).toEqual(['TaskCreated', 'TaskSubmitted', end])
        expect(events.map((event) => event.backend)).toEqual(['', expected[at], expected[at]])
        expect(events.at(-1)).toMatchObject({ duration_seconds: 0 })
        expect(attribute(events.at(-1), 'incomplete_lifecycle')).toBe(true)
      }
      expect(attribute((await eventsOf(list[2] ?? open))[1], 'executable')).toBe('tiny')
    }
  })

  it('row 30: a dependency that had failed or was canceled ends a later call at once', async () => {
    const { flow, backend } = await openEngine()
    const f = flow.functionTask(one)
    const [failed, canceled] = [f(0), f(0)]
    canceled.cancel('not needed')
    await settled()
    backend.fail(failed, new Error('no'))
    expect(await rejection(f(failed))).toBeInstanceOf(DependencyFailedError)
    expect(await rejection(f({ deep: [canceled] }))).toBeInstanceOf(TaskCanceledError)
  })

  it('row 30: a failure that reaches a task on many paths ends it once', async () => {
    const { flow, backend, events } = await openEngine()
    const f = flow.functionTask(one)
    const [a, b] = [f(0), f(0)]
    const middle = Array.from({ length: 10 }, () => f([a, b]))
    const last = f(middle)
    await settled()
    backend.fail(a, new Error('first'))
    backend.fail(b, new Error('second'))
    expect(await rejection(last)).toMatchObject({ rootUid: a.uid })
    await turns()
    const ends = (await events()).filter(({ event_type: type }) => type === 'TaskFailed')
    expect(ends).toHaveLength(13)
    expect(new Set(ends.map(({ task_id: uid }) => uid)).size).toBe(13)
  })

  it('row 31: a failed handle that nobody awaits raises no unhandledRejection', async () => {
    const { flow, backend, eventsOf } = await openEngine()
    const unhandled: unknown[] = []
    const listen = (reason: unknown): void => void unhandled.push(reason)
    process.on('unhandledRejection', listen)
    const f = flow.functionTask(one)
    const a = f(0)
    const b = f(a)
    await settled()
    backend.fail(a, new Error('unheard'))
    await turns()
    process.off('unhandledRejection', listen)
    expect(unhandled).toEqual([])
    const ended = [a, b].map(async (handle) => (await eventsOf(handle)).at(-1)?.event_type)
    expect(await Promise.all(ended)).toEqual(['TaskFailed', 'TaskFailed'])
    expect([a.error?.name, b.error?.name]).toEqual(['TaskFailedError', 'DependencyFailedError'])
  })
})

describe('what a task may choose', () => {
  it('options: dependents fail after the last retry only', async () => {
    const { flow, backend, eventsOf } = await openEngine()
    const f = flow.functionTask(one, { retries: 1 })
    const a = f(0)
    const b = f(a)
    await settled()
    backend.start(a)
    backend.fail(a, new Error('once'))
    expect(a.state).toBe('RUNNING')
    backend.complete(a, 1)
    await settled()
    backend.complete(b, 2)
    expect(await b).toBe(2)
    expect(typesOf(await eventsOf(a)).slice(3)).toEqual([
      'TaskStarted',
      'tutti.TaskAttempt',
      'TaskCompleted',
    ])
  })

  it('options: timeoutSeconds fails a function with a TimeoutError as cause', async () => {
    await using flow = await WorkflowEngine.create({ backend: await ConcurrentBackend.create() })
    const hang = flow.functionTask(() => new Promise<never>(() => {}), { timeoutSeconds: 0.01 })
    expect(await rejection(hang())).toMatchObject({ cause: expect.any(TimeoutError) })
  })

  it('options: priority, resources, backend and attributes reach the job', async () => {
    const backends = [new FakeBackend({ name: 'a' }), new FakeBackend({ name: 'b' })]
    const { flow, eventsOf } = await openEngine({ backend: backends })
    const options = { backend: 'b', priority: 7, resources: { cores: 2 }, attributes: { seed: 4 } }
    const handle = flow.functionTask(one, { ...options, name: 'sweep' })(0)
    await settled()
    expect(backends[1]?.jobOf(handle).spec).toMatchObject({ priority: 7, resources: { cores: 2 } })
    const [created, submitted] = await eventsOf(handle)
    expect(created?.attributes).toMatchObject({
      executable: 'one',
      task_name: 'sweep',
      task_type: 'function',
      seed: 4,
    })
    expect(submitted?.backend).toBe('b')
  })

  it('call: an argument that throws when it is read fails that one task', async () => {
    const { flow, eventsOf } = await openEngine()
    const { proxy, revoke } = Proxy.revocable({}, {})
    revoke()
    const work = (_given: object): number => 1
    const calls = [
      flow.functionTask(work),
      flow.functionTask(work, { cache: true }),
      flow.block(work),
      flow.executableTask((_given: object) => ['/bin/true'] as const),
    ]
    for (const call of calls) {
      const handle = call(proxy)
      expect((await rejection(handle)).cause).toBeInstanceOf(TypeError)
      const types = ['TaskCreated', 'TaskSubmitted', 'TaskFailed']
      expect(typesOf(await eventsOf(handle))).toEqual(types)
    }
  })

  it('call: an unknown backend fails that one task and suggests the nearest name', async () => {
    const { flow, backend, eventsOf } = await openEngine()
    const lost = flow.functionTask(one, { backend: 'locl' })(0)
    const fine = flow.functionTask(one)(0)
    expect(await rejection(lost)).toMatchObject({ cause: { code: 'UnknownBackendError' } })
    expect(lost.error?.message).toContain('no backend "locl" (have: local); did you mean "local"?')
    expect(typesOf(await eventsOf(lost))).toEqual(['TaskCreated', 'TaskSubmitted', 'TaskFailed'])
    backend.complete(fine, 1)
    expect(await fine).toBe(1)
  })

  it('call: a backend whose refuse() throws fails that one task', async () => {
    const refuse = (): never => {
      throw new TypeError('broken')
    }
    const backend = [new FakeBackend({ name: 'local', refuse }), new FakeBackend({ name: 'fine' })]
    const { flow } = await openEngine({ backend })
    const lost = flow.functionTask(one)(0)
    const other = flow.functionTask(one, { backend: 'fine' })(0)
    expect(await rejection(lost)).toMatchObject({ cause: { message: 'broken' } })
    expect(other.state).toBe('QUEUED')
  })

  const wrong: readonly [string, object, string][] = [
    ['an unknown option', { retrys: 1 }, 'functionTask has no `retrys`; did you mean "retries"?'],
    ['a wrong number', { timeoutSeconds: -1 }, 'timeoutSeconds'],
    ['a wrong resource', { resources: { cores: 0 } }, 'resources.cores'],
    ['a wrong cache', { cache: { key: 1 } }, 'cache.key'],
    ['a reserved attribute', { attributes: { workflow_id: 'x' } }, 'workflow_id'],
  ]
  it.each(wrong)(
    'options: %s is refused when the function is wrapped',
    async (_, options, message) => {
      const { flow } = await openEngine()
      expect(() => flow.functionTask(one, options)).toThrow(ValueError)
      expect(() => flow.functionTask(one, options)).toThrow(message)
    },
  )
})

describe('what the engine refuses', () => {
  const methods = ['functionTask', 'executableTask', 'promptTask', 'block'] as const
  it.each(methods)('%s: options that are no object are refused', async (method) => {
    const { flow } = await openEngine()
    const wrap = flow[method].bind(flow) as (body: unknown, options: unknown) => unknown
    for (const options of [null, [], 'x', 7]) {
      expect(() => wrap(one, options)).toThrow(
        expect.objectContaining({ name: 'ValueError', field: 'options' }),
      )
    }
  })

  it('create: a promise of a backend is refused by its index', async () => {
    const promise = Promise.resolve(new FakeBackend())
    for (const [backend, field] of [
      [promise, 'backend'],
      [[new FakeBackend(), promise], 'backend[1]'],
    ] as const) {
      await expect(WorkflowEngine.create({ backend } as never)).rejects.toMatchObject({
        field,
        message: `Expected \`${field}\` to be a backend, got a promise: await it first`,
      })
    }
  })

  it('shutdown() and startTelemetry(): wrong options are refused', async () => {
    const { flow } = await openEngine()
    for (const [options, field] of [
      [null, 'options'],
      [{ keepBackends: 1 }, 'keepBackends'],
    ] as const) {
      await expect(flow.shutdown(options as never)).rejects.toMatchObject({ field })
    }
    await expect(flow.startTelemetry(null as never)).rejects.toMatchObject({ field: 'options' })
    const handle = flow.functionTask(one)(0)
    await flow.shutdown()
    expect(handle.state).toBe('CANCELED')
  })
})

describe('after shutdown()', () => {
  it('shutdown: later calls throw, and every task has ended', async () => {
    const { flow, backend, eventsOf } = await openEngine()
    const f = flow.functionTask(one)
    const running = f(0)
    const waiting = f(running)
    await settled()
    backend.start(running)
    const closing = flow.shutdown()
    expect(flow.shutdown()).toBe(closing)
    expect(() => f(1)).toThrow(StateError)
    const refused = { code: 'WorkflowShutDownError', hint: 'Create a new workflow engine.' }
    expect(() => f(1)).toThrow(expect.objectContaining(refused))
    expect(() => flow.scope('late', () => 1)).toThrow('the workflow engine is shut down')
    await closing
    expect([running.state, waiting.state]).toEqual(['CANCELED', 'CANCELED'])
    expect(typesOf(await eventsOf(waiting)).slice(0, 3)).toEqual([
      'TaskCreated',
      'TaskSubmitted',
      'TaskCanceled',
    ])
    expect([running.cancel(), waiting.cancel()]).toEqual([false, false])
    expect(() => f(1)).toThrow(StateError)
  })

  it('shutdown: a task that was just ready is not submitted', async () => {
    const { flow, backend } = await openEngine()
    const handle = flow.functionTask(one)(0)
    await flow.shutdown()
    expect([handle.state, backend.jobs.length]).toEqual(['CANCELED', 0])
  })
})

describe('retries of a workflow', () => {
  it('retries: calls and blocks wait for their next attempt', async () => {
    const { flow, backend, clock } = await openEngine()
    const retries = {
      times: 1,
      delaySeconds: 5,
      if: (error: unknown) => error instanceof RangeError,
    }
    let blocks = 0
    const block = flow.block(
      () => {
        if (++blocks === 1) throw new RangeError('once')
        return blocks
      },
      { retries },
    )()
    const f = flow.functionTask(one, { retries })
    const [again, other] = [f(1), f(2)]
    await turns()
    expect([block.state, block.retryAt]).toEqual(['RUNNING', 1005])
    backend.fail(again, new RangeError('busy'))
    backend.fail(other, new TypeError('wrong'))
    expect((await rejection(other)).cause).toBeInstanceOf(TypeError)
    expect([again.retryAt, backend.jobs.length]).toEqual([1005, 2])
    await clock.advance(5000)
    backend.start(again)
    backend.complete(again, 1)
    expect([await again, await block, again.retryAt]).toEqual([1, 2, null])
    expect(() => flow.functionTask(one, { retries: { times: -1 } })).toThrow('retries.times')
  })
})

describe('a body that awaits its own handle', () => {
  it.each(['functionTask', 'block'] as const)(
    'self-wait: the body of a %s fails instead of waiting for ever',
    async (method) => {
      await using flow = await WorkflowEngine.create({ backend: await ConcurrentBackend.create() })
      const loop = async (): Promise<unknown> => {
        await turns(1)
        return await handle
      }
      const wrapped = method === 'block' ? flow.block(loop) : flow.functionTask(loop)
      const handle: Handle<unknown> = wrapped()
      const error = await rejection(handle)
      expect(error.cause).toMatchObject({ name: 'StateError', code: 'SelfWaitError' })
      // Anybody else may wait for it.
      expect(await rejection(handle)).toBe(error)
    },
  )
})
