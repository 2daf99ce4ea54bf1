/** Tasks without an own uid that were not done, and whose function was fixed. */

import { describe, expect, it } from 'vitest'
import type { EventLine } from '../../src/checkpoint/format.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { tempFolder } from '../checkpoint/open-writer.ts'
import { runHere } from '../cli/run-command.ts'
import { cutBefore, eventsIn, run, totalsOf } from './recorded-runs.ts'

type Work = (value: number) => number

/** All of one name. */
const broken: Work = {
  work: (value: number): number => {
    if (value > 1) throw new RangeError(`no ${value}`)
    return value
  },
}.work
const mended: Work = {
  work: (value: number): number => value * 10,
}.work
const other: Work = {
  work: (value: number): number => value * 100,
}.work

const make = (work: Work, ...values: readonly number[]): ComputeTask<number>[] =>
  values.map((value) => new ComputeTask({ function: work, args: [value] }))

const valuesOf = (tasks: readonly ComputeTask<number>[]): unknown[] =>
  tasks.map(({ returnValue }) => returnValue)

const isOf = (type: string, uid: string) => (event: EventLine) =>
  event.event_type === type && event.task_id === uid

describe('resume of tasks that were not done and have changed', () => {
  it('resume: a mended task that had failed is one task, and its newest run ends it', async () => {
    const folder = tempFolder()
    const failing = make(broken, 1, 2, 3)
    const first = await run({ folder }, failing)
    const tasks = make(mended, 3, 2)
    const second = await run({ folder, resume: first.record }, tasks)
    expect(valuesOf(tasks)).toEqual([30, 20])
    expect(await totalsOf(second.record)).toMatchObject({ tasks: 3, completed: 3, failed: 0 })
    // Only the DONE one: its function is another task now, which was not made.
    expect(second.warnings.map((text) => text.match(/^\w+|task-\d+.*$/g))).toEqual([
      ['TasksNotMade', failing[0]?.uid],
    ])
    expect((await runHere(process.cwd(), ['journal', 'verify', second.record])).code).toBe(0)
  })

  it('resume: a mended task that was unfinished or canceled is one task', async () => {
    const folder = tempFolder()
    const signal = AbortSignal.abort()
    const canceled = new ComputeTask({ function: mended, args: [1], signal })
    const [open] = make(mended, 2)
    const first = await run({ folder }, open === undefined ? [] : [canceled, open])
    cutBefore(first.record, isOf('TaskCompleted', open?.uid ?? ''))
    expect(await totalsOf(first.record)).toMatchObject({ tasks: 2, canceled: 1, open: 1 })
    const tasks = make(other, 1, 2)
    const second = await run({ folder, resume: first.record }, tasks)
    expect(valuesOf(tasks)).toEqual([100, 200])
    const totals = { tasks: 2, completed: 2, canceled: 0, open: 0 }
    expect(await totalsOf(second.record)).toMatchObject(totals)
    expect(second.warnings).toEqual([])
  })

  it('resume: the value of a mended task is its own, and never that of another code', async () => {
    const folder = tempFolder()
    const first = await run({ folder }, make(broken, 2))
    const second = await run({ folder, resume: first.record }, make(mended, 2))
    const again = make(mended, 2)
    const third = await run({ folder, resume: second.record }, again)
    expect(third.resumed).toMatchObject({ done: 1, failed: 0 })
    expect(valuesOf(again)).toEqual([20])
    expect(eventsIn(third.record).map((one) => one.event_type)).toContain('tutti.ResultReused')
    const old = make(broken, 2)
    const how = { changed: 'keep' } as const
    const fourth = await run({ folder, resume: third.record, how }, old)
    expect(old[0]?.error?.cause).toMatchObject({ message: 'no 2' })
    // A task that is DONE with other code is another task.
    expect(await totalsOf(fourth.record)).toMatchObject({ tasks: 2, completed: 1, failed: 1 })
    const last = make(mended, 2)
    await run({ folder, resume: fourth.record }, last)
    expect(valuesOf(last)).toEqual([20])
  })

  it('resume: an equal task goes on before one that has changed, each with its own', async () => {
    const folder = tempFolder()
    const first = await run({ folder }, make(broken, 2, 2))
    const changedFirst = [...make(mended, 2), ...make(broken, 2)]
    const second = await run({ folder, resume: first.record }, changedFirst)
    const totals = { tasks: 2, completed: 1, failed: 1 }
    expect(await totalsOf(second.record)).toMatchObject(totals)
    const further = [...make(mended, 2), ...make(broken, 2), ...make(other, 2)]
    const third = await run({ folder, resume: second.record }, further)
    expect(valuesOf(further)).toEqual([20, undefined, 200])
    expect(await totalsOf(third.record)).toMatchObject({ tasks: 3, completed: 2, failed: 1 })
    expect((await runHere(process.cwd(), ['journal', 'verify', third.record])).code).toBe(0)
  })

  it('resume: with keepFailed a mended task is another one', async () => {
    const folder = tempFolder()
    const first = await run({ folder }, make(broken, 2))
    const tasks = make(mended, 2)
    const how = { keepFailed: true }
    const second = await run({ folder, resume: first.record, how }, tasks)
    expect(valuesOf(tasks)).toEqual([20])
    expect(await totalsOf(second.record)).toMatchObject({ tasks: 2, completed: 1, failed: 1 })
  })

  it('resume: an attempt with another definition is not gone on with, also after two', async () => {
    const folder = tempFolder()
    // A uid of the form of the generated ones, which the next process may give again.
    for (const uid of ['task-900000', 'own']) {
      const named = (work: Work) => [new ComputeTask({ uid, function: work, args: [2] })]
      const first = await run({ folder }, named(mended))
      cutBefore(first.record, isOf('TaskCompleted', uid))
      const second = await run({ folder, resume: first.record }, named(other))
      // Its start is missing in the record, but it had the number 2.
      cutBefore(second.record, isOf('TaskStarted', uid))
      const third = await run({ folder, resume: second.record }, named(other))
      const start = eventsIn(third.record).find(isOf('TaskStarted', uid))
      expect(start?.attributes['attempt']).toBe(2)
    }
  })
})
