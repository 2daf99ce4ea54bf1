/** Calls of a workflow that were not done when it was resumed, and have changed. */

import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'
import type { EventLine } from '../../src/checkpoint/format.ts'
import { DependencyFailedError } from '../../src/workflow/dependency-errors.ts'
import type { WorkflowEngine } from '../../src/workflow/workflow-engine.ts'
import { tempFolder } from '../checkpoint/open-writer.ts'
import { startProgram } from '../cli/run-command.ts'
import { cutBefore, eventsIn, totalsOf } from '../session/recorded-runs.ts'
import { run, verdictOf } from './recorded-flows.ts'

/** The first event of a type of the task with a name, which TaskCreated has. */
const isOf = (record: string, type: string, name: string) => {
  const created = eventsIn(record).find((event) => event.attributes['task_name'] === name)
  return (event: EventLine) => event.event_type === type && event.task_id === created?.task_id
}

it('resume: a mended call and what depends on it are the calls that had failed', async () => {
  const folder = tempFolder()
  const body = (work: (value: number) => number) => async (flow: WorkflowEngine) => {
    const worked = flow.functionTask(work, { name: 'work' })(2)
    const shown = flow.functionTask((value: number) => `${value}`, { name: 'show' })(worked)
    return await shown.catch(() => null)
  }
  const fail = (value: number): number => {
    throw new RangeError(`no ${value}`)
  }
  const first = await run({ folder }, body(fail))
  const second = await run(
    { folder, resume: first.record },
    body((value) => value * 10),
  )
  expect(second.value).toBe('20')
  expect(await totalsOf(second.record)).toMatchObject({ tasks: 2, completed: 2, failed: 0 })
  expect(await verdictOf(second.record)).toBe(0)
  const third = await run(
    { folder, resume: second.record },
    body((value) => value * 10),
  )
  expect(third.resumed).toMatchObject({ done: 2, failed: 0, unfinished: 0 })
  expect(third.value).toBe('20')
  expect(eventsIn(third.record).map((one) => one.event_type)).not.toContain('TaskStarted')
  const other = await run(
    { folder, resume: third.record },
    body((value) => value * 100),
  )
  expect(other.value).toBe('200')
})

it('resume: a block without arguments that was killed is one task of the run', async () => {
  const folder = tempFolder()
  const body = async (flow: WorkflowEngine): Promise<unknown> => {
    const double = flow.functionTask((value: number) => value * 2, { name: 'double' })
    return await flow.block(async () => [await double(1), await double(2)], { name: 'all' })()
  }
  const first = await run({ folder }, body)
  cutBefore(first.record, isOf(first.record, 'TaskCompleted', 'all'))
  const second = await run({ folder, resume: first.record }, body)
  expect(second.value).toEqual([2, 4])
  const totals = { tasks: 3, completed: 3, failed: 0, open: 0 }
  expect(await totalsOf(second.record)).toMatchObject(totals)
  expect(await verdictOf(second.record)).toBe(0)
})

it('resume: with keepFailed what depends on a failed call fails as in any run', async () => {
  const folder = tempFolder()
  const body = async (flow: WorkflowEngine) => {
    const fail = flow.functionTask((x: number): number => {
      throw new RangeError(`no ${x}`)
    })
    const failed = fail(1)
    const dependent = flow.functionTask((x: number) => x, { name: 'dependent' })(failed)
    return { failed: failed.uid, uid: dependent.uid, error: await dependent.catch(identity) }
  }
  const first = await run({ folder }, body)
  const { value, record } = await run(
    { folder, resume: first.record, how: { keepFailed: true } },
    body,
  )
  expect(value.error).toBeInstanceOf(DependencyFailedError)
  expect(value.error).toMatchObject({
    uid: value.uid,
    rootUid: value.failed,
    path: [value.failed, value.uid],
    cause: { name: 'RangeError', message: 'no 1' },
  })
  expect(await totalsOf(record)).toMatchObject({ tasks: 2, failed: 2 })
})

const identity = (error: unknown): unknown => error

it('resume: an attempt that got another value is not gone on with', async () => {
  const folder = tempFolder()
  // In processes of their own, so that the calls have the same uids.
  const runBox = async (...record: string[]): Promise<string> => {
    const { code, stdout } = await startProgram(readBox, [folder, ...record]).ended
    expect(code).toBe(0)
    return stdout
  }
  const first = await runBox()
  cutBefore(first, isOf(first, 'TaskCompleted', 'read'))
  const second = await runBox(first)
  const attemptIn = (file: string): unknown =>
    eventsIn(file).find(isOf(file, 'TaskStarted', 'read'))?.attributes['attempt']
  expect([attemptIn(first), attemptIn(second)]).toEqual([1, 2])
})

const readBox = fileURLToPath(new URL('./fixtures/read-box.ts', import.meta.url))

/** Not kept, because it is an instance of a class. */
class NotKept {
  readonly value = 1
}

it('resume: what depends on calls that run again is the call that had failed', async () => {
  const folder = tempFolder()
  const body = (isBroken: boolean) => async (flow: WorkflowEngine) => {
    const use = flow.functionTask(
      (value: number) => {
        if (isBroken) throw new RangeError('broken')
        return value
      },
      { name: 'use' },
    )
    const calls = [1, 2].map(async (k) =>
      use(flow.functionTask((x: number) => x * k, { name: 'scale' })(10)).catch(() => null),
    )
    return Promise.all(calls)
  }
  const first = await run({ folder }, body(true))
  const second = await run({ folder, resume: first.record }, body(false))
  expect(second.value).toEqual([10, 20])
  const third = await run({ folder, resume: second.record }, body(false))
  expect(third.resumed).toMatchObject({ failed: 0 })
  expect(await verdictOf(third.record)).toBe(0)
})

it('resume: calls of a body that got newer values are found by the next run', async () => {
  const folder = tempFolder()
  let leaves = 0
  const body = (stage: number) => async (flow: WorkflowEngine) => {
    const draw = flow.functionTask((x: number) => (stage === 1 ? new NotKept() : { value: x }))
    const leaf = flow.functionTask((x: number) => x + ++leaves)
    const middle = flow.functionTask(async (x: number) => {
      const value = await leaf(x)
      if (stage < 3) throw new RangeError('not yet')
      return value
    })
    const outer = flow.functionTask(async ({ value }: { value: number }) => middle(value - 1))
    return outer(draw(1)).catch(() => null)
  }
  const first = await run({ folder }, body(1))
  const second = await run({ folder, resume: first.record }, body(2))
  const third = await run({ folder, resume: second.record }, body(3))
  expect([third.value, leaves]).toEqual([2, 2])
  expect(await verdictOf(third.record)).toBe(0)
})
