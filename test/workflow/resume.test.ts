import { beforeEach, describe, expect, it } from 'vitest'
import type { WorkflowEngine } from '../../src/workflow/workflow-engine.ts'
import { tempFolder } from '../checkpoint/open-writer.ts'
import { eventsIn } from '../session/recorded-runs.ts'
import { run, verdictOf } from './recorded-flows.ts'

const calls: string[] = []
const newCalls = (): string[] => calls.splice(0)
beforeEach(() => void newCalls())

function load(name: string): number[] {
  calls.push(`load ${name}`)
  return [name.length]
}

function add(parts: readonly number[][]): number {
  calls.push('add')
  return parts.flat().reduce((sum, one) => sum + one, 0)
}

describe('resume of a workflow', () => {
  it('resume: calls that are DONE have their values, also with dependencies', async () => {
    const folder = tempFolder()
    const sum = async (flow: WorkflowEngine, names: readonly string[]): Promise<number> => {
      const loaded = names.map((name) => flow.functionTask(load)(name))
      return flow.functionTask(add)(loaded)
    }
    const first = await run({ folder }, (flow) => sum(flow, ['a', 'bb']))
    expect(newCalls()).toEqual(['load a', 'load bb', 'add'])
    const again = await run({ folder, resume: first.record }, (flow) => sum(flow, ['a', 'bb']))
    expect(newCalls()).toEqual([])
    expect([first.value, again.value]).toEqual([3, 3])
    expect(again.id).toBe(first.id)
    expect(again.resumed).toMatchObject({ done: 3, unfinished: 0 })
    // A further call changes what depends on it, and nothing else.
    const more = await run({ folder, resume: again.record }, (flow) =>
      sum(flow, ['ccc', 'a', 'bb']),
    )
    expect(newCalls()).toEqual(['load ccc', 'add'])
    expect(more.value).toBe(6)
  })

  it('resume: a changed function runs again, with what depends on it', async () => {
    const folder = tempFolder()
    const body = (factor: number) => async (flow: WorkflowEngine) => {
      const scale = { 1: (x: number) => x, 2: (x: number) => x * 2 }[factor] ?? Math.abs
      const scaled = flow.functionTask(scale, { name: 'scale' })(4)
      const text = flow.functionTask((x: number) => {
        calls.push('text')
        return `${x}`
      })
      return [await text(scaled), await text(7)]
    }
    const first = await run({ folder }, body(1))
    expect(newCalls()).toEqual(['text', 'text'])
    const second = await run({ folder, resume: first.record }, body(2))
    expect(newCalls()).toEqual(['text'])
    expect([first.value, second.value]).toEqual([
      ['4', '7'],
      ['8', '7'],
    ])
  })

  it('resume: blocks, programs and scopes', async () => {
    const folder = tempFolder()
    const body = async (flow: WorkflowEngine): Promise<unknown> => {
      const echo = flow.executableTask((text: string) => ['echo', text])
      const block = flow.block(async (text: string) => {
        calls.push('block')
        const { stdout } = await echo(text)
        return stdout.trim()
      })
      return flow.scope('w', async () => [await block('inside'), (await echo('outside')).stdout])
    }
    const first = await run({ folder }, body)
    expect(newCalls()).toEqual(['block'])
    const second = await run({ folder, resume: first.record }, body)
    expect(newCalls()).toEqual([])
    expect(second.value).toEqual(['inside', 'outside\n'])
    const reused = eventsIn(second.record).filter((one) => one.event_type === 'tutti.ResultReused')
    expect(reused.map(({ attributes, source }) => [attributes, source])).toEqual([
      [{ workflow_id: 'w' }, 'record'],
      [{ workflow_id: 'w' }, 'record'],
    ])
  })

  it('resume: a call that failed runs again, and what depends on it', async () => {
    const folder = tempFolder()
    let isBroken = true
    const body = async (flow: WorkflowEngine): Promise<unknown> => {
      const fail = flow.functionTask((x: number) => {
        calls.push('fail')
        if (isBroken) throw new Error('broken')
        return x
      })
      const sum = flow.functionTask(add)([flow.functionTask(load)('a'), [5], fail(1)] as never)
      return sum.catch(() => null)
    }
    const first = await run({ folder }, body)
    expect(newCalls().toSorted()).toEqual(['fail', 'load a'])
    isBroken = false
    const second = await run({ folder, resume: first.record }, body)
    expect(newCalls()).toEqual(['fail', 'add'])
    expect(second.value).toBe(7)
  })

  it('resume: functions of equal source that captured other values run again', async () => {
    const folder = tempFolder()
    const train = (models: readonly string[]) => (flow: WorkflowEngine) => {
      const length = flow.functionTask(lengthOf)
      const make = (model: string) =>
        flow.functionTask(function trained(x: number) {
          calls.push(model)
          return `${model} ${x}`
        })
      return Promise.all(models.map((model) => length(make(model)(1))))
    }
    const first = await run({ folder }, train(['cnn', 'recurrent']))
    const second = await run({ folder, resume: first.record }, train(['transformer', 'cnn']))
    expect(second.value).toEqual([13, 5])
    expect(newCalls()).toEqual(['cnn', 'recurrent', 'transformer', 'cnn'])
    expect(await verdictOf(second.record)).toBe(0)
  })

  it('resume: what depends on a task that runs again runs again', async () => {
    const folder = tempFolder()
    let made = 0
    class Model {
      readonly value = ++made
    }
    const make = () => new Model()
    const use = (model: Model) => model.value
    const body = async (flow: WorkflowEngine) => {
      const model = flow.functionTask(make)()
      return [(await model).value, await flow.functionTask(use)(model)]
    }
    const first = await run({ folder }, body)
    const second = await run({ folder, resume: first.record }, body)
    expect(second.value[0]).toBe(second.value[1])
    expect(await verdictOf(second.record)).toBe(0)
  })

  it('resume: a call in a block is not taken for an equal one outside, or in another', async () => {
    const folder = tempFolder()
    let drawn = 0
    const draw = (from: number) => from + ++drawn
    const inner = (ends: boolean) => async (flow: WorkflowEngine) => {
      const leaf = flow.functionTask(draw)
      const block = flow.block(async function inside() {
        const value = await leaf(0)
        if (value === 2 && !ends) throw new Error('not yet')
        return value
      })
      const values: unknown[] = [await block()]
      values.push(await block().catch(() => null))
      values.push(await leaf(0))
      return values
    }
    const first = await run({ folder }, inner(false))
    expect(first.value).toEqual([1, null, 3])
    const second = await run({ folder, resume: first.record }, inner(true))
    expect(second.value).toEqual([1, 2, 3])
    expect(drawn).toBe(3)
  })

  it('resume: one function with two names is known by either, in any order', async () => {
    const folder = tempFolder()
    const body = (names: readonly string[]) => async (flow: WorkflowEngine) => {
      // A function of its own, as another process has it.
      const own = (name: string) => load(name)
      return Promise.all(names.map((name) => flow.functionTask(own, { name })(name)))
    }
    const first = await run({ folder }, body(['a', 'b']))
    expect(newCalls()).toHaveLength(2)
    await run({ folder, resume: first.record }, body(['b', 'a']))
    expect(newCalls()).toEqual([])
  })
})

const lengthOf = (text: string): number => text.length
