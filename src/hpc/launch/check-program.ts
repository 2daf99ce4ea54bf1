/**
 * Runs where the script of a launch would run, and does what such a script does: starts a server,
 * and an agent on a node. Writes a line of JSON for each check.
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
import { launchVariable, readFacts, setStartMethod } from '../start-method.ts'
import type { LaunchCheck } from './check-script.ts'
import { LaunchFolder } from './launch-folder.ts'

/** Short, because the allocation of a check is short. */
const graceSeconds = 5
/** How long the server may take to print its version, and an agent to connect. */
const versionMs = 10_000
const agentMs = 25_000
/** The Slurm commands that a script's backend calls. */
const slurmCommands = ['srun', 'squeue', 'scontrol', 'scancel']

async function tryAll(): Promise<void> {
  const { method } = readFacts()
  await tell('Node', () => `${process.version}, ${process.execPath}`)
  await tell('tutti', () => `${version}, ${dirname(fileURLToPath(import.meta.url))}`)
  await tell('record folder', tryToWrite)
  if (method === 'slurm') await tell('commands of Slurm', findCommands)
  const hasServer = await tell('nats-server', () => {
    const program = findNatsServer()
    const natsVersion = askVersion(program)
    return `${natsVersion.trim()}, ${program}`
  })
  if (hasServer) await tell('agent', () => startAgent(method))
}

/** Throws if the program hangs, for instance on an unavailable file system. */
function askVersion(program: string): string {
  try {
    const limit = { timeout: versionMs, killSignal: 'SIGKILL' } as const
    return execFileSync(program, ['--version'], { encoding: 'utf8', ...limit })
  } catch (error) {
    if (errnoOf(error) !== 'ETIMEDOUT') throw error
    throw new BackendError(`${program} did not answer within ${versionMs / 1000} s`)
  }
}

/** Writes as much as a page of a record, because a full disk still accepts empty files. */
function tryToWrite(): string {
  const folder = new LaunchFolder(dirname(process.env[launchVariable] ?? ''))
  folder.write('request', ' '.repeat(65_536))
  return dirname(folder.path)
}

function findCommands(): string {
  const folders = (process.env['PATH'] ?? '').split(delimiter)
  const missing = slurmCommands.filter(
    (name) => !folders.some((folder) => existsSync(join(folder, name))),
  )
  if (missing.length === 0) return slurmCommands.join(', ')
  throw new BackendError(`not on PATH: ${missing.join(', ')}`)
}

/** Tests the server, its address and port, the certificate, the step and the agent together. */
async function startAgent(method: 'slurm' | 'hosts'): Promise<string> {
  setStartMethod(method)
  const warnings: string[] = []
  const log = { warn: (code: string, text: string) => void warnings.push(`${code}: ${text}`) }
  const creating = HpcBackend.create({ graceSeconds, log })
  const backend = await boundedWait(systemClock, agentMs, creating).catch((error: unknown) => {
    if (!TimeoutError.isInstance(error)) throw error
    throw new BackendError(`none within ${agentMs / 1000} s`)
  })
  const names = backend.nodes.map(({ nodeId }) => nodeId).join(', ')
  await backend.close()
  if (warnings.length > 0) throw new BackendError(warnings.join('; '))
  return `runs on ${names} and reaches the server of the script`
}

/** Writes the result of a check. Resolves with whether it succeeded. */
async function tell(name: string, attempt: () => string | Promise<string>): Promise<boolean> {
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

await tryAll()
// Exits even if a program that did not answer is still running.
process.exit()
