import { mkdir, mkdtemp, realpath, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { afterEach, expect, it } from 'vitest'
import { ConcurrentBackend } from '../../../src/backends/local/concurrent-backend.ts'
import { Session } from '../../../src/session/session.ts'
import { ComputeTask } from '../../../src/tasks/compute-task.ts'

const home = process.cwd()
afterEach(() => process.chdir(home))

it("programs run in the session's folder, and relative folders are inside it", async () => {
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

it.each(['backend', 'session'])(
  "a relative folder of the %s starts at the process's folder at its creation",
  async (owner) => {
    const workDir = await realpath(await mkdtemp(join(tmpdir(), 'tutti-work-')))
    await mkdir(join(workDir, 'inner'))
    {
      const options = { workDir: relative(home, join(workDir, 'inner')) }
      const backend = await ConcurrentBackend.create(owner === 'backend' ? options : { workDir })
      await using session = new Session([backend], owner === 'session' ? options : {})
      process.chdir('/')
      const task = new ComputeTask({ executable: 'pwd' })
      await session.submitTasks([task])
      expect((await task).stdout.trim()).toBe(join(workDir, 'inner'))
    }
    await rm(workDir, { recursive: true })
  },
)
