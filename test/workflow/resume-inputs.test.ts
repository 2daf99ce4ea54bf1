/** The inputs of a call: enclosing bodies, the order of keys, arguments that change. */

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { ConcurrentBackend } from '../../src/backends/local/concurrent-backend.ts'
import { WorkflowEngine } from '../../src/workflow/workflow-engine.ts'
import { tempFolder } from '../checkpoint/open-writer.ts'
import { eventually } from '../eventually.ts'
import { eventsIn } from '../session/recorded-runs.ts'
import { valuesOfBoth } from './recorded-flows.ts'

it('resume: calls in the body of a function run again if that gets a value made anew', async () => {
  const folder = tempFolder()
  const file = join(folder, 'data.txt')
  let runs = 0
  // A function is not kept.
  const body = async (flow: WorkflowEngine): Promise<unknown> => {
    const current = ++runs
    const cat = flow.executableTask((path: string) => ['cat', path], { name: 'cat' })
    const prepare = flow.functionTask((path: string) => {
      writeFileSync(path, `run ${current}`)
      return () => current
    })
    const use = flow.functionTask(async (version: () => number, path: string) => {
      const times = flow.functionTask((x: number) => x * version(), { name: 'times' })
      return [(await cat(path)).stdout, await times(10)]
    })
    return await use(prepare(file), file)
  }
  expect(await valuesOfBoth(body, body)).toEqual([
    ['run 1', 10],
    ['run 2', 20],
  ])
})

it('resume: calls in the body of a function that gets the same values are reused', async () => {
  let calls = 0
  let isBroken = true
  const body = async (flow: WorkflowEngine): Promise<unknown> => {
    const inner = flow.functionTask((x: number) => (++calls, x + 1), { name: 'inner' })
    const outer = flow.functionTask(async (x: number) => {
      const value = await inner(x)
      if (isBroken) throw new Error('broken')
      return value
    })
    return await outer(flow.functionTask((x: number) => x * 2)(3)).catch(() => null)
  }
  const first = body
  const second: typeof body = async (flow) => {
    isBroken = false
    return await body(flow)
  }
  expect(await valuesOfBoth(first, second)).toEqual([null, 7])
  expect(calls).toBe(1)
})

it('resume: arguments whose keys have another order are other arguments', async () => {
  const body = (isReversed: boolean) => async (flow: WorkflowEngine) => {
    const keys = flow.functionTask((given: object) => Object.keys(given).join(), { name: 'keys' })
    const given = [
      { a: 1, b: 2 },
      { b: 2, a: 1 },
    ]
    const values: unknown[] = []
    for (const one of isReversed ? given.toReversed() : given) values.push(await keys(one))
    return values
  }
  expect(await valuesOfBoth(body(false), body(true))).toEqual([
    ['a,b', 'b,a'],
    ['b,a', 'a,b'],
  ])
})

it('resume: maps, sets, dates and bytes count as they are when the call begins', async () => {
  const body = (late: number) => async (flow: WorkflowEngine) => {
    const read = flow.functionTask((given: Iterable<unknown> | Date) =>
      given instanceof Date ? [given.getTime()] : [...given],
    )
    const map = new Map([['x', 0]])
    const set = new Set<number>()
    const date = new Date(0)
    const bytes = Buffer.alloc(1)
    const handles = [read(map), read(set), read(date), read(bytes), read(new Map([['same', 1]]))]
    map.set('x', late)
    set.add(late)
    date.setTime(late)
    bytes[0] = late
    return await Promise.all(handles)
  }
  const values = (late: number): unknown => [[['x', late]], [late], [late], [late], [['same', 1]]]
  expect(await valuesOfBoth(body(5), body(6))).toEqual([values(5), values(6)])
})

it('resume: an equal handle in the place of another one is another input', async () => {
  let drawn = 0
  const body = (isSwapped: boolean) => async (flow: WorkflowEngine) => {
    const draw = flow.functionTask((x: number) => x + ++drawn, { name: 'draw' })
    const use = flow.functionTask((given: { x: number }) => given.x, { name: 'use' })
    const [first, second] = [draw(1), draw(1)]
    const given = { x: first }
    const used = use(given)
    if (isSwapped) given.x = second
    return [await used, await first, await second]
  }
  const [before, after] = await valuesOfBoth(body(true), body(false))
  expect(before?.[0]).toBe(before?.[2])
  expect(after?.[0]).toBe(after?.[1])
})

interface Given {
  x: number
  next?: Given
}

it('resume: what was made from arguments that changed while it waited runs again', async () => {
  const folder = tempFolder()
  const runOnce = async (change: (given: Given) => unknown, record?: string) => {
    const backend = await ConcurrentBackend.create({ workers: 1, cores: 2 })
    const flow = await WorkflowEngine.create({ backend, log: { warn() {} } })
    try {
      if (record !== undefined) await flow.resume(record)
      const telemetry = await flow.startTelemetry({ checkpointPath: folder, keepResults: true })
      const started = Promise.withResolvers<void>()
      const changed = Promise.withResolvers<void>()
      const all = { resources: { cores: 2 } }
      // Holds all cores until the arguments of the other one have changed.
      const held = flow.functionTask(
        async (hold: () => Promise<void>) => await hold(),
        all,
      )(async () => {
        started.resolve()
        await changed.promise
      })
      await started.promise
      const given: Given = { x: 1 }
      const value = flow.functionTask((one: Given) => [one.x, typeof one.next], all)(given)
      await eventually(() => expect(['QUEUED', 'DONE']).toContain(value.state))
      change(given)
      changed.resolve()
      await held
      return { value: await value, record: telemetry.checkpointFile ?? '' }
    } finally {
      await flow.shutdown()
    }
  }
  const first = await runOnce((given) => (given.x = 2))
  const second = await runOnce((given) => (given.x = 3), first.record)
  expect([first.value, second.value].map(([x]) => x)).toEqual([2, 3])
  // Too deep to be compared.
  const third = await runOnce((given) => {
    for (let at = 0, last = given; at < 2000; at++) last = last.next = { x: at }
  }, second.record)
  const events = eventsIn(third.record)
  expect(events.filter(({ event_type: type }) => type === 'TaskStarted')).toHaveLength(2)
  expect(third.value).toEqual([1, 'object'])
  expect((await runOnce(() => 0, third.record)).value).toEqual([1, 'undefined'])
})

it('resume: what a body decided from arguments that changed while it ran runs again', async () => {
  const body = (late: number | null) => async (flow: WorkflowEngine) => {
    const begun = Promise.withResolvers<undefined>()
    const change = Promise.withResolvers<undefined>()
    const echo = flow.executableTask(async (given: { x: number }) => {
      begun.resolve(undefined)
      await change.promise
      return ['echo', `${given.x}`]
    })
    const given = { x: 1 }
    const handle = echo(given)
    await Promise.race([begun.promise, handle])
    if (late !== null) given.x = late
    change.resolve(undefined)
    return (await handle).stdout.trim()
  }
  expect(await valuesOfBoth(body(5), body(null))).toEqual(['5', '1'])
})

it('resume: a program whose body changes its own argument is reused', async () => {
  let decided = 0
  const body = async (flow: WorkflowEngine) => {
    const echo = flow.executableTask((words: string[]) => {
      decided++
      return ['echo', ...words.splice(0)]
    })
    return (await echo(['a', 'b'])).stdout
  }
  expect(await valuesOfBoth(body, body)).toEqual(['a b\n', 'a b\n'])
  expect(decided).toBe(1)
})

it('resume: calls of an attempt that got changed arguments are not found again', async () => {
  const body = (late: number | null) => async (flow: WorkflowEngine) => {
    let attempts = 0
    const outer = flow.functionTask(
      async (given: { x: number }) => {
        if (late !== null && ++attempts === 1) {
          given.x = late
          throw new Error('the first attempt')
        }
        return flow.functionTask((y: number) => y * given.x, { name: 'inner' })(1)
      },
      { retries: { times: 1, delaySeconds: 0 } },
    )
    return outer({ x: 1 })
  }
  expect(await valuesOfBoth(body(5), body(null))).toEqual([5, 1])
})

it('resume: calls in functions without arguments belong to these', async () => {
  const file = join(tempFolder(), 'data.txt')
  const body = (order: readonly string[]) => async (flow: WorkflowEngine) => {
    const cat = flow.executableTask((path: string) => ['cat', path])
    const shown: string[] = []
    for (const name of order) {
      const show = async (): Promise<string> => {
        writeFileSync(file, name)
        return (await cat(file)).stdout
      }
      shown.push(await flow.functionTask(show, { name })())
    }
    return shown
  }
  expect(await valuesOfBoth(body(['a', 'b']), body(['b', 'a']))).toEqual([
    ['a', 'b'],
    ['b', 'a'],
  ])
})

it('resume: calls in a block whose arguments changed are not found again', async () => {
  const body = (late: number | null) => async (flow: WorkflowEngine) => {
    const given: { x: unknown } = { x: 1 }
    const block = flow.block(async (one: { x: unknown }) =>
      flow.functionTask((y: number) => y * Number(one.x), { name: 'inner' })(1),
    )
    const value = block(given)
    if (late !== null) given.x = flow.functionTask((x: number) => x, { name: 'late' })(late)
    return await value
  }
  expect(await valuesOfBoth(body(5), body(null))).toEqual([5, 1])
})
