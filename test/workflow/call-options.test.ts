import { describe, expect, expectTypeOf, it } from 'vitest'
import { ConcurrentBackend } from '../../src/backends/local/concurrent-backend.ts'
import { systemClock } from '../../src/foundation/clock.ts'
import { ValueError } from '../../src/foundation/errors.ts'
import type { Deferrable, Handle } from '../../src/workflow/task-function.ts'
import type { WorkflowEngine } from '../../src/workflow/workflow-engine.ts'
import { turns } from '../session/open-session.ts'
import { openEngine } from './open-engine.ts'
import { run, valuesOfBoth, verdictOf } from './recorded-flows.ts'
import { tempFolder } from '../checkpoint/open-writer.ts'

const double = (x: number): number => x * 2

describe('options of one call', () => {
  it('with: sets uid, name and other options of one call alone', async () => {
    const backend = await ConcurrentBackend.create({ workers: 1 })
    const { flow, eventsOf } = await openEngine({}, backend)
    const twice = flow.functionTask(double, { name: 'twice', attributes: { part: 'all' } })
    const one = twice.with({ uid: 'doc-7', name: 'twice of 7', attributes: { page: 7 } })(7)
    const other = twice(1)
    expect([one.uid, one.name, await one]).toEqual(['doc-7', 'twice of 7', 14])
    expect([other.name, await other]).toEqual(['twice', 2])
    const [created] = await eventsOf(one)
    expect(created?.attributes).toMatchObject({
      executable: 'double',
      task_name: 'twice of 7',
      page: 7,
    })
    const [plain] = await eventsOf(other)
    expect(plain?.attributes).toMatchObject({ task_name: 'twice', part: 'all' })
    expect(other.uid).toMatch(/^task-\d+$/)
  })

  it('with: can be given further options, which keep those before', async () => {
    const { flow } = await openEngine()
    const named = flow.functionTask(double).with({ name: 'first' })
    const handle = named.with({ uid: 'a', priority: 3 })(1)
    expect([handle.uid, handle.name, named(1).name]).toEqual(['a', 'first', 'first'])
    expect((handle as unknown as { priority: number }).priority).toBe(3)
    expectTypeOf(named.with({ timeoutSeconds: 1 })(2)).toEqualTypeOf<Handle<number>>()
  })

  it('with: programs, prompts and blocks have it as functions do', async () => {
    const { flow, backend } = await openEngine()
    const program = flow.executableTask((text: string) => ['echo', text])
    const prompt = flow.promptTask((text: string) => text)
    const block = flow.block(async (x: number) => Promise.resolve(x + 1))
    const echoed = program.with({ uid: 'p', resources: { cores: 3 } })('hello')
    const answered = prompt.with({ uid: 'q', maxTokens: 5 })('hello')
    const inner = block.with({ uid: 'b', name: 'plus one' })(1)
    expect([await inner, inner.name]).toEqual([2, 'plus one'])
    await turns()
    expect(backend.jobs.map(({ uid, spec }) => [uid, spec.kind, spec.resources.cores])).toEqual([
      ['p', 'program', 3],
      ['q', 'prompt', 1],
    ])
    expect([echoed, answered, inner].map(({ uid }) => uid)).toEqual(['p', 'q', 'b'])
  })

  it('uid and name of a wrapper may be functions of arguments and handles', async () => {
    const backend = await ConcurrentBackend.create({ workers: 1 })
    const { flow } = await openEngine({}, backend)
    const load = flow.functionTask((file: string) => file.length, {
      uid: (file) => `load-${String(file)}`,
    })
    const parse = flow.functionTask((size: number, depth: number) => size * depth, {
      uid: (size, depth) => {
        expectTypeOf(size).toEqualTypeOf<Deferrable<number>>()
        return `parse-${typeof size === 'number' ? size : size.uid}-${String(depth)}`
      },
      name: (_size, depth) => `parse to ${String(depth)}`,
    })
    const page = parse(load('a.pdf'), 2)
    expect([page.uid, page.name, await page]).toEqual(['parse-load-a.pdf-2', 'parse to 2', 10])
  })

  it('a uid that is taken or not valid fails that call alone', async () => {
    const { flow, backend } = await openEngine()
    const task = flow.functionTask(double, { uid: (x) => (x === 0 ? '' : `n-${String(x)}`) })
    const [first, again, empty] = [task(1), task(1), task(0)]
    const thrown = flow.functionTask(double, {
      name: () => {
        throw new RangeError('no name')
      },
    })(1)
    await expect(again).rejects.toMatchObject({
      cause: {
        code: 'DuplicateTaskError',
        field: 'uid',
        message: 'uid: "n-1" was already submitted',
      },
    })
    await expect(empty).rejects.toMatchObject({ cause: { field: 'uid' } })
    await expect(thrown).rejects.toMatchObject({ cause: expect.any(RangeError) })
    expect(first.state).not.toBe('FAILED')
    expect(again.uid).not.toBe(first.uid)
    expect(backend.jobs.length).toBeLessThan(2)
  })

  it.each(['block', 'functionTask'] as const)(
    'a call in a further attempt of a %s gets a uid of its own if an earlier one has it',
    async (kind) => {
      const backend = await ConcurrentBackend.create({ workers: 1 })
      const { flow, events } = await openEngine({ clock: systemClock }, backend)
      const inner = flow.functionTask((x: number) => 2 * x, { uid: (x) => `in-${String(x)}` })
      let attempts = 0
      const body = async (): Promise<number> => {
        const first = await inner(1)
        if (++attempts < 3) throw new Error('not yet')
        return first + (await inner(2))
      }
      const outer =
        kind === 'block'
          ? flow.block(body, { retries: 2 })
          : flow.functionTask(body, { retries: 2 })
      expect(await outer()).toBe(6)
      const uids = (await events())
        .filter(({ event_type: type }) => type === 'TaskCompleted')
        .flatMap(({ task_id: uid }) => (uid?.startsWith('in-') ? [uid] : []))
      expect(uids).toEqual(['in-1', 'in-1.attempt-2', 'in-1.attempt-3', 'in-2'])
      const twice = flow.block(async () => await Promise.all([inner(7), inner(7)]))
      await expect(twice()).rejects.toThrow('"in-7" was already submitted')
    },
  )

  it('options of `with` are checked at once, and errors name the field', async () => {
    const { flow } = await openEngine()
    const task = flow.functionTask(double)
    const problemOf = (options: object): unknown => {
      try {
        return task.with(options)
      } catch (error) {
        return error
      }
    }
    expect(problemOf({ uid: '' })).toMatchObject({ field: 'uid' })
    expect(problemOf({ name: 7 })).toMatchObject({ field: 'name' })
    expect(problemOf({ retry: 1 })).toBeInstanceOf(ValueError)
    expect(problemOf({ timeoutSeconds: -1 })).toMatchObject({ field: 'timeoutSeconds' })
    // @ts-expect-error prompts alone have a model
    expect(() => task.with({ model: 'm' })).toThrow('model')
  })

  it('a body may await a task of another engine with its own uid, but not itself', async () => {
    const { flow } = await openEngine()
    const { flow: other } = await openEngine(
      { id: 'w2' },
      await ConcurrentBackend.create({ workers: 1 }),
    )
    const inner = other.functionTask(double)
    const outer = flow.block(async () => inner.with({ uid: 'same' })(21))
    expect(await outer.with({ uid: 'same' })()).toBe(42)
    const self: { handle?: Handle<unknown> } = {}
    const loop = flow.block(async (): Promise<unknown> => Promise.resolve().then(() => self.handle))
    self.handle = loop.with({ uid: 'loop' })()
    await expect(self.handle).rejects.toMatchObject({ cause: { code: 'SelfWaitError' } })
  })
})

describe('resume of calls with a chosen uid', () => {
  it('resume: a call is found by its uid, also without comparable input', async () => {
    let calls = 0
    const body = async (flow: WorkflowEngine) =>
      flow.functionTask(() => ++calls).with({ uid: 'one' })()
    expect(await valuesOfBoth(body, body)).toEqual([1, 1])
  })

  it('resume: the name of a call may change', async () => {
    let calls = 0
    const body = (name: string) => async (flow: WorkflowEngine) =>
      flow.functionTask((x: number) => x + ++calls).with({ name })(1)
    expect(await valuesOfBoth(body('before'), body('after'))).toEqual([2, 2])
  })

  it('resume: a call whose arguments changed is refused by its uid, or runs again', async () => {
    const folder = tempFolder()
    const body = (x: number) => async (flow: WorkflowEngine) =>
      flow
        .functionTask(double, { uid: 'one' })(x)
        .then(String, (error: Error) => error)
    const { record } = await run({ folder }, body(1))
    const refused = await run({ folder, resume: record }, body(2))
    expect(refused.value).toMatchObject({
      cause: { code: 'DefinitionChangedError', field: 'uid', hint: expect.any(String) },
    })
    const kept = await run({ folder, resume: refused.record, how: { changed: 'keep' } }, body(2))
    expect(kept.value).toBe('2')
    const again = await run({ folder, resume: kept.record, how: { changed: 'rerun' } }, body(2))
    expect(again.value).toBe('4')
    expect(await verdictOf(again.record)).toBe(0)
  })

  it('resume: calls in a block with a chosen uid are found over several files', async () => {
    const folder = tempFolder()
    let calls = 0
    const body = (isLast: boolean) => async (flow: WorkflowEngine) => {
      const step = flow.functionTask((x: number) => x + ++calls)
      const block = flow.block(async (x: number) => {
        const value = await step(x)
        if (!isLast) throw new Error('not yet')
        return value
      })
      return block
        .with({ uid: 'block' })(1)
        .catch(() => null)
    }
    const first = await run({ folder }, body(false))
    const second = await run({ folder, resume: first.record }, body(false))
    const third = await run({ folder, resume: second.record }, body(true))
    expect([third.value, calls]).toEqual([2, 1])
  })

  it('resume: a call runs again if a later file has a newer value of its dependency', async () => {
    const folder = tempFolder()
    let made = 0
    const body = (hasUse: boolean, uid: string) => async (flow: WorkflowEngine) => {
      const value = flow.functionTask(() => ++made).with({ uid })()
      const use = flow.functionTask((x: number) => x * 10)
      return hasUse ? use.with({ uid: 'use' })(value) : value
    }
    const first = await run({ folder }, body(true, 'value'))
    const second = await run({ folder, resume: first.record }, body(false, 'other'))
    const how = { changed: 'keep' } as const
    const third = await run({ folder, resume: second.record, how }, body(true, 'other'))
    expect([first.value, second.value, third.value]).toEqual([10, 2, 20])
  })
})
