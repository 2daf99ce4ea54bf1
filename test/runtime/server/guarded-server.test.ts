import { existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it, onTestFinished } from 'vitest'
import { systemClock } from '../../../src/foundation/clock.ts'
import { fillTemplate } from '../../../src/inference/engines/process/server-command.ts'
import { isProcessAlive } from '../../../src/runtime/process-group.ts'
import { findFreePort, GuardedServer } from '../../../src/runtime/server/guarded-server.ts'
import { startProgram } from '../../cli/run-command.ts'
import { processesWith } from '../../cluster/processes.ts'
import { eventually } from '../../eventually.ts'
import { holdAll, page } from '../../inference/engines/process/connections.ts'
import { serverCommand } from '../../inference/engines/process/engine-options.ts'

/** The fixture server, listening. */
async function launch(mode: string, graceMs: number) {
  const port = await findFreePort('127.0.0.1')
  const listening = Promise.withResolvers<void>()
  const values = {
    model: '',
    port,
    host: '',
    tp_size: 1,
    worker: 0,
    node: 0,
    dtype: 'float16',
    max_model_len: 64,
    gpu_memory_utilization: 0.9,
  }
  const server = new GuardedServer({
    command: fillTemplate(serverCommand(mode), values),
    env: {},
    guardEnv: {},
    graceMs,
    clock: systemClock,
    onLine: (line) => {
      if (line === 'listening') listening.resolve()
    },
  })
  onTestFinished(() => server.stop())
  await server.launched
  await listening.promise
  return { server, port }
}

describe('a guarded server', () => {
  it('a guarded server is killed with its child processes after the grace period', async () => {
    const { server, port } = await launch('stubborn', 50)
    const released = await holdAll(port)
    await server.stop()
    await released()
    expect(await server.ended).toMatch(/^SIG(?:TERM|KILL)$/)
  })

  it('a guarded server is ended, with its child processes, when its guard is killed', async () => {
    const { server, port } = await launch('stubborn', 60_000)
    const released = await holdAll(port)
    const { parent } = (await page(port, '/process')) as { parent: number }
    process.kill(parent, 'SIGKILL')
    await released()
    expect(await server.ended).toBe('the end of its guard')
    await server.stop()
  })

  it('a guarded server leaves no folder when it dies together with this process', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'tutti-guarded-'))
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
    const program = fileURLToPath(new URL('../fixtures/server-parent.ts', import.meta.url))
    for (let round = 0; round < 5; round++) {
      mkdirSync(folder, { recursive: true })
      const parent = startProgram(program, [folder])
      await parent.seen('launched')
      parent.child.kill('SIGKILL')
      await parent.ended
      await eventually(() => expect(processesWith(`SERVER_FOLDER=${folder}`)).toEqual([]))
      expect(existsSync(folder)).toBe(false)
    }
  })

  it('a guarded server takes a child process with it that has left its group', async () => {
    const line = Promise.withResolvers<string>()
    const child = `setsid sh -c 'echo $$; exec sleep 100014'`
    const server = new GuardedServer({
      command: ['sh', '-c', `${child} & exec sleep 100014`],
      env: { PATH: process.env['PATH'] ?? '' },
      guardEnv: {},
      graceMs: 60_000,
      clock: systemClock,
      onLine: line.resolve,
    })
    onTestFinished(() => server.stop())
    const pid = Number(await line.promise)
    expect(isProcessAlive(pid)).toBe(true)
    await server.stop()
    expect(isProcessAlive(pid)).toBe(false)
  })
})
