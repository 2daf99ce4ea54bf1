/** What an agent is started with, and how it becomes an agent. */

import { rmSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { ConcurrentBackend } from '../../backends/local/concurrent-backend.ts'
import {
  expectCores,
  expectGpus,
  expectMemoryMb,
  usableCores,
  usableMemoryMb,
  visibleGpus,
} from '../../backends/local/node-capacity.ts'
import { createLocalSampler } from '../../backends/sampling/node-sampler.ts'
import { type Clock, clockMethods, systemClock } from '../../foundation/clock.ts'
import { type Log, processLog } from '../../foundation/log.ts'
import {
  expectId,
  expectKnownKeys,
  expectMethods,
  expectObject,
  expectString,
} from '../../foundation/options.ts'
import { expectLabels } from '../../tasks/resources.ts'
import { BrokerWatch, type BrokerWatchOptions } from '../broker/broker-watch.ts'
import { connectToNats } from '../broker/nats.ts'
import { brokerKeys, type BrokerOptions, resolveBrokerOptions } from '../cluster-options.ts'
import { Agent } from './agent.ts'
import { type AllowRules, refuseByRules } from './allowed.ts'
import { AgentWatcher } from './presence/agent-watcher.ts'
import { UnpackedBundles } from './unpacked-bundles.ts'
import { openWorkFolder } from './work-folder.ts'

export interface StartAgentOptions extends BrokerOptions, AllowRules {
  /** `node_id` of its tasks. Default: the host's name. */
  readonly name?: string
  readonly cores?: number
  readonly gpus?: number | readonly (number | string)[]
  readonly memoryMb?: number
  /** All labels that a task asks for must be here, with the same values. */
  readonly labels?: Readonly<Record<string, string>>
  /** Where folders of sessions are created. Default: the system's folder for temporary files. */
  readonly workDir?: string
  readonly clock?: Clock
  readonly log?: Log
}

const ownKeys = ['name', 'cores', 'gpus', 'memoryMb', 'labels', 'workDir', 'clock', 'log']
const knownKeys = [...brokerKeys, ...ownKeys, 'only', 'allow']

/** Threads of a node; more cores than this are for tasks that ask for several. */
const mostWorkers = 1024

/**
 * Connects an agent to its broker. It runs until it is drained or closed. With a watcher, drivers
 * hear at once that its process was killed; one whose parent tells them needs none.
 */
export async function startAgent(
  options: StartAgentOptions,
  { hasWatcher = false }: { readonly hasWatcher?: boolean } = {},
): Promise<Agent> {
  expectKnownKeys('an agent', expectObject('options', options), knownKeys)
  const clock = expectMethods('clock', options.clock ?? systemClock, clockMethods)
  const log = expectMethods('log', options.log ?? processLog, ['warn'])
  const name = expectId('name', options.name ?? hostname())
  const cores = options.cores === undefined ? usableCores() : expectCores(options.cores)
  const gpus = options.gpus === undefined ? visibleGpus() : expectGpus(options.gpus)
  const memoryMb =
    options.memoryMb === undefined ? usableMemoryMb() : expectMemoryMb(options.memoryMb)
  const labels = expectLabels('labels', options.labels ?? {})
  if (options.workDir !== undefined) expectString('workDir', options.workDir)
  const { broker: connection, token } = resolveBrokerOptions(options, `agent ${name}`, log)
  removeFromEnvironment([token, connection.password, connection.credentials])
  const folder = openWorkFolder(options.workDir, name, log)
  const opened: { close(): Promise<void> }[] = []
  try {
    const broker = await connectToNats(connection)
    opened.push(broker)
    const watcher = hasWatcher ? new AgentWatcher({ name, connection, token, clock, log }) : null
    if (watcher !== null) opened.push(watcher)
    const backend = await ConcurrentBackend.create({
      name: 'agent',
      nodeId: name,
      cores,
      gpus,
      memoryMb,
      workers: Math.min(cores, mostWorkers),
      clock,
      log,
    })
    opened.push(backend)
    const bundles = new UnpackedBundles(join(folder, 'bundles'))
    const projectPath = (file: string): string | null => bundles.projectPath(file)
    const agent = await Agent.start({
      name,
      token,
      broker,
      facts: { cores, gpus: gpus.length, memoryMb, labels },
      backend,
      folder,
      bundles,
      clock,
      log,
      createSampler: () => createLocalSampler({ clock, log, pollSeconds: 5 }),
      refuse: (spec) => refuseByRules(options, { name, folder, projectPath }, spec),
      rules: options,
      ...(watcher === null ? {} : { watcher }),
    })
    followBroker(agent, { broker, clock, log })
    await watcher?.ready
    return agent
  } catch (error) {
    rmSync(folder, { recursive: true, force: true })
    for (const one of opened.toReversed()) await one.close()
    throw error
  }
}

/** Until the agent has left. */
function followBroker(agent: Agent, parts: Pick<BrokerWatchOptions, 'broker' | 'clock' | 'log'>) {
  const watch = new BrokerWatch({ ...parts, owner: `agent "${agent.name}"` })
  void agent.left.catch(() => {}).then(() => watch.close())
}

/** Tasks see the environment of the agent, without its credentials. */
function removeFromEnvironment(secrets: readonly (string | undefined)[]): void {
  for (const [name, value] of Object.entries(process.env)) {
    if (value === undefined) continue
    const isSecret = secrets.some((secret) => secret !== undefined && value.includes(secret))
    if (isSecret) Reflect.deleteProperty(process.env, name)
  }
}
