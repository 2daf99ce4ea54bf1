import { describe, expect, it } from 'vitest'
import type { WorkflowEngine } from '../../src/workflow/workflow-engine.ts'
import { tempFolder } from '../checkpoint/open-writer.ts'
import { run, verdictOf } from './recorded-flows.ts'

type Body<T> = (flow: WorkflowEngine) => Promise<T>

/** Runs the first program, then the second one with its record; the values of both. */
async function resumed<T>(first: Body<T>, second: Body<T>): Promise<[T, T]> {
  const folder = tempFolder()
  const before = await run({ folder }, first)
  const after = await run({ folder, resume: before.record }, second)
  expect(await verdictOf(after.record)).toBe(0)
  return [before.value, after.value]
}

describe('values after a resume', () => {
  it('resume: a call without arguments runs again with what is captured now', async () => {
    const body = (k: number) => async (flow: WorkflowEngine) => [
      await flow.functionTask(() => k)(),
      (await flow.executableTask(() => ['echo', `${k}`])()).stdout.trim(),
      await flow.block(async () => Promise.resolve(k))(),
    ]
    expect(await resumed(body(2), body(3))).toEqual([
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
    const [first, second] = await resumed(body([2, 3]), body([3, 2]))
    expect(first).toEqual([Array(3).fill(20), Array(3).fill(30)])
    expect(second).toEqual([Array(3).fill(30), Array(3).fill(20)])
  })

  it('resume: a function without `this` is reused whatever it is a field of', async () => {
    let calls = 0
    const body = async (flow: WorkflowEngine) => {
      const tasks = { double: flow.functionTask((x: number) => (++calls, x * 2)) }
      return tasks.double(4)
    }
    expect(await resumed(body, body)).toEqual([8, 8])
    expect(calls).toBe(1)
  })
})
