/** Validates the options of an agent, and starts it with them. */

import { hostname } from 'node:os'
import { join } from 'node:path'
import { ConcurrentBackend } from '../../../backends/local/concurrent-backend.ts'
import {
  expectCores,
  expectGpus,
  expectMemoryMb,
  usableCores,
  usableMemoryMb,
  visibleGpus,
} from '../../../backends/local/node-capacity.ts'
import { type Clock, clockMethods, systemClock } from '../../../foundation/clock.ts'
import { type Log, resolveLog } from '../../../foundation/log.ts'
import {
  expectId,
  expectKnownKeys,
  expectMethods,
  expectObject,
  expectOneOf,
  expectString,
  invalid,
} from '../../../foundation/options.ts'
import { expectLabels } from '../../../tasks/resources.ts'
import type { Broker } from '../../broker/broker.ts'
import { BrokerWatch } from '../../broker/broker-watch.ts'
import { connectToNats } from '../../broker/nats.ts'
import { brokerKeys, type BrokerOptions, resolveBrokerOptions } from '../../cluster-options.ts'
import { Agent } from './agent.ts'
import { refuseByRules } from './allowed.ts'
import type { AgentRules } from '../../wire/messages.ts'
import { UnpackedBundles } from '../../bundles/unpacked-bundles.ts'
import { AgentWatcher } from './presence/agent-watcher.ts'
import { WorkFolder } from './work-folder.ts'

export interface StartAgentOptions extends BrokerOptions {
  /** The agent's name, which is the `node_id` of its tasks. Default: the host's name. */
  readonly name?: string
  readonly cores?: number
  readonly gpus?: number | readonly (number | string)[]
  readonly memoryMb?: number
  /**
   * Labels of this node. A task runs here only if the node has all labels that the task requests,
   * with the same values.
   */
  readonly labels?: Readonly<Record<string, string>>
  /**
   * The folder in which the agent creates its own folder. Default: the system's folder for
   * temporary files.
   */
  readonly workDir?: string
  /** Default `thread`. Only `process` limits native libraries to a function's requested GPUs. */
  readonly isolation?: 'thread' | 'process'
  readonly only?: 'functions' | 'programs'
  /**
   * Glob patterns that the absolute path of a program or module must match after symbolic links are
   * resolved. For a module of a bundle, its path in its project must match. Default: all are
   * allowed.
   */
  readonly allow?: readonly string[]
  /** Environment variables that tasks may set or remove even if `allow` is given. Default: none. */
  readonly allowEnv?: readonly string[]
  readonly clock?: Clock
  readonly log?: Log
}

const agentKeys = ['name', 'cores', 'gpus', 'memoryMb', 'labels', 'workDir', 'clock', 'log']
const knownKeys = [...brokerKeys, ...agentKeys, 'isolation', 'only', 'allow', 'allowEnv']

/**
 * The maximum number of workers. If there are more cores, only tasks that request several cores use
 * all of them.
 */
const maxWorkers = 1024

/** What to do in case the agent's process is killed or exits, or its server is lost. */
export interface AgentLifetimeOptions {
  /** Whether to start a watcher process, which reports a killed agent. Default `false`. */
  readonly hasWatcher?: boolean
  /**
   * The agent leaves after a server outage of this length. Set only if the server exits with the
   * driver.
   */
  readonly serverSeconds?: number
  /**
   * Receives a function that removes the agent's empty folder if the process exits without `close`.
   */
  readonly onFolder?: (remove: () => void) => void
}

/** Starts an agent and connects it to its broker. The agent runs until it is drained or closed. */
export async function startAgent(
  options: StartAgentOptions,
  { hasWatcher = false, serverSeconds, onFolder }: AgentLifetimeOptions = {},
): Promise<Agent> {
  expectKnownKeys('an agent', expectObject('options', options), knownKeys)
  const clock = expectMethods('clock', options.clock ?? systemClock, clockMethods)
  const log = resolveLog(options.log)
  const name = expectId('name', options.name ?? hostname())
  const { cores, gpus, memoryMb, labels } = resolveCapacity(options)
  if (options.workDir !== undefined) expectString('workDir', options.workDir)
  const isolation = expectOneOf('isolation', options.isolation ?? 'thread', ['thread', 'process'])
  const rules = resolveRules(options)
  const { broker: connection, token } = resolveBrokerOptions(options, `agent ${name}`, log)
  removeFromEnvironment([token, connection.password, connection.credentials])
  const folder = await WorkFolder.open({ workDir: options.workDir, agent: name, clock, log })
  onFolder?.(() => folder.removeIfEmpty())
  const opened: { close(): Promise<void> }[] = []
  try {
    const broker = await connectToNats(connection)
    opened.push(broker)
    const watcher = hasWatcher ? new AgentWatcher({ name, connection, token, clock, log }) : null
    if (watcher !== null) opened.push(watcher)
    const capacity = { cores, gpus, memoryMb, workers: Math.min(cores, maxWorkers), isolation }
    const common = { name: 'agent', nodeId: name, clock, log }
    const backend = await ConcurrentBackend.create({ ...common, ...capacity })
    opened.push(backend)
    const remove = (bundle: string): Promise<void> => folder.remove(bundle)
    const bundles = new UnpackedBundles(join(folder.path, 'bundles'), remove)
    const ruledAgent = {
      name,
      folder: folder.path,
      allowEnv: options.allowEnv ?? [],
      projectPath: (file: string) => bundles.projectPath(file),
    }
    const agent = await Agent.start({
      name,
      token,
      broker,
      facts: { cores, gpus: gpus.length, memoryMb, labels },
      rules,
      backend,
      folder,
      bundles,
      clock,
      log,
      refuse: (spec) => refuseByRules(rules, ruledAgent, spec),
      watcher,
    })
    const watch = new BrokerWatch({ broker, clock, log, owner: `agent "${name}"` })
    whenLeft(agent, () => watch.close())
    if (serverSeconds !== undefined) leaveWithServer(agent, broker, clock, serverSeconds)
    await watcher?.ready
    return agent
  } catch (error) {
    await folder.close()
    for (const one of opened.toReversed()) await one.close()
    throw error
  }
}

function resolveCapacity({ cores, gpus, memoryMb, labels }: StartAgentOptions) {
  return {
    cores: cores === undefined ? usableCores() : expectCores(cores),
    gpus: gpus === undefined ? visibleGpus() : expectGpus(gpus),
    memoryMb: memoryMb === undefined ? usableMemoryMb() : expectMemoryMb(memoryMb),
    labels: expectLabels('labels', labels ?? {}),
  }
}

function leaveWithServer(agent: Agent, broker: Broker, clock: Clock, seconds: number): void {
  let cancel = (): void => {}
  const leave = (): void => agent.leave({ waitForResults: false })
  const unsubscribe = broker.onConnection((isConnected) => {
    cancel()
    if (!isConnected) cancel = clock.after(seconds * 1000, leave)
  })
  whenLeft(agent, () => {
    unsubscribe()
    cancel()
  })
}

function whenLeft({ left }: Agent, onLeft: () => void): void {
  left.then(onLeft, onLeft)
}

function resolveRules({ only, allow, allowEnv }: StartAgentOptions): AgentRules {
  if (only !== undefined) expectOneOf('only', only, ['functions', 'programs'])
  if (allow !== undefined) expectTexts('allow', allow, 'globs')
  if (allowEnv !== undefined) expectTexts('allowEnv', allowEnv, 'variables')
  return { only: only ?? null, allow: allow ?? null }
}

function expectTexts(field: string, given: unknown, what: string): void {
  if (!Array.isArray(given) || given.length === 0) throw invalid(field, `a list of ${what}`, given)
  for (const one of given) expectString(field, one)
}

/** Removes credentials from `process.env`, because tasks inherit the environment of the agent. */
function removeFromEnvironment(secrets: readonly (string | undefined)[]): void {
  for (const [name, value] of Object.entries(process.env)) {
    if (value === undefined) continue
    const isSecret = secrets.some((secret) => secret !== undefined && value.includes(secret))
    if (isSecret) Reflect.deleteProperty(process.env, name)
  }
}
