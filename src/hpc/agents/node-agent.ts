/**
 * The program of an agent that the HPC backend starts on a node. It reads a line, which says how to
 * reach the driver, and lives until its input ends, which it does when the driver is gone, or until
 * a second line tells it to leave. Where the driver's `srun` was killed with it, nobody ends that
 * input, and the server is gone.
 */

import { rmdirSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { toGpuIds, usableMemoryMb } from '../../backends/local/node-capacity.ts'
import type { Agent } from '../../cluster/agent/agent.ts'
import { startAgent } from '../../cluster/agent/agent-options.ts'
import { defaultWorkDir } from '../../cluster/agent/work-folder.ts'
import { preloadClient } from '../../cluster/broker/nats.ts'
import { systemClock } from '../../foundation/clock.ts'
import { BackendError, messageOf } from '../../foundation/errors.ts'
import { cleanEnvironment } from './agent-environment.ts'
import { drainLine, nameTakenCode, startedLine } from './agent-lines.ts'
import { hideModuleCache } from '../launch/module-cache.ts'
import { type SharedFile, tellSeen } from '../shared-file.ts'

/** The first line. */
export interface AgentStart {
  readonly servers: string
  readonly token: string
  /** The only one that is trusted. */
  readonly certificate: string
  /** Whether this node sees it is told on stdout. */
  readonly sharedFile: SharedFile
  /** What the job may use on each node; those without a limit are missing. */
  readonly memoryMb: Readonly<Record<string, number>>
  /** Without its server for so long, the agent ends: that of a living script is back sooner. */
  readonly serverSeconds: number
  readonly labels: Readonly<Record<string, string>>
  /** Of Node, for this process alone; `null` if there is none. */
  readonly moduleCache: string | null
}

const [, , name = ''] = process.argv
/** Of this user, for all runs: an agent removes there what dead ones have left. */
const workDir = defaultWorkDir(name)
let starting: Promise<Agent> | null = null
// The line comes when the driver's server is there.
preloadClient()

const lines = createInterface({ input: process.stdin })
lines.on('line', (line) => {
  if (line === drainLine) {
    void drain()
    return
  }
  starting ??= start(JSON.parse(line) as AgentStart)
  starting.then(
    () => process.stdout.write(`${startedLine}\n`),
    (error: unknown) => {
      process.stderr.write(`agent ${name}: ${messageOf(error)}\n`)
      const isTaken = BackendError.isInstance(error) && error.code === 'AgentNameTakenError'
      process.exit(isTaken ? nameTakenCode : 1)
    },
  )
})
// The driver has closed its sessions, or is gone.
lines.once('close', () => void end({ needsEnds: false }))
// The scheduler ends the job; the driver may still take ends.
process.on('SIGTERM', () => void end({ needsEnds: true }))

async function start(given: AgentStart): Promise<Agent> {
  const { servers, token, certificate, sharedFile, labels } = given
  hideModuleCache(given.moduleCache ?? undefined)
  void tellSeen(name, sharedFile, systemClock).then((line) => process.stdout.write(line))
  const cores = Number(process.env['SLURM_CPUS_ON_NODE'])
  const gpus = toGpuIds(cleanEnvironment(process.env))
  const limitMb = given.memoryMb[name] ?? Infinity
  const options = {
    servers,
    token,
    tls: { ca: certificate },
    name,
    gpus,
    labels,
    memoryMb: Math.min(usableMemoryMb(), limitMb),
    ...(cores > 0 ? { cores } : {}),
  }
  // The shell around this process tells of its end.
  const agent = await startAgent(options, { serverSeconds: given.serverSeconds })
  void agent.left.then(() => end({ needsEnds: false }))
  return agent
}

/** It ends when it has left. */
async function drain(): Promise<void> {
  const agent = await starting?.catch(() => null)
  agent?.drain()
}

async function end(options: { readonly needsEnds: boolean }): Promise<void> {
  const agent = await starting?.catch(() => null)
  await agent?.close(options)
  try {
    rmdirSync(workDir)
  } catch {
    // Another agent uses it, or was killed and has left something.
  }
  process.exit(0)
}
