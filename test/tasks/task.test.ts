import { describe, expect, it } from 'vitest'
import { StateError, ValueError } from '../../src/foundation/errors.ts'
import { runInTask } from '../../src/foundation/task-context.ts'
import { TaskCanceledError } from '../../src/foundation/task-errors.ts'
import { AITask } from '../../src/tasks/ai-task.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import {
  claimRecord,
  findRecord,
  type TaskHolder,
  type TaskRecord,
} from '../../src/tasks/task-record.ts'
import type { Task } from '../../src/tasks/task.ts'

const work = (): number => 1
const make = (options: object): ComputeTask<number> =>
  new ComputeTask<number>({ function: work, ...options })

function problemOf(create: () => unknown): ValueError {
  try {
    create()
  } catch (error) {
    if (error instanceof ValueError) return error
    throw error
  }
  throw new Error('expected a ValueError')
}

describe('options of every task', () => {
  const invalid: readonly [object, string][] = [
    [{ uid: '' }, 'uid'],
    [{ uid: '../up' }, 'uid'],
    [{ uid: 'a b' }, 'uid'],
    [{ uid: 7 }, 'uid'],
    [{ uid: null }, 'uid'],
    [{ backend: '' }, 'backend'],
    [{ backend: {} }, 'backend'],
    [{ timeoutSeconds: 0 }, 'timeoutSeconds'],
    [{ timeoutSeconds: -1 }, 'timeoutSeconds'],
    [{ timeoutSeconds: Number.NaN }, 'timeoutSeconds'],
    [{ timeoutSeconds: Infinity }, 'timeoutSeconds'],
    [{ timeoutSeconds: '5' }, 'timeoutSeconds'],
    [{ signal: {} }, 'signal'],
    [{ signal: new AbortController() }, 'signal'],
    [{ retries: -1 }, 'retries'],
    [{ retries: 1.5 }, 'retries'],
    [{ retries: Infinity }, 'retries'],
    [{ retries: '1' }, 'retries'],
    [{ priority: Number.NaN }, 'priority'],
    [{ priority: 'high' }, 'priority'],
    [{ priority: Infinity }, 'priority'],
    [{ priority: -Infinity }, 'priority'],
    [{ attributes: 'x' }, 'attributes'],
    [{ attributes: [] }, 'attributes'],
    [{ timeout: 5 }, 'timeout'],
  ]
  it.each(invalid)(
    'wrong options of a task: %j is refused by the name of the field',
    (options, field) => {
      const error = problemOf(() => make(options))
      expect(error.field).toBe(field)
      expect(error.message).toContain(`\`${field}\``)
      expect(problemOf(() => new AITask({ prompt: 'a', backend: 'b', ...options })).field).toBe(
        field,
      )
    },
  )

  it('options of every task that throw when they are read are refused by name', () => {
    const { proxy: revoked, revoke } = Proxy.revocable({}, {})
    revoke()
    const throwing = {
      times: 1,
      get delaySeconds(): number {
        throw new Error('do not look')
      },
    }
    expect(problemOf(() => make({ retries: revoked })).field).toBe('retries')
    const error = problemOf(() => make({ retries: throwing }))
    expect(error).toMatchObject({ field: 'retries', cause: { message: 'do not look' } })
    expect(error.message).toContain('do not look')
  })

  it('wrong options of a task: the nearest known option is named', () => {
    expect(problemOf(() => make({ timeOutSeconds: 5 })).message).toBe(
      'ComputeTask has no `timeOutSeconds`; did you mean "timeoutSeconds"?',
    )
    expect(problemOf(() => make({ timeout: 5 })).message).toBe(
      'ComputeTask has no `timeout`; did you mean "timeoutSeconds"?',
    )
    expect(() => new ComputeTask(undefined as never)).toThrow(ValueError)
    expect(() => new AITask([] as never)).toThrow(ValueError)
  })

  it('options of every task are kept, with defaults for the rest', () => {
    expect(make({})).toMatchObject({
      timeoutSeconds: null,
      signal: null,
      retries: 0,
      retryAt: null,
      priority: 0,
      attributes: null,
      backend: null,
      state: 'CREATED',
      error: null,
    })
    const { signal } = new AbortController()
    const options = { timeoutSeconds: 0.5, signal, retries: 3, priority: -2.5, backend: 'b' }
    expect(make({ ...options, uid: 'A.b-c_9' })).toMatchObject({ ...options, uid: 'A.b-c_9' })
  })

  const reserved = [
    'executable',
    'task_type',
    'error_type',
    'incomplete_lifecycle',
    'definition_hash',
    'dependencies',
    'workflow_id',
    'worker_id',
    'attempt',
    'cpu_seconds',
    'peak_memory_bytes',
    'exit_code',
    'signal',
    'error_message',
    'error_stack',
    'error_hint',
    'reason',
    'stdout_tail',
    'stderr_tail',
    'result',
    'result_omitted',
    'gen_ai.response.finish_reasons',
    'tutti.name',
    'tutti.anything',
  ]
  it.each(reserved)('the attribute %s, which events have themselves, is refused', (name) => {
    expect(problemOf(() => make({ attributes: { [name]: 1 } })).field).toBe(`attributes.${name}`)
  })

  it('attributes of a task are copied as JSON shows them', () => {
    const given = { list: [1, { deep: true }], when: new Date(0), gone: undefined }
    const task = make({ attributes: given })
    given.list.push(2)
    expect(task.attributes).toEqual({ list: [1, { deep: true }], when: '1970-01-01T00:00:00.000Z' })
    expect(Object.isFrozen(task.attributes?.['list'])).toBe(true)
  })

  it('every task has a uid of its own', () => {
    const uids = Array.from({ length: 1000 }, () => make({}).uid)
    expect(new Set(uids).size).toBe(1000)
    expect(uids.every((uid) => /^task-\d{6,}$/.test(uid))).toBe(true)
  })
})

/** A stand-in for the ledger. */
const owner: TaskHolder = { ledger: {} }

function claim(task: Task): TaskRecord {
  const record = task[claimRecord](owner)
  if (record === null) throw new Error(`${task.uid} was claimed before`)
  return record
}

describe('awaiting a task', () => {
  it('an await before submission rejects with a hint', async () => {
    const task = make({ uid: 'early' })
    await expect(task).rejects.toBeInstanceOf(StateError)
    await expect(task).rejects.toMatchObject({
      message: 'task early was awaited before it was submitted',
      hint: expect.stringContaining('submitTasks') as string,
    })
  })

  it('an await gives the value to everybody, before and after the end', async () => {
    const task = make({})
    const record = claim(task)
    expect(task[claimRecord](owner)).toBe(null)
    expect([task[findRecord](owner.ledger), task[findRecord]({})]).toEqual([record, null])
    const early = [task.then((value) => value + 1), Promise.all([task, task])]
    record.settle({ state: 'DONE', value: 41 })
    expect(await Promise.all(early)).toEqual([42, [41, 41]])
    expect([await task, task.returnValue, task.error]).toEqual([41, 41, null])
    expect([task[findRecord](owner.ledger), task[claimRecord](owner)]).toEqual([null, null])
  })

  it('an await rejects for everybody, before and after the end', async () => {
    const task = make({})
    const record = claim(task)
    const early = [task.then(null, (error: unknown) => error), task.then(null, () => 'again')]
    const error = new TaskCanceledError(task.uid, 'over')
    record.settle({ state: 'CANCELED', error })
    expect(await Promise.all(early)).toEqual([error, 'again'])
    await expect(task).rejects.toBe(error)
    expect([task.error, task.returnValue]).toEqual([error, undefined])
  })

  it('an await ends with an error when the submission fails, and may begin again', async () => {
    const task = make({})
    const record = claim(task)
    const waiting = task.then(null, (error: unknown) => error)
    const error = new StateError('closed')
    record.withdraw(error)
    expect(await waiting).toBe(error)
    await expect(task).rejects.toBeInstanceOf(StateError)
    await expect(task).rejects.not.toHaveProperty('cause')
    expect(claim(task)).not.toBe(record)
  })

  it("an await in another task's code reports to the backend that the task waits", () => {
    const [other, ended] = [make({}), make({})]
    claim(other)
    claim(ended).settle({ state: 'DONE', value: 1 })
    let waits = 0
    const waitFor = (task: Task): void => {
      runInTask(
        'outer',
        () => void task.then(null, () => {}),
        () => waits++,
      )
    }
    waitFor(ended)
    expect(waits).toBe(0)
    waitFor(other)
    expect(waits).toBe(1)
  })

  it('nobody raises no unhandledRejection', async () => {
    const unhandled: unknown[] = []
    const hear = (reason: unknown): void => void unhandled.push(reason)
    process.on('unhandledRejection', hear)
    try {
      const [never, early] = [make({}), make({})]
      const records = [never, early].map((task) => claim(task))
      void early.then(null, () => {})
      for (const record of records) {
        record.settle({ state: 'FAILED', error: new TaskCanceledError('a', 'over') })
      }
      for (let at = 0; at < 3; at++) await new Promise((resolve) => setImmediate(resolve))
    } finally {
      process.off('unhandledRejection', hear)
    }
    expect(unhandled).toEqual([])
  })
})
