/** Starts a whole cluster on this machine: a private nats-server, and agents in child processes. */

import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { usableCores, usableMemoryMb, visibleGpus } from '../backends/local/node-capacity.ts'
import { type Clock, clockMethods, systemClock } from '../foundation/clock.ts'
import { BackendError } from '../foundation/errors.ts'
import { type Log, resolveLog } from '../foundation/log.ts'
import {
  expectInteger,
  expectKnownKeys,
  expectMethods,
  expectObject,
  expectString,
} from '../foundation/options.ts'
import { supervise, type SupervisedRun } from '../runtime/retry.ts'
import {
  type ChildExit,
  exitReason,
  siblingProgram,
  SupervisedChild,
} from '../runtime/supervised-child.ts'
import type { AgentProgramOutput, AgentProgramInput } from './io/agent/agent-program.ts'
import { startNatsServer } from './broker/nats-server.ts'

/** How `ClusterBackend.local` divides the cores, GPUs and memory of this machine among agents. */
export interface LocalClusterOptions {
  /** The name of the backend. Default `cluster`. */
  readonly name?: string
  /** The number of agents. Default 2. */
  readonly agents?: number
  /** The cores of each agent. Default: the machine's cores divided by `agents`, but at least 1. */
  readonly cores?: number
  readonly clock?: Clock
  readonly log?: Log
}

export interface LocalCluster {
  readonly url: string
  readonly token: string
  readonly names: readonly string[]
  /** Resolves when all agents are connected. */
  readonly ready: Promise<unknown>
  /** Calls the listener with the name of each agent whose process has exited. */
  onExit(listener: (agent: string) => void): void
  close(): Promise<void>
}

export async function startLocalCluster(options: LocalClusterOptions): Promise<LocalCluster> {
  const keys = ['name', 'agents', 'cores', 'clock', 'log']
  expectKnownKeys('ClusterBackend.local', expectObject('options', options), keys)
  const clock = expectMethods('clock', options.clock ?? systemClock, clockMethods)
  const log = resolveLog(options.log)
  if (options.name !== undefined) expectString('name', options.name)
  const count = expectInteger('agents', options.agents ?? 2, { min: 1, max: 256 })
  const share = Math.max(1, Math.floor(usableCores() / count))
  const cores = expectInteger('cores', options.cores ?? share, { min: 1 })
  const token = randomBytes(24).toString('hex')
  const server = await startNatsServer({ token, clock, log })
  const memoryMb = Math.floor(usableMemoryMb() / count)
  const gpus = visibleGpus()
  // This folder is removed with the server, even if this process and the agents are killed.
  const workDir = join(server.folder, 'agents')
  let onExit = (_name: string): void => {}
  const names = Array.from({ length: count }, (_, index) => `${hostname()}-${index + 1}`)
  const agents = names.map((name, index) =>
    runAgent(
      {
        servers: server.url,
        token,
        name,
        cores,
        memoryMb,
        gpus: gpus.filter((_gpu, at) => at % count === index),
        workDir,
      },
      { clock, log },
      () => onExit(name),
    ),
  )
  const ready = Promise.all(agents.map(({ started }) => started))
  ready.catch(() => {})
  return {
    url: server.url,
    token,
    names,
    ready,
    onExit: (listener) => {
      onExit = listener
    },
    async close() {
      await Promise.all(agents.map((agent) => agent.close()))
      await server.close()
    },
  }
}

const restartPolicy = { firstDelayMs: 1000, maxDelayMs: 30_000, steadyMs: 10_000 }

/** Runs an agent in a child process, and starts it again when it exits, until `close`. */
function runAgent(
  options: AgentProgramInput['options'] & { readonly name: string },
  { clock, log }: { readonly clock: Clock; readonly log: Log },
  onExit: () => void,
): { readonly started: Promise<void>; close(): Promise<void> } {
  const { promise: started, resolve, reject } = Promise.withResolvers<void>()
  const closing = new AbortController()
  const { signal } = closing
  let child: SupervisedChild<AgentProgramInput, AgentProgramOutput> | null = null
  let hasStarted = false
  const run = async ({ onReady }: SupervisedRun): Promise<string> => {
    const { promise: exited, resolve: exit } = Promise.withResolvers<ChildExit>()
    child = new SupervisedChild<AgentProgramInput, AgentProgramOutput>({
      program: siblingProgram(import.meta.url, 'io/agent/agent-program'),
      clock,
      isDetached: true,
      stderr: 'capture',
      graceMs: 10_000,
      firstMessage: { kind: 'start', options },
      onMessages: () => {
        hasStarted = true
        onReady()
        resolve()
      },
      onExit: exit,
    })
    child.start()
    const end = await exited
    const reason = `agent ${options.name}: ${exitReason(end)} ${end.output}`.trim()
    onExit()
    if (!hasStarted) reject(new BackendError(`an agent cannot be started: ${reason}`))
    else if (!signal.aborted) log.warn('AgentLost', `${reason}; it is started again`)
    return reason
  }
  supervise(restartPolicy, run, { clock, signal, background: true }).catch(reject)
  // Prevents an unhandled rejection if the cluster is closed before anything awaits `started`.
  started.catch(() => {})
  const close = async (): Promise<void> => {
    closing.abort()
    await child?.close()
  }
  return { started, close }
}
