import { describe, expect, expectTypeOf, it } from 'vitest'
import type { ExecutableResult } from '../../src/tasks/compute-task.ts'
import type { Deferrable, Handle } from '../../src/workflow/index.ts'
import { square } from '../backends/local/fixtures/backend-tasks.ts'
import { openEngine } from './open-engine.ts'

interface Point {
  readonly x: number
  readonly tags: readonly string[]
}

describe('types', () => {
  it('flow from a function through handles to what is awaited', async () => {
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

  it('refuse what does not fit', async () => {
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

  it('know what programs and prompts give', async () => {
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
