/**
 * The agent program of the HPC backend. The first line of its input says how to reach the driver. A
 * second line makes the agent drain. The agent exits when its input ends or the server is gone.
 */

import { createInterface } from 'node:readline'
import { parseGpuIds, usableMemoryMb } from '../../backends/local/node-capacity.ts'
import type { Agent } from '../../cluster/io/agent/agent.ts'
import { startAgent } from '../../cluster/io/agent/agent-options.ts'
import { preloadClient } from '../../cluster/broker/nats.ts'
import { systemClock } from '../../foundation/clock.ts'
import { BackendError, messageOf, TuttiError } from '../../foundation/errors.ts'
import { once } from '../../foundation/service.ts'
import { cleanEnvironment } from './agent-environment.ts'
import { drainLine, nameTakenCode, agentStartedLine } from './agent-lines.ts'
import { hideModuleCache } from '../launch/module-cache.ts'
import { type SharedFile, reportSharedFolder } from '../shared-file.ts'

/** The first line of the agent's input, as JSON. */
export interface AgentInput {
  readonly servers: string
  readonly token: string
  /** The certificate of the server. The agent trusts no other certificate. */
  readonly certificate: string
  /** A file in the folder of the launch. The agent reports whether its node can read it. */
  readonly sharedFile: SharedFile
  /** The memory limit of the job on each node. Nodes without a limit have no entry. */
  readonly memoryMb: Readonly<Record<string, number>>
  /**
   * The agent exits after this long without its server. A server that has ended is restarted
   * sooner.
   */
  readonly serverTimeoutSeconds: number
  readonly labels: Readonly<Record<string, string>>
  readonly moduleCache: string | null
  readonly workDir?: string | undefined
}

const [, , name = ''] = process.argv
const startOnce = once(start)
// Loads the NATS client while the driver's server starts, before the first line arrives.
preloadClient()

const lines = createInterface({ input: process.stdin })
lines.on('line', (line) => {
  if (line === drainLine) {
    drain().catch(exitWith)
    return
  }
  startOnce(JSON.parse(line) as AgentInput).then(
    () => process.stdout.write(`${agentStartedLine}\n`),
    exitWith,
  )
})
// The input ends when the driver has closed or died.
lines.once('close', () => closeAndExit({ waitForResults: false }).catch(exitWith))
// The scheduler is ending the job, but the driver may still accept reports of ended tasks.
process.on('SIGTERM', () => {
  closeAndExit({ waitForResults: true }).catch(exitWith)
})

function exitWith(error: unknown): void {
  const hint = TuttiError.isInstance(error) ? (error.hint ?? '') : ''
  process.stderr.write(`agent ${name}: ${messageOf(error)} ${hint}`.trimEnd() + '\n')
  const isNameTaken = BackendError.isInstance(error) && error.code === 'AgentNameTakenError'
  process.exit(isNameTaken ? nameTakenCode : 1)
}

async function start(given: AgentInput): Promise<Agent> {
  const { servers, token, certificate, sharedFile, labels, workDir } = given
  hideModuleCache(given.moduleCache ?? undefined)
  reportSharedFolder(name, sharedFile, systemClock)
    .then((line) => process.stdout.write(line))
    .catch(exitWith)
  const cores = Number(process.env['SLURM_CPUS_ON_NODE'])
  const gpus = parseGpuIds(cleanEnvironment(process.env))
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
    ...(workDir === undefined ? {} : { workDir }),
  }
  // If this throws, the process exits, and the parent shell reports the exit.
  const agent = await startAgent(options, { serverSeconds: given.serverTimeoutSeconds })
  agent.left.then(() => closeAndExit({ waitForResults: false })).catch(exitWith)
  return agent
}

/** Makes the agent leave when its tasks have ended. This process then exits. */
async function drain(): Promise<void> {
  const agent = await startOnce.promise?.catch(() => null)
  agent?.drain()
}

async function closeAndExit(options: { readonly waitForResults: boolean }): Promise<void> {
  const agent = await startOnce.promise?.catch(() => null)
  await agent?.close(options)
  process.exit(0)
}
