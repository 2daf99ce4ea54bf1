/**
 * Runs where the script of a launch would run, and checks what it needs: starts a server, and an
 * agent on a node. Prints JSON lines.
 */

import { execFileSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { delimiter, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { findNatsServer } from '../../cluster/broker/nats-program.ts'
import { systemClock } from '../../foundation/clock.ts'
import {
  BackendError,
  errnoOf,
  messageOf,
  TimeoutError,
  TuttiError,
} from '../../foundation/errors.ts'
import { boundedWait } from '../../foundation/promises.ts'
import { version } from '../../foundation/version.ts'
import { HpcBackend } from '../hpc-backend.ts'
import { launchVariable, readLaunchFacts, setStartMethod } from '../start-method.ts'
import type { LaunchCheck } from './check-script.ts'
import { LaunchFolder } from './launch-folder.ts'

const graceSeconds = 5
const versionTimeoutMs = 10_000
const agentTimeoutMs = 25_000
const slurmCommands = ['srun', 'squeue', 'scontrol', 'scancel']

async function runChecks(): Promise<void> {
  const { method } = readLaunchFacts()
  await runCheck('Node', () => `${process.version}, ${process.execPath}`)
  await runCheck('tutti', () => `${version}, ${dirname(fileURLToPath(import.meta.url))}`)
  await runCheck('record folder', checkWriting)
  if (method === 'slurm') await runCheck('commands of Slurm', checkCommands)
  const hasServer = await runCheck('nats-server', () => {
    const program = findNatsServer()
    const natsVersion = readVersion(program)
    return `${natsVersion.trim()}, ${program}`
  })
  if (hasServer) await runCheck('agent', () => checkAgent(method))
}

/** Has a time limit, because the program may hang, as on an unavailable file system. */
function readVersion(program: string): string {
  try {
    const limit = { timeout: versionTimeoutMs, killSignal: 'SIGKILL' } as const
    return execFileSync(program, ['--version'], { encoding: 'utf8', ...limit })
  } catch (error) {
    if (errnoOf(error) !== 'ETIMEDOUT') throw error
    throw new BackendError(`${program} did not answer within ${versionTimeoutMs / 1000} s`)
  }
}

/** Writes some data, because a full disk still accepts empty files. */
function checkWriting(): string {
  const folder = new LaunchFolder(dirname(process.env[launchVariable] ?? ''))
  folder.write('request', ' '.repeat(65_536))
  return dirname(folder.path)
}

function checkCommands(): string {
  const folders = (process.env['PATH'] ?? '').split(delimiter)
  const missing = slurmCommands.filter(
    (name) => !folders.some((folder) => existsSync(join(folder, name))),
  )
  if (missing.length === 0) return slurmCommands.join(', ')
  throw new BackendError(`not on PATH: ${missing.join(', ')}`)
}

/**
 * Tests the server, its address and port, the certificate, the Slurm step and the agent together.
 */
async function checkAgent(method: 'slurm' | 'hosts'): Promise<string> {
  setStartMethod(method)
  const warnings: string[] = []
  const log = { warn: (code: string, text: string) => void warnings.push(`${code}: ${text}`) }
  const creating = HpcBackend.create({ graceSeconds, log })
  const backend = await boundedWait(systemClock, agentTimeoutMs, creating).catch(
    (error: unknown) => {
      if (!TimeoutError.isInstance(error)) throw error
      throw new BackendError(`none within ${agentTimeoutMs / 1000} s`)
    },
  )
  const names = backend.nodes.map(({ nodeId }) => nodeId).join(', ')
  await backend.close()
  if (warnings.length > 0) throw new BackendError(warnings.join('; '))
  return `runs on ${names} and reaches the server of the script`
}

async function runCheck(name: string, attempt: () => string | Promise<string>): Promise<boolean> {
  const write = (check: Pick<LaunchCheck, 'state' | 'detail' | 'hint'>): boolean => {
    process.stdout.write(`${JSON.stringify({ name, ...check })}\n`)
    return check.state === 'ok'
  }
  try {
    return write({ state: 'ok', detail: await attempt(), hint: null })
  } catch (error) {
    const hint = TuttiError.isInstance(error) ? (error.hint ?? null) : null
    return write({ state: 'problem', detail: messageOf(error), hint })
  }
}

await runChecks()
// Exits even if a hanging program still runs.
process.exit()
