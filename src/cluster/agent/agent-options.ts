/** What an agent is started with, and how it becomes an agent. */

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
  expectOneOf,
  expectString,
  invalid,
} from '../../foundation/options.ts'
import { expectLabels } from '../../tasks/resources.ts'
import type { Broker } from '../broker/broker.ts'
import { BrokerWatch, type BrokerWatchOptions } from '../broker/broker-watch.ts'
import { connectToNats } from '../broker/nats.ts'
import { brokerKeys, type BrokerOptions, resolveBrokerOptions } from '../cluster-options.ts'
import { Agent } from './agent.ts'
import { refuseByRules } from './allowed.ts'
import type { AgentRules } from '../wire/messages.ts'
import { UnpackedBundles } from '../bundles/unpacked-bundles.ts'
import { AgentWatcher } from './presence/agent-watcher.ts'
import { openWorkFolder, removeWorkFolder } from './work-folder.ts'

export interface StartAgentOptions extends BrokerOptions {
  /** `node_id` of its tasks. Default: the host's name. */
  readonly name?: string
  readonly cores?: number
  readonly gpus?: number | readonly (number | string)[]
  readonly memoryMb?: number
  /** All labels that a task asks for must be here, with the same values. */
  readonly labels?: Readonly<Record<string, string>>
  /** Where folders of sessions are created. Default: the system's folder for temporary files. */
  readonly workDir?: string
  /** What functions run on. Native libraries see the GPUs of a function in a process only. */
  readonly isolation?: 'thread' | 'process'
  /** Default: both. */
  readonly only?: 'functions' | 'programs'
  /**
   * Globs for absolute paths of programs and modules, after links are followed; for modules of a
   * bundle for their path in their project. Default: all.
   */
  readonly allow?: readonly string[]
  readonly clock?: Clock
  readonly log?: Log
}

const ownKeys = ['name', 'cores', 'gpus', 'memoryMb', 'labels', 'workDir', 'clock', 'log']
const knownKeys = [...brokerKeys, ...ownKeys, 'isolation', 'only', 'allow']

/** Threads of a node; more cores than this are for tasks that ask for several. */
const mostWorkers = 1024

/** How an agent and whoever has started it hear of each other's ends. */
export interface AgentTies {
  /**
   * With a watcher, drivers hear at once that its process was killed; one whose parent tells them
   * needs none. Default `false`.
   */
  readonly hasWatcher?: boolean
  /** It leaves when its server was away for so long, of a server that ends with its driver. */
  readonly serverSeconds?: number
  /** Told how to remove the agent's folder, for a process that ends without closing the agent. */
  readonly onFolder?: (remove: () => void) => void
}

/** Connects an agent to its broker. It runs until it is drained or closed. */
export async function startAgent(
  options: StartAgentOptions,
  { hasWatcher = false, serverSeconds, onFolder }: AgentTies = {},
): Promise<Agent> {
  expectKnownKeys('an agent', expectObject('options', options), knownKeys)
  const clock = expectMethods('clock', options.clock ?? systemClock, clockMethods)
  const log = expectMethods('log', options.log ?? processLog, ['warn'])
  const name = expectId('name', options.name ?? hostname())
  const { cores, gpus, memoryMb, labels } = resolveCapacity(options)
  if (options.workDir !== undefined) expectString('workDir', options.workDir)
  const isolation = expectOneOf('isolation', options.isolation ?? 'thread', ['thread', 'process'])
  const rules = resolveRules(options)
  const { broker: connection, token } = resolveBrokerOptions(options, `agent ${name}`, log)
  removeFromEnvironment([token, connection.password, connection.credentials])
  const folder = openWorkFolder(options.workDir, name, log)
  const removeFolder = (): void => removeWorkFolder(folder, options.workDir)
  onFolder?.(removeFolder)
  const opened: { close(): Promise<void> }[] = []
  try {
    const broker = await connectToNats(connection)
    opened.push(broker)
    const watcher = hasWatcher ? new AgentWatcher({ name, connection, token, clock, log }) : null
    if (watcher !== null) opened.push(watcher)
    const workers = Math.min(cores, mostWorkers)
    const capacity = { cores, gpus, memoryMb, workers, isolation }
    const common = { name: 'agent', nodeId: name, clock, log }
    const backend = await ConcurrentBackend.create({ ...common, ...capacity })
    opened.push(backend)
    const bundles = new UnpackedBundles(join(folder, 'bundles'))
    const ruled = { name, folder, projectPath: (file: string) => bundles.projectPath(file) }
    const agent = await Agent.start({
      name,
      token,
      broker,
      facts: { cores, gpus: gpus.length, memoryMb, labels },
      rules,
      backend,
      folder,
      removeFolder,
      bundles,
      clock,
      log,
      createSampler: () => createLocalSampler({ clock, log, pollSeconds: 5 }),
      refuse: (spec) => refuseByRules(rules, ruled, spec),
      watcher,
    })
    followBroker(agent, { broker, clock, log })
    if (serverSeconds !== undefined) leaveWithServer(agent, broker, clock, serverSeconds)
    await watcher?.ready
    return agent
  } catch (error) {
    removeFolder()
    for (const one of opened.toReversed()) await one.close()
    throw error
  }
}

/** What the agent gives to tasks. Default: all that this process may use. */
function resolveCapacity({ cores, gpus, memoryMb, labels }: StartAgentOptions) {
  return {
    cores: cores === undefined ? usableCores() : expectCores(cores),
    gpus: gpus === undefined ? visibleGpus() : expectGpus(gpus),
    memoryMb: memoryMb === undefined ? usableMemoryMb() : expectMemoryMb(memoryMb),
    labels: expectLabels('labels', labels ?? {}),
  }
}

/** Until the agent has left. */
function followBroker(agent: Agent, parts: Pick<BrokerWatchOptions, 'broker' | 'clock' | 'log'>) {
  const watch = new BrokerWatch({ ...parts, owner: `agent "${agent.name}"` })
  void agent.left.catch(() => {}).then(() => watch.close())
}

function leaveWithServer(agent: Agent, broker: Broker, clock: Clock, seconds: number): void {
  let cancel = (): void => {}
  const leave = (): void => void agent.close({ needsEnds: false })
  const unsubscribe = broker.onConnection((isConnected) => {
    cancel()
    if (!isConnected) cancel = clock.after(seconds * 1000, leave)
  })
  const stop = (): void => {
    unsubscribe()
    cancel()
  }
  void agent.left.catch(() => {}).then(stop)
}

function resolveRules({ only, allow }: StartAgentOptions): AgentRules {
  if (only !== undefined) expectOneOf('only', only, ['functions', 'programs'])
  if (allow !== undefined) {
    if (allow.length === 0) throw invalid('allow', 'a list of globs', allow)
    for (const glob of allow) expectString('allow', glob)
  }
  return { only: only ?? null, allow: allow ?? null }
}

/** Tasks see the environment of the agent, without its credentials. */
function removeFromEnvironment(secrets: readonly (string | undefined)[]): void {
  for (const [name, value] of Object.entries(process.env)) {
    if (value === undefined) continue
    const isSecret = secrets.some((secret) => secret !== undefined && value.includes(secret))
    if (isSecret) Reflect.deleteProperty(process.env, name)
  }
}
