/** A Slurm cluster of four nodes for a test file: `scripts/slurm.mjs`, as a person uses it. */

import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
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
  /** Ends it; nothing is left. */
  down(): Promise<void>
}

/** It ends with the process of that number, also when that is killed. */
export async function startSlurm(parent = process.pid): Promise<TestSlurm> {
  const { stdout } = await execute(process.execPath, [script, 'up', '--parent', String(parent)])
  const conf = stdout.trim().replace(/^SLURM_CONF=/, '')
  const env = { ...process.env, SLURM_CONF: conf }
  return {
    conf,
    env,
    run: async (command, ...args) => (await execute(command, args, { env })).stdout,
    pidOf: (host) => Number(readFileSync(join(dirname(conf), `${host}.pid`), 'utf8')),
    down: async () => void (await execute(process.execPath, [script, 'down', conf])),
  }
}

/** One for all tests of a file, started by the first call. */
export function sharedSlurm(): () => Promise<TestSlurm> {
  let starting: Promise<TestSlurm> | null = null
  afterAll(async () => {
    const slurm = await starting
    await slurm?.down()
  })
  return () => (starting ??= startSlurm())
}
