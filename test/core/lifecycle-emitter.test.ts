import { describe, expect, it } from 'vitest'
import type { AttemptFacts, TaskReport } from '../../src/backends/backend.ts'
import { TuttiError } from '../../src/foundation/errors.ts'
import { ExecutableFailedError, TaskFailedError } from '../../src/foundation/task-errors.ts'
import { openSession, quick, typesOf } from '../session/open-session.ts'

const raise = (): never => {
  throw new RangeError('on purpose')
}

/** Errors of the task itself that throw when they are read. */
const ownErrors = {
  uid: (uid: string) =>
    Object.defineProperty(new TaskFailedError('no', { uid }), 'uid', { get: raise }),
  exitCode: (uid: string) => {
    const details = { uid, exitCode: 1, signal: null, stderr: '' }
    return Object.defineProperty(new ExecutableFailedError('no', details), 'exitCode', {
      get: raise,
    })
  },
  cause: () => Object.defineProperty(new Error('no'), 'cause', { get: raise }),
  errors: () => Object.defineProperty(new Error('no'), 'errors', { get: raise }),
  hint: () => Object.defineProperty(new TuttiError('no'), 'hint', { get: raise }),
}

/** Values that a backend without type checks may report. */
const wrongFacts = { stderrTail: 7, workerId: 'w' } as unknown as AttemptFacts

describe('row 122: an end whose report throws', () => {
  it.each(Object.entries(ownErrors))(
    'row 122: the task ends if reading `%s` of its error throws',
    async (_, create) => {
      const { session, backend, eventsOf } = await openSession()
      const task = quick()
      await session.submitTasks([task])
      const error = create(task.uid)
      backend.start(task)
      backend.fail(task, error)
      await expect(task).rejects.toBeInstanceOf(TaskFailedError)
      expect(typesOf(await eventsOf(task)).slice(3)).toEqual(['TaskStarted', 'TaskFailed'])
    },
  )

  const reports: readonly [string, TaskReport][] = [
    ['TaskCompleted', { kind: 'complete', value: 42, facts: wrongFacts }],
    ['TaskFailed', { kind: 'fail', error: new Error('no'), facts: wrongFacts }],
    ['TaskCanceled', { kind: 'cancel', reason: 'asked', facts: wrongFacts }],
  ]

  it.each(reports)(
    'row 122: %s is emitted once, without details, if they cannot be masked',
    async (type, report) => {
      const { session, backend, eventsOf } = await openSession()
      const task = quick({ attributes: { site: 'here' } })
      const unstarted = quick()
      await session.submitTasks([task, unstarted])
      backend.start(task)
      backend.report(backend.jobOf(task), report)
      backend.report(backend.jobOf(unstarted), report)
      await Promise.allSettled([task, unstarted])
      expect([task.state, unstarted.state]).toEqual([task.state, task.state])
      expect(task.returnValue).toBe(type === 'TaskCompleted' ? 42 : undefined)
      const events = await eventsOf(task)
      expect(typesOf(events).slice(3)).toEqual(['TaskStarted', type])
      expect(events.at(-1)?.attributes).toEqual({
        site: 'here',
        executable: 'nothing',
        task_type: 'function',
        'tutti.details_error': 'TypeError',
      })
      expect((await eventsOf(unstarted)).at(-1)?.attributes).toMatchObject({
        incomplete_lifecycle: true,
        'tutti.details_error': 'TypeError',
      })
    },
  )
})
