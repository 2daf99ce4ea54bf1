import { expect, it } from 'vitest'
import { createRunPass } from '../../src/views/all-panels.ts'
import { counts } from '../../src/views/panels/counts.ts'
import type { ViewEvent } from '../../src/views/panel.ts'
import { explainTask, findTasks } from '../../src/views/tasks.ts'
import { lifeOf, viewEvent } from './view-event.ts'

const first = viewEvent('SessionStarted')
const resumed = viewEvent('SessionStarted', null, { attributes: { resumed_from: 'before' } })

const failure = (uid: string): ViewEvent[] => [
  viewEvent('TaskCreated', uid),
  viewEvent('TaskStarted', uid),
  viewEvent('TaskFailed', uid),
]

/** A task of a later file that says which one of an earlier file it is. */
const continuing = (events: readonly ViewEvent[], origin: string, back = 1): ViewEvent[] =>
  events.map((event) => {
    if (event.event_type !== 'TaskCreated') return event
    const attributes = { ...event.attributes, origin_uid: origin, origin_files_back: back }
    return { ...event, attributes }
  })

const reused = (uid: string): ViewEvent[] => [
  viewEvent('TaskCreated', uid),
  viewEvent('TaskCompleted', uid, { attributes: { reused: true } }),
]

function shown(...events: readonly ViewEvent[]) {
  const pass = createRunPass()
  for (const event of events) pass.take(event)
  const { tasks, completed, failed, open } = counts.show(pass.counts)
  const states = findTasks(pass, { limit: 10 }).tasks.map(({ uid, state }) => `${uid} ${state}`)
  return { pass, counts: { tasks, completed, failed, open }, states }
}

it('task index: the same generated uid in two files is two tasks, an own one is one', () => {
  const { counts: totals, states } = shown(
    first,
    ...lifeOf('task-000001'),
    ...failure('own'),
    resumed,
    ...failure('task-000001'),
    ...lifeOf('own'),
  )
  expect(totals).toEqual({ tasks: 3, completed: 2, failed: 1, open: 0 })
  expect(states).toEqual(['task-000001 DONE', 'own DONE', 'task-000001 FAILED'])
})

it('task index: a task is followed by its origin, whichever uids it has', () => {
  const {
    pass,
    counts: totals,
    states,
  } = shown(
    first,
    ...lifeOf('task-000001'),
    ...failure('task-000002'),
    resumed,
    ...continuing(lifeOf('task-000001'), 'task-000002'),
    ...continuing(reused('task-000002'), 'task-000001'),
    ...failure('task-000003'),
    resumed,
    ...continuing(reused('task-000003'), 'task-000002', 2),
    ...continuing(lifeOf('task-000001'), 'task-000003'),
  )
  expect(totals).toEqual({ tasks: 3, completed: 3, failed: 0, open: 0 })
  expect(states).toEqual(['task-000002 DONE', 'task-000003 DONE', 'task-000001 DONE'])
  expect(explainTask(pass, 'task-000003')).toMatchObject({ task: 1 })
})

it('task index: without its previous file a file is followed as well', () => {
  const { counts: totals } = shown(
    resumed,
    ...continuing(failure('task-000001'), 'task-000007'),
    ...failure('task-000007'),
    resumed,
    ...continuing(lifeOf('task-000001'), 'task-000007', 2),
  )
  expect(totals).toEqual({ tasks: 2, completed: 1, failed: 1, open: 0 })
})
