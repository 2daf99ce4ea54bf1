import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { NoopBackend } from '../../src/backends/noop-backend.ts'
import { readCheckpoint } from '../../src/checkpoint/reader.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { FakeBackend } from '../../src/testing/fake-backend.ts'
import { createView, fold, type ViewedEvent } from '../../src/views/run-view.ts'

const event = (
  event_type: string,
  task_id: string | null,
  attributes: ViewedEvent['attributes'] = {},
): ViewedEvent => ({
  event_type,
  event_time: 100,
  session_id: 's-1',
  backend: 'local',
  task_id,
  attributes: { executable: 'simulate', task_type: 'function', ...attributes },
})

const foldAll = (events: readonly ViewedEvent[]) => events.reduce(fold, createView())

describe('the fold', () => {
  it('counts tasks by name and state', () => {
    const view = foldAll([
      event('TaskCreated', 'a'),
      event('TaskCreated', 'b'),
      event('TaskStarted', 'a'),
      event('TaskCompleted', 'a'),
      event('TaskStarted', 'b'),
    ])
    expect(view.totals).toEqual({ created: 2, completed: 1, failed: 0, canceled: 0 })
    expect(view.names.get('simulate')).toMatchObject({ total: 2, running: 1, completed: 1 })
    expect([...view.open.keys()]).toEqual(['b'])
  })

  it('groups failures by name, type and message, and names the first task', () => {
    const failure = { error_type: 'RangeError', error_message: 'bad seed' }
    const view = foldAll([
      event('TaskFailed', 'a', failure),
      event('TaskFailed', 'b', failure),
      event('TaskFailed', 'c', { ...failure, error_message: 'other' }),
    ])
    const groups = [...view.failures.values()].map(({ message, count, firstTask }) => [
      message,
      count,
      firstTask,
    ])
    expect(groups).toEqual([
      ['bad seed', 2, 'a'],
      ['other', 1, 'c'],
    ])
  })

  it('counts attempts and lost workers, and leaves unknown types alone', () => {
    const before = foldAll([event('tutti.TaskAttempt', 'a'), event('tutti.WorkerLost', null)])
    expect([before.attempts, before.workersLost]).toEqual([1, 1])
    expect(fold(before, event('someone.Else', null)).totals.created).toBe(0)
  })

  it('is the same for live events and for the file', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'tutti-view-'))
    const fake = new FakeBackend({ name: 'fake' })
    const session = new Session([new NoopBackend({ name: 'noop' }), fake])
    const telemetry = await session.startTelemetry({ checkpointPath: folder })
    const live = createView()
    telemetry.subscribe((one) => {
      fold(live, one)
    })
    const failing = new ComputeTask({ executable: './b', backend: 'fake' })
    const open = new ComputeTask({ executable: './b', backend: 'fake' })
    await session.submitTasks([
      new ComputeTask({ executable: './a', backend: 'noop' }),
      failing,
      open,
    ])
    fake.start(failing)
    fake.fail(failing, new RangeError('no'))
    await session.close()
    const read = createView()
    for await (const line of readCheckpoint(telemetry.checkpointFile ?? '')) {
      if (line.section === 'event') fold(read, line)
    }
    expect(read).toEqual(live)
    expect(read.totals).toEqual({ created: 3, completed: 1, failed: 1, canceled: 1 })
    await rm(folder, { recursive: true })
  })
})
