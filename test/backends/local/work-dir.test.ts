import { mkdir, mkdtemp, realpath, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { ConcurrentBackend } from '../../../src/backends/local/concurrent-backend.ts'
import { Session } from '../../../src/session/session.ts'
import { ComputeTask } from '../../../src/tasks/compute-task.ts'

it("runs programs in the session's folder, and relative folders inside it", async () => {
  const workDir = await realpath(await mkdtemp(join(tmpdir(), 'tutti-work-')))
  await mkdir(join(workDir, 'inner'))
  {
    await using session = new Session([await ConcurrentBackend.create()], { workDir })
    const folders = [undefined, 'inner', tmpdir()].map(
      (cwd) => new ComputeTask({ executable: 'pwd', ...(cwd === undefined ? {} : { cwd }) }),
    )
    await session.submitTasks(folders)
    const printed = (await Promise.all(folders)).map(({ stdout }) => stdout.trim())
    expect(printed).toEqual([workDir, join(workDir, 'inner'), await realpath(tmpdir())])
  }
  await rm(workDir, { recursive: true })
})
