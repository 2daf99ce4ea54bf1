import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { Session } from '../../../src/session/session.ts'
import { ComputeTask } from '../../../src/tasks/compute-task.ts'
import { FakeBackend } from '../../../src/testing/fake-backend.ts'
import { eventsOf } from '../../views/synthetic-run.ts'
import { viewEvent } from '../../views/view-event.ts'
import { runHere } from '../run-command.ts'
import { linesOf, recordFolder, writeRecord } from './record-file.ts'

it('explain: says that a task waits for the limit of its name', async () => {
  const folder = recordFolder()
  onTestFinished(() => folder.remove())
  const limits = { fetch: { concurrent: 1, perSecond: 10 } }
  await using session = new Session([new FakeBackend({ name: 'local' })], { limits })
  const telemetry = await session.startTelemetry({ checkpointPath: folder.path })
  const [first, second] = ['a', 'b'].map(
    (uid) => new ComputeTask({ executable: 'curl', name: 'fetch', uid }),
  ) as [ComputeTask, ComputeTask]
  await session.submitTasks([first, second])
  await telemetry.flush()
  const { stdout } = await runHere(folder.path, ['explain', 'b'])
  expect(stdout).toContain(
    '  waits for the limit of its name: at most 1 at a time, at most 10 per second\n',
  )
  const { stdout: json } = await runHere(folder.path, ['explain', 'b', '--json'])
  expect(JSON.parse(json)).toMatchObject({ limit: { concurrent: 1, per_second: 10 } })
  const { stdout: other } = await runHere(folder.path, ['explain', 'a'])
  expect(other).not.toContain('  waits for the limit')
})

it('explain: names the limit that a task waited for, also after its end', async () => {
  const folder = recordFolder()
  onTestFinished(() => folder.remove())
  writeRecord(folder.path, {
    nodes: [{ nodeId: 'n1', cores: 2 }],
    tasks: [
      { uid: 'a', name: 'fetch', start: 0, end: 4 },
      { uid: 'b', name: 'fetch', queued: 4, start: 4, end: 5 },
    ],
    end: 6,
    limits: { fetch: { concurrent: 1 } },
  })
  const { stdout } = await runHere(folder.path, ['explain', 'b'])
  expect(stdout).toContain('4.00 s  waited for the limit of its name: at most 1 at a time\n')
  const { stdout: first } = await runHere(folder.path, ['explain', 'a'])
  expect(first).not.toContain('limit')
})

it('explain: only dependencies that ended before a task did can be the last of them', async () => {
  const folder = recordFolder()
  onTestFinished(() => folder.remove())
  const tasks = [
    { uid: 'fails', start: 0, end: 1, endType: 'TaskFailed' as const },
    { uid: 'long', start: 0, end: 5 },
    { uid: 'sum', dependencies: ['fails', 'long'] },
  ]
  const events = [
    ...eventsOf({ nodes: [{ nodeId: 'n1', cores: 2 }], tasks, end: 6 }),
    viewEvent('TaskFailed', 'sum', { event_time: 1 }),
  ]
  const inOrder = events.toSorted((x, y) => x.event_time - y.event_time)
  writeFileSync(join(folder.path, 's-1.1.telemetry.jsonl'), linesOf(inOrder))
  const { stdout } = await runHere(folder.path, ['explain', 'sum'])
  expect(stdout).toContain('; fails ended last\n')
})
