/** A Slurm cluster of four nodes for a test file: `scripts/slurm.mjs`, as a person uses it. */

import { execFile, spawn } from 'node:child_process'
import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll } from 'vitest'
import { requireCommand, requirement } from '../require.ts'

const execute = promisify(execFile)
const script = fileURLToPath(new URL('../../scripts/slurm.mjs', import.meta.url))

export const slurmNeeds = [
  requirement(process.getuid?.() === 0, 'needs root, for network namespaces'),
  ...['munged', 'slurmctld', 'slurmd', 'srun', 'ip', 'unshare', 'setpriv'].map(requireCommand),
]

export interface TestSlurm {
  readonly conf: string
  /** The environment of this process, with `SLURM_CONF`. */
  readonly env: NodeJS.ProcessEnv
  /** Resolves with what the command prints on stdout. */
  readonly run: (command: string, ...args: readonly string[]) => Promise<string>
  /** The process that holds the namespaces of a node, or of the controller (`ctl`). */
  pidOf(host: string): number
  /** The process of its slurmd or slurmctld; `null` when that was killed. */
  readonly daemonOf: (host: string) => number | null
  /** Stops that until the returned function is called. */
  readonly freeze: (host: string) => () => void
  /** Starts that again. It ends with the host. */
  readonly restart: (host: string) => void
  /** Runs a command with the files and the network of a host. */
  readonly runAt: (host: string, ...command: readonly string[]) => Promise<void>
  /** Takes the host from the network. */
  readonly cutLink: (host: string) => Promise<void>
  /** Ends it; nothing is left. */
  down(): Promise<void>
}

/** It ends with the process of that number, even if that is killed. */
export async function startSlurm(parent = process.pid): Promise<TestSlurm> {
  const { stdout } = await execute(process.execPath, [script, 'up', '--parent', String(parent)])
  const conf = stdout.trim().replace(/^SLURM_CONF=/, '')
  const env = { ...process.env, SLURM_CONF: conf }
  const folder = dirname(conf)
  const pidOf = (host: string): number => Number(readFileSync(join(folder, `${host}.pid`), 'utf8'))
  /** The first process in the host's own process namespace: a shell. */
  const shellOf = (host: string): number => childrenOf(pidOf(host))[0] ?? 0
  const daemonOf = (host: string): number | null => {
    const place = readlinkSync(`/proc/${shellOf(host)}/ns/pid`)
    // One that was started again is no child of the host's shell.
    const isDaemon = (pid: string): boolean => {
      try {
        const name = readFileSync(`/proc/${pid}/comm`, 'utf8').trim()
        return /^slurm(?:ctl)?d$/.test(name) && readlinkSync(`/proc/${pid}/ns/pid`) === place
      } catch {
        return false
      }
    }
    const pid = readdirSync('/proc')
      .filter((name) => /^\d+$/.test(name))
      .find(isDaemon)
    return pid === undefined ? null : Number(pid)
  }
  return {
    conf,
    env,
    pidOf,
    daemonOf,
    freeze(host) {
      const pid = daemonOf(host) ?? 0
      // 0 would be this process group.
      if (pid <= 1) throw new Error(`no daemon runs on ${host}`)
      const [, , , starter] = readFileSync(`/proc/${pid}/stat`, 'utf8').split(' ')
      process.kill(pid, 'SIGSTOP')
      return () => {
        process.kill(pid, 'SIGCONT')
        // An `nsenter` that has started it stops with it.
        process.kill(Number(starter), 'SIGCONT')
      }
    },
    restart(host) {
      const daemon = host === 'ctl' ? ['slurmctld', '-D'] : ['slurmd', '-D', '-N', host]
      const inside = ['--net', '--uts', '--pid', '--mount', '-t', String(shellOf(host))]
      spawn('nsenter', [...inside, ...daemon], { env, stdio: 'ignore', detached: true }).unref()
    },
    runAt: async (host, ...command) => {
      const inside = ['--net', '--uts', '--pid', '--mount', '-t', String(shellOf(host))]
      await execute('nsenter', [...inside, ...command], { env })
    },
    cutLink: async (host) => {
      const id = Number(readFileSync(join(folder, 'supervisor.pid'), 'utf8')).toString(36)
      await execute('ip', ['link', 'set', `sl${id}${host}`, 'down'])
    },
    run: async (command, ...args) => (await execute(command, args, { env })).stdout,
    down: async () => void (await execute(process.execPath, [script, 'down', conf])),
  }
}

const childrenOf = (pid: number): number[] =>
  readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(/\s+/).map(Number)

/** One for all tests of a file, started by the first call. */
export function sharedSlurm(): () => Promise<TestSlurm> {
  let starting: Promise<TestSlurm> | null = null
  afterAll(async () => {
    const slurm = await starting
    await slurm?.down()
  })
  return () => (starting ??= startSlurm())
}
