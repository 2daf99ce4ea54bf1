import { chmodSync, existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, onTestFinished, vi } from 'vitest'
import { findNatsServer } from '../../src/cluster/broker/nats-program.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { eventually } from '../eventually.ts'
import { needs } from '../require.ts'
import { launchedOnSlurm } from './launched.ts'
import { slurmNeeds } from './slurm.ts'

/** Notes its start and waits for a file; takes a whole node. */
const waiting = (begun: string, until: string): ComputeTask =>
  new ComputeTask({
    executable: 'sh',
    arguments: ['-c', 'echo begun >> "$0"; until [ -e "$1" ]; do sleep 0.05; done', begun, until],
    resources: { cores: 4 },
  })

/** The process and the folder of the nats-server that has its folder below this one. */
function serverBelow(folder: string): { readonly pid: number; readonly own: string } {
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    const words = commandOf(pid)
    const configuration = words.find((word) => word.endsWith('/server.conf')) ?? ''
    if (configuration.startsWith(`${folder}/`) && words.includes('-c')) {
      return { pid: Number(pid), own: dirname(configuration) }
    }
  }
  throw new Error(`no nats-server has its folder in ${folder}`)
}

function commandOf(pid: string): string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')
  } catch {
    return []
  }
}

const linesOf = (file: string): string[] =>
  existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n') : []

/** The codes of all warnings. */
function collectWarnings() {
  const codes: string[] = []
  return { codes, log: { warn: (code: string) => void codes.push(code) } }
}

describe('the nats-server of an HPC backend that is killed', () => {
  const { folder, create } = launchedOnSlurm()

  for (const store of ['with its store', 'with an empty store']) {
    needs(...slurmNeeds)(
      `a killed nats-server is started again ${store}, and no task is lost`,
      async () => {
        const { codes, log } = collectWarnings()
        await using session = new Session([await create({ log })], { log })
        const [begun, go] = [join(folder, `begun ${store}`), join(folder, `go ${store}`)]
        const tasks = [1, 2, 3, 4, 5, 6].map(() => waiting(begun, go))
        await session.submitTasks(tasks)
        await expect.poll(() => linesOf(begun)).toHaveLength(4)
        const { pid, own } = serverBelow(folder)
        process.kill(pid, 'SIGKILL')
        if (store !== 'with its store') rmSync(own, { recursive: true })
        writeFileSync(go, '')
        await session.waitTasks(tasks)
        expect(tasks.map(({ state }) => state)).toEqual(tasks.map(() => 'DONE'))
        expect(linesOf(begun)).toHaveLength(tasks.length)
        expect(serverBelow(folder).own).toBe(own)
        // The loss may be reported after the last result, which comes as soon as there is a stream
        // again.
        await eventually(() => {
          expect(codes.filter((code) => /^(?:NatsServer|Store)/.test(code))).toEqual([
            'NatsServerRestarted',
            ...(store === 'with its store' ? [] : ['StoreLost']),
          ])
        })
        await session.close()
        expect(existsSync(own)).toBe(false)
      },
    )
  }

  needs(...slurmNeeds)('a killed nats-server that cannot be restarted ends the tasks', async () => {
    const program = join(folder, 'nats-server')
    writeFileSync(program, `#!/bin/sh\nexec '${findNatsServer()}' "$@"\n`)
    chmodSync(program, 0o755)
    vi.stubEnv('TUTTI_NATS_SERVER', program)
    onTestFinished(() => void vi.stubEnv('TUTTI_NATS_SERVER', undefined))
    const { codes, log } = collectWarnings()
    const backend = await create({ log })
    const session = new Session([backend], { log })
    const begun = join(folder, 'begun without end')
    const tasks = [1, 2, 3, 4, 5, 6].map(() => waiting(begun, join(folder, 'never')))
    await session.submitTasks(tasks)
    await expect.poll(() => linesOf(begun)).toHaveLength(4)
    const { pid, own } = serverBelow(folder)
    writeFileSync(program, '#!/bin/sh\necho no room\nexit 7\n')
    process.kill(pid, 'SIGKILL')
    await session.waitTasks(tasks)
    const reason = /NatsServerLostError: .*exit code 7.*no room/
    for (const { state, error } of tasks) {
      expect(`${state} ${String(error)}`).toMatch(/^CANCELED /)
      expect(String(error)).toMatch(reason)
    }
    await expect(session.submitTasks([waiting(begun, 'never')])).rejects.toThrow(reason)
    await session.close()
    // It waits longer than a session for agents that it cannot reach.
    await backend.close()
    expect(codes).toContain('NatsServerLost')
    expect(existsSync(own)).toBe(false)
  })
})
