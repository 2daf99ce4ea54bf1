import { describe, expect, expectTypeOf, it } from 'vitest'
import type { ExecutableResult } from '../../src/tasks/compute-task.ts'
import type { Deferrable, Handle } from '../../src/workflow/index.ts'
import { square } from '../backends/local/fixtures/backend-tasks.ts'
import { openEngine } from './open-engine.ts'

interface Point {
  readonly x: number
  readonly tags: readonly string[]
}

type Json = string | number | boolean | null | Json[] | { [key: string]: Json }

describe('types', () => {
  it('types: flow from a function through handles to the awaited value', async () => {
    const { flow } = await openEngine()
    const print = flow.functionTask((n: number) => String(n))
    const count = flow.functionTask(
      async (text: string, scale?: number) => text.length * (scale ?? 1),
    )
    const shift = flow.functionTask((point: Point, by: [number, boolean]) => ({ ...point, by }))
    expectTypeOf(print).returns.toEqualTypeOf<Handle<string>>()
    expectTypeOf(print).parameter(0).toEqualTypeOf<Deferrable<number>>()
    expectTypeOf(count(print(1), 2)).toEqualTypeOf<Handle<number>>()
    expectTypeOf(count('x')).resolves.toEqualTypeOf<number>()
    expectTypeOf(flow.functionTask(square)(2)).resolves.toEqualTypeOf<number>()
    const flag = flow.functionTask((): boolean => true)
    const moved = shift({ x: count(print(1)), tags: [print(2), 'b'] }, [count('a'), flag()])
    expectTypeOf(moved).resolves.toHaveProperty('by').toEqualTypeOf<[number, boolean]>()
    expectTypeOf(shift(moved, [1, false])).toEqualTypeOf<typeof moved>()
    expect(moved.state).toBe('CREATED')
  })

  it('types: wrong arguments are refused', async () => {
    const { flow } = await openEngine()
    const print = flow.functionTask((n: number) => String(n))
    const shift = flow.functionTask((point: Point) => point.x)
    // @ts-expect-error a string is no number
    void print('1')
    // @ts-expect-error a handle of a string is no handle of a number
    void print(print(1))
    // @ts-expect-error a promise is no handle: nobody would wait for it
    void print(Promise.resolve(1))
    // @ts-expect-error there is one argument
    void print(1, 2)
    // @ts-expect-error an argument is missing
    void print()
    // @ts-expect-error handles of the wrong type are seen inside of objects too
    void shift({ x: print(1), tags: [] })
    // @ts-expect-error what is awaited is a string
    const wrong: Promise<number> = print(1)
    expect(wrong).toBeDefined()
    // @ts-expect-error an option with a wrong name
    expect(() => flow.functionTask(square, { retrys: 1 })).toThrow('retrys')
    // @ts-expect-error blocks run on no backend
    expect(() => flow.block(() => 1, { backend: 'local' })).toThrow('backend')
  })

  it('types: data of any shape can contain handles', async () => {
    const { flow } = await openEngine()
    const count = flow.functionTask((n: number) => n)
    const make = flow.functionTask((): Json => [1])
    const store = flow.functionTask((value: Json) => value)
    const list = flow.functionTask((values: readonly number[], pair: [number, string]) => [
      ...values,
      ...pair,
    ])
    expectTypeOf(store(make())).toEqualTypeOf<Handle<Json>>()
    const data: Json = { a: [1, null] }
    const made = [
      store(data),
      store({ a: [1, count(1), { b: make() }], c: null }),
      store(count(1)),
      list([1, count(2)], [count(3), 'x']),
      list([], [1, 'x']),
    ]
    expect(made.map(({ state }) => state)).toEqual(Array(5).fill('CREATED'))
  })

  it('types: a handle does not pass for an object with the same members', async () => {
    const { flow } = await openEngine()
    const count = flow.functionTask((n: number) => n)
    const person = flow.functionTask((name: string) => ({ name }))
    const greet = flow.functionTask((given: { name: string }) => given.name)
    const watch = flow.functionTask((given: { uid: string; state: string }) => given.uid)
    const keep = flow.functionTask((given: object) => given)
    const join = flow.functionTask(async (given: Promise<number>) => await given)
    const when = flow.functionTask((date: Date, n?: number) => [date, n])
    // @ts-expect-error a handle has a name, but it is a handle of a number
    void greet(count(1))
    // @ts-expect-error a handle has a uid and a state as well
    void watch(count(1))
    // @ts-expect-error a handle of a number is no object
    void keep(count(1))
    // @ts-expect-error a handle arrives as its value, not as a promise
    void join(count(1))
    const fit = [
      greet(person('a')),
      greet({ name: 'a' }),
      greet({ name: greet({ name: 'a' }) }),
      watch({ uid: 'a', state: 'b' }),
      keep(person('a')),
      keep([1]),
      join(Promise.resolve(1)),
      when(new Date(0)),
      when(new Date(0), count(1)),
    ]
    expect(fit.map(({ state }) => state)).toEqual(Array(9).fill('CREATED'))
  })

  it('types: programs give ExecutableResult, prompts strings', async () => {
    const { flow } = await openEngine()
    const run = flow.executableTask((n: number) => ['./sim', String(n)])
    expectTypeOf(run(1)).resolves.toEqualTypeOf<ExecutableResult>()
    const ask = flow.promptTask((result: ExecutableResult) => `Explain ${result.stdout}`)
    expectTypeOf(ask(run(1))).resolves.toEqualTypeOf<string>()
    const askAll = flow.promptTask(async () => ['a', 'b'])
    expectTypeOf(askAll()).resolves.toEqualTypeOf<string[]>()
    const askSo = flow.promptTask(() => ({ prompt: 'a', temperature: 0 }), { model: 'm' })
    expectTypeOf(askSo()).resolves.toEqualTypeOf<string>()
    const group = flow.block(async (n: number) => await ask(run(n)))
    expectTypeOf(group(1)).resolves.toEqualTypeOf<string>()
    // @ts-expect-error a shell's command line is no program
    flow.executableTask(() => 'ls -l')
    expect(flow.scope('s', () => 1)).toBe(1)
  })
})
