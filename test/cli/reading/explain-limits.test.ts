import { expect, it, onTestFinished } from 'vitest'
import { Session } from '../../../src/session/session.ts'
import { ComputeTask } from '../../../src/tasks/compute-task.ts'
import { FakeBackend } from '../../../src/testing/fake-backend.ts'
import { runHere } from '../run-command.ts'
import { recordFolder } from './record-file.ts'

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
  expect(other).not.toContain('limit')
})
