import { renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { resultsPathOf } from '../../src/checkpoint/results-file.ts'
import { StateError } from '../../src/foundation/errors.ts'
import type { WorkflowEngine } from '../../src/workflow/workflow-engine.ts'
import { tempFolder } from '../checkpoint/open-writer.ts'
import { run, valuesOfBoth, verdictOf } from './recorded-flows.ts'

describe('values after a resume', () => {
  it('resume: a call without arguments runs again with what is captured now', async () => {
    const body = (k: number) => async (flow: WorkflowEngine) => [
      await flow.functionTask(() => k)(),
      (await flow.executableTask(() => ['echo', `${k}`])()).stdout.trim(),
      await flow.block(async () => Promise.resolve(k))(),
    ]
    expect(await valuesOfBoth(body(2), body(3))).toEqual([
      [2, '2', 2],
      [3, '3', 3],
    ])
  })

  it('resume: calls of a method run again on the object that is given now', async () => {
    const body = (factors: readonly number[]) => async (flow: WorkflowEngine) => {
      const scale = flow.functionTask(function (this: { k: number }, x: number) {
        return x * this.k
      })
      const echo = flow.executableTask(function (this: { k: number }, x: number) {
        return ['echo', `${x * this.k}`]
      })
      const block = flow.block(async function (this: { k: number }, x: number) {
        return Promise.resolve(x * this.k)
      })
      return Promise.all(
        factors.map(async (k) => {
          const on = { k, scale, echo, block }
          const { stdout } = await on.echo(10)
          return [await on.scale(10), Number(stdout), await on.block(10)]
        }),
      )
    }
    const [first, second] = await valuesOfBoth(body([2, 3]), body([3, 2]))
    expect(first).toEqual([Array(3).fill(20), Array(3).fill(30)])
    expect(second).toEqual([Array(3).fill(30), Array(3).fill(20)])
  })

  it('resume: a function without `this` is reused whatever it is a field of', async () => {
    let calls = 0
    const body = async (flow: WorkflowEngine) => {
      const tasks = { double: flow.functionTask((x: number) => (++calls, x * 2)) }
      return tasks.double(4)
    }
    expect(await valuesOfBoth(body, body)).toEqual([8, 8])
    expect(calls).toBe(1)
  })

  it('resume: calls in a block run again if it gets a value that was made anew', async () => {
    const folder = tempFolder()
    const file = join(folder, 'data.txt')
    class Prepared {
      readonly version: number
      constructor(version: number) {
        this.version = version
      }
    }
    const body = (version: number) => async (flow: WorkflowEngine) => {
      const prepare = flow.functionTask((path: string) => {
        writeFileSync(path, `run ${version}`)
        return new Prepared(version)
      })
      const cat = flow.executableTask((path: string) => ['cat', path])
      const inner = flow.block(async (path: string) => (await cat(path)).stdout)
      const block = flow.block(async (prepared: Prepared, path: string) => {
        const captured = flow.functionTask((x: number) => x + prepared.version)
        return [await inner(path), await captured(1)]
      })
      return block(prepare(file), file)
    }
    expect(await valuesOfBoth(body(1), body(20))).toEqual([
      ['run 1', 2],
      ['run 20', 21],
    ])
  })

  it('resume: calls in a block whose arguments cannot be compared run again', async () => {
    const body = (factor: number) => async (flow: WorkflowEngine) => {
      const block = flow.block(async (given: { k: () => number }) =>
        flow.functionTask((x: number) => x * given.k())(10),
      )
      return block({ k: () => factor })
    }
    expect(await valuesOfBoth(body(2), body(3))).toEqual([20, 30])
  })

  it('resume: a function that changes its own arguments is reused', async () => {
    let calls = 0
    const body = async (flow: WorkflowEngine) => {
      const emptied = flow.functionTask((items: number[]) => (calls++, items.splice(0)))
      return emptied([3, 1, 2])
    }
    expect(await valuesOfBoth(body, body)).toEqual([
      [3, 1, 2],
      [3, 1, 2],
    ])
    expect(calls).toBe(1)
  })

  it('resume: what depends on equal calls keeps to its own, in any order', async () => {
    let drawn = 0
    const body = (order: readonly number[]) => async (flow: WorkflowEngine) => {
      const draw = flow.functionTask((from: number) => from + ++drawn)
      const show = flow.functionTask((value: number) => `shown ${value}`)
      const twice = flow.block(async (value: number) => flow.functionTask(echoed)(value))
      const draws = [draw(0), draw(0)]
      const shown: string[] = []
      for (const at of order) {
        const value = draws[at] ?? Promise.reject(new Error('no draw'))
        shown[at] =
          `${await value} ${await show(draws[at] as never)} ${await twice(value as never)}`
      }
      return shown
    }
    const expected = ['1 shown 1 1', '2 shown 2 2']
    expect(await valuesOfBoth(body([1, 0]), body([0, 1]))).toEqual([expected, expected])
    expect(drawn).toBe(2)
  })

  it('resume: a value from before its input was made anew is not used later', async () => {
    const folder = tempFolder()
    let made = 0
    const body = (isCut: boolean) => async (flow: WorkflowEngine) => {
      const make = flow.functionTask((x: number) => x + ++made)(0)
      const value = await make
      return isCut ? [value] : [value, await flow.functionTask(echoed)(make)]
    }
    const first = await run({ folder }, body(false))
    expect(first.value).toEqual([1, 1])
    // The values of the first file are lost, so that what it has done is run again.
    const kept = resultsPathOf(first.record)
    renameSync(kept, `${kept}.away`)
    const second = await run({ folder, resume: first.record }, body(true))
    expect(second.value).toEqual([2])
    renameSync(`${kept}.away`, kept)
    const third = await run({ folder, resume: second.record }, body(false))
    expect(third.value).toEqual([2, 2])
  })

  it('resume: arguments that change after the call count as they are when it begins', async () => {
    const body = (late: string, plain: number) => async (flow: WorkflowEngine) => {
      const read = flow.functionTask((given: { x?: unknown }) => given.x ?? 'none')
      const make = flow.functionTask((text: string) => `made ${text}`)
      const [withHandle, withValue, unchanged]: { x?: unknown }[] = [{}, {}, { x: 'same' }]
      const handles = [read(withHandle ?? {}), read(withValue ?? {}), read(unchanged ?? {})]
      Object.assign(withHandle ?? {}, { x: make(late) })
      Object.assign(withValue ?? {}, { x: plain })
      return Promise.all(handles)
    }
    expect(await valuesOfBoth(body('a', 1), body('b', 2))).toEqual([
      ['made a', 1, 'same'],
      ['made b', 2, 'same'],
    ])
  })

  it('resume: unfinished blocks that captured other values find only their own calls', async () => {
    const body = (factors: readonly number[], stopped: boolean) => async (flow: WorkflowEngine) => {
      const done = Promise.withResolvers<undefined>()
      let inside = 0
      const calls = factors.flatMap((k) => {
        const inner = async (x: number): Promise<number> => {
          const value = await flow.functionTask((y: number) => y * k)(x)
          if (++inside === factors.length * 2) done.resolve(undefined)
          return stopped ? never : value
        }
        const blocks = [
          flow.block(async (x: number) => inner(x))(10),
          flow.block(async () => inner(100))(),
        ]
        return stopped ? [] : blocks
      })
      if (stopped) await done.promise
      return Promise.all(calls)
    }
    const [, second] = await valuesOfBoth(body([2, 3, 4], true), body([4, 3, 2], false))
    expect(second).toEqual([40, 400, 30, 300, 20, 200])
  })

  it('resume: an unfinished block on one of equal calls is not that on another one', async () => {
    const folder = tempFolder()
    let drawn = 0
    let calls = 0
    const body = (order: readonly number[], stopped: boolean) => async (flow: WorkflowEngine) => {
      const draw = flow.functionTask((from: number) => from + ++drawn)
      const done = Promise.withResolvers<undefined>()
      const inner = flow.functionTask((from: number) => from + ++calls)
      const block = flow.block(async (_value: number) => {
        const number = await inner(0)
        done.resolve(undefined)
        return stopped ? never : number
      })
      const draws = [draw(0), draw(0)]
      await Promise.all(draws)
      const shown = order.map((at) => block(draws[at] as never))
      if (!stopped) return Promise.all(shown)
      await done.promise
      return []
    }
    const first = await run({ folder }, body([1], true))
    const second = await run({ folder, resume: first.record }, body([0, 1], false))
    expect(second.value).toEqual([2, 1])
    const third = await run({ folder, resume: second.record }, body([0, 1], false))
    expect([third.value, calls]).toEqual([[2, 1], 2])
    expect(await verdictOf(third.record)).toBe(0)
  })

  it('resume: calls in the bodies of functions belong to these', async () => {
    const folder = tempFolder()
    const file = join(folder, 'data.txt')
    const body = (order: readonly number[], stopped: boolean) => async (flow: WorkflowEngine) => {
      const cat = flow.executableTask((path: string) => ['cat', path])
      const done = Promise.withResolvers<undefined>()
      const write = flow.functionTask(async (value: number) => {
        writeFileSync(file, `${value}`)
        const { stdout } = await cat(file)
        done.resolve(undefined)
        return stopped && value === 2 ? never : stdout
      })
      const written: string[] = []
      for (const value of order) {
        const handle = write(value)
        if (stopped && value === 2) await done.promise
        else written.push(await handle)
      }
      return written
    }
    const first = await run({ folder }, body([2], true))
    const second = await run({ folder, resume: first.record }, body([1, 2], false))
    expect(second.value).toEqual(['1', '2'])
    expect(await verdictOf(second.record)).toBe(0)
  })

  it('resume: another function of equal source is refused after a value was given', async () => {
    const folder = tempFolder()
    const body = (factors: readonly number[]) => async (flow: WorkflowEngine) =>
      Promise.all(
        factors.map(async (k) => {
          const scale = flow.functionTask((x: number) => x * k, { name: 'scale' })
          return scale(10).catch((error: unknown) => error)
        }),
      )
    const first = await run({ folder }, body([2]))
    const second = await run({ folder, resume: first.record }, body([3, 2]))
    const { cause } = second.value[1] as Error
    expect(StateError.isInstance(cause)).toBe(true)
    expect(cause).toMatchObject({
      code: 'AmbiguousFunctionError',
      message: expect.stringMatching(
        /function "scale" got the recorded value of task-\d+/,
      ) as string,
    })
    // From here on the record shows that there are several.
    const third = await run({ folder, resume: second.record }, body([3, 2]))
    expect(third.value).toEqual([30, 20])
    expect(await verdictOf(third.record)).toBe(0)
  })
})

/** The value of a task that is unfinished when its run is stopped. */
const never = new Promise<never>(() => {})

const echoed = (value: number): number => value
