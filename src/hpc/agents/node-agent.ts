/**
 * The program of an agent that the HPC backend starts on a node. It reads a line that says how to
 * reach the driver. It runs until its input ends, because the driver has closed or is gone, or
 * until a second line tells it to leave. If the driver's `srun` was killed too, the input never
 * ends; the agent then exits because the server is gone.
 */

import { createInterface } from 'node:readline'
import { toGpuIds, usableMemoryMb } from '../../backends/local/node-capacity.ts'
import type { Agent } from '../../cluster/agent/agent.ts'
import { startAgent } from '../../cluster/agent/agent-options.ts'
import { preloadClient } from '../../cluster/broker/nats.ts'
import { systemClock } from '../../foundation/clock.ts'
import { BackendError, messageOf, TuttiError } from '../../foundation/errors.ts'
import { once } from '../../foundation/service.ts'
import { cleanEnvironment } from './agent-environment.ts'
import { drainLine, nameTakenCode, startedLine } from './agent-lines.ts'
import { hideModuleCache } from '../launch/module-cache.ts'
import { type SharedFile, reportSharedFolder } from '../shared-file.ts'

/** The first line of the input. */
export interface AgentStart {
  readonly servers: string
  readonly token: string
  /** The only certificate that the agent trusts. */
  readonly certificate: string
  /** The agent reports on stdout whether its node can read this file. */
  readonly sharedFile: SharedFile
  /** The memory that the job may use on each node; nodes without a limit are missing. */
  readonly memoryMb: Readonly<Record<string, number>>
  /**
   * The agent exits after this long without its server. The server of a running script returns
   * sooner.
   */
  readonly serverSeconds: number
  readonly labels: Readonly<Record<string, string>>
  /** The folder of Node's compile cache, for this process only; `null` if there is none. */
  readonly moduleCache: string | null
  /** The work folder of `tutti launch --work-dir`. */
  readonly workDir?: string | undefined
}

const [, , name = ''] = process.argv
const startOnce = once(start)
// Loads the client while the driver's server starts; the first line arrives only after that.
preloadClient()

const lines = createInterface({ input: process.stdin })
lines.on('line', (line) => {
  if (line === drainLine) {
    drain().catch(exitWith)
    return
  }
  startOnce(JSON.parse(line) as AgentStart).then(
    () => process.stdout.write(`${startedLine}\n`),
    exitWith,
  )
})
// The driver has closed its sessions or is gone.
lines.once('close', () => end({ needsEnds: false }).catch(exitWith))
// The scheduler is ending the job; the driver may still accept reports of ended tasks.
process.on('SIGTERM', () => {
  end({ needsEnds: true }).catch(exitWith)
})

function exitWith(error: unknown): void {
  const hint = TuttiError.isInstance(error) ? (error.hint ?? '') : ''
  process.stderr.write(`agent ${name}: ${messageOf(error)} ${hint}`.trimEnd() + '\n')
  const isTaken = BackendError.isInstance(error) && error.code === 'AgentNameTakenError'
  process.exit(isTaken ? nameTakenCode : 1)
}

async function start(given: AgentStart): Promise<Agent> {
  const { servers, token, certificate, sharedFile, labels, workDir } = given
  hideModuleCache(given.moduleCache ?? undefined)
  reportSharedFolder(name, sharedFile, systemClock)
    .then((line) => process.stdout.write(line))
    .catch(exitWith)
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
    ...(workDir === undefined ? {} : { workDir }),
  }
  // The end of this process is not reported here, because the shell around it does that.
  const agent = await startAgent(options, { serverSeconds: given.serverSeconds })
  agent.left.then(() => end({ needsEnds: false })).catch(exitWith)
  return agent
}

/** The agent leaves when its tasks have ended; then `left` resolves and this process ends. */
async function drain(): Promise<void> {
  const agent = await startOnce.promise?.catch(() => null)
  agent?.drain()
}

async function end(options: { readonly needsEnds: boolean }): Promise<void> {
  const agent = await startOnce.promise?.catch(() => null)
  await agent?.close(options)
  process.exit(0)
}
