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
import { exitReason, siblingProgram, SupervisedChild } from '../runtime/supervised-child.ts'
import type { AgentProgramOutput, AgentProgramInput } from './agent/agent-program.ts'
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
  const listeners = new Set<(agent: string) => void>()
  const onExit = (name: string): void => {
    for (const listener of listeners) listener(name)
  }
  const names = Array.from({ length: count }, (_, index) => `${hostname()}-${index + 1}`)
  const agents = names.map((name, index) =>
    startAgentProcess(
      {
        servers: server.url,
        token,
        name,
        cores,
        memoryMb,
        gpus: gpus.filter((_gpu, at) => at % count === index),
        workDir,
      },
      { clock, log, onExit },
    ),
  )
  const ready = Promise.all(agents.map(({ started }) => started))
  // Prevents an unhandled rejection if the cluster is closed before anything awaits `ready`.
  ready.catch(() => {})
  return {
    url: server.url,
    token,
    names,
    ready,
    onExit: (listener) => {
      listeners.add(listener)
    },
    async close() {
      await Promise.all(agents.map(({ child }) => child.close()))
      await server.close()
    },
  }
}

type AgentProcess = SupervisedChild<AgentProgramInput, AgentProgramOutput>

interface AgentParent {
  readonly clock: Clock
  readonly log: Log
  readonly onExit: (agent: string) => void
}

function startAgentProcess(
  options: AgentProgramInput['options'] & { readonly name: string },
  { clock, log, onExit }: AgentParent,
): { readonly child: AgentProcess; readonly started: Promise<void> } {
  const { promise: started, resolve, reject } = Promise.withResolvers<void>()
  let hasStarted = false
  const fail = (why: string): void =>
    reject(new BackendError(`agent ${options.name} cannot be started: ${why}`))
  const child: AgentProcess = new SupervisedChild<AgentProgramInput, AgentProgramOutput>({
    program: siblingProgram(import.meta.url, 'agent/agent-program'),
    clock,
    isDetached: true,
    stderr: 'capture',
    graceMs: 10_000,
    firstMessage: { kind: 'start', options },
    onMessages: (messages) => {
      for (const message of messages) {
        if (message.kind !== 'started') fail(message.message)
        else {
          hasStarted = true
          resolve()
        }
      }
    },
    onExit: (exit) => {
      fail(exitReason(exit))
      onExit(options.name)
      // If an agent fails before it has started, `started` rejects instead.
      if (hasStarted && exit.code !== 0)
        log.warn('AgentLost', `agent ${options.name}: ${exitReason(exit)}`)
    },
  })
  started.catch(() => {})
  child.start()
  return { child, started }
}
