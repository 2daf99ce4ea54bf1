/** `tutti agent` runs tasks of a cluster on this machine; `tutti agents` lists running agents. */

import { usableCores } from '../backends/local/node-capacity.ts'
import { type AgentList, findAgents } from '../cluster/agent-list.ts'
import { startAgent, type StartAgentOptions } from '../cluster/io/agent/agent-options.ts'
import type { BrokerOptions } from '../cluster/cluster-options.ts'
import { systemClock } from '../foundation/clock.ts'
import { ValueError } from '../foundation/errors.ts'
import type { Log } from '../foundation/log.ts'
import { definedFields } from '../foundation/options.ts'
import { exitCodes, signalExitCodes, stopOnSignal, type StopSignal } from './exit.ts'
import type { Output } from './output.ts'
import { type Column, tableLines } from './reading/text.ts'

export interface ConnectionOptions {
  readonly connect: string
  readonly tokenFile: string
  readonly credentials?: string
  readonly user?: string
  readonly passwordFile?: string
  readonly tlsCa?: string
  readonly tlsCert?: string
  readonly tlsKey?: string
  readonly tls?: boolean
  readonly plaintext?: boolean
}

type AgentSettings = Omit<
  StartAgentOptions,
  keyof BrokerOptions | 'gpus' | 'labels' | 'clock' | 'log'
>

export interface AgentCommandOptions extends ConnectionOptions, AgentSettings {
  readonly gpus?: string
  readonly label?: Readonly<Record<string, string>>
}

/** The maximum time to deliver the results of tasks after the second stop signal. */
const leaveTimeoutMs = 3000

type Agent = Awaited<ReturnType<typeof startAgent>>

/** Handles the second stop signal, and removes the agent's folder if the process exits. */
class AgentShutdown {
  signal: StopSignal | null = null
  agent: Agent | null = null
  #removeFolder = (): void => {}

  readonly onFolder = (remove: () => void): void => {
    this.#removeFolder = remove
    process.on('exit', remove)
  }

  readonly onSecondSignal = (signal: StopSignal): void => {
    const { agent } = this
    if (agent === null) process.exit(signalExitCodes[signal])
    this.signal = signal
    agent.leave()
    systemClock.after(leaveTimeoutMs, () => agent.leave({ waitForResults: false }), {
      background: true,
    })
  }

  release(): void {
    process.off('exit', this.#removeFolder)
  }
}

/**
 * Runs an agent until a stop signal. After the first signal, running tasks finish. A second signal
 * ends them, and a third one exits the process.
 */
export async function runAgent(options: AgentCommandOptions, output: Output): Promise<number> {
  const { name, cores, memoryMb, label: labels, workDir, isolation } = options
  const { only, allow, allowEnv } = options
  const gpus = options.gpus === undefined ? undefined : parseGpus(options.gpus)
  // An agent runs for days, so its messages have a timestamp.
  const say = (text: string): void =>
    output.problem(`${new Date(systemClock.now() * 1000).toISOString()} ${text}`)
  const log: Log = { warn: (code, message) => say(`${code}: ${message}`) }
  if (cores !== undefined && cores > usableCores()) {
    say(`--cores ${cores}: more than this process may use, which is ${usableCores()}`)
  }
  const end = new AgentShutdown()
  const { onFolder, onSecondSignal } = end
  const stop = stopOnSignal(output.closed, onSecondSignal)
  try {
    const hooks = { hasWatcher: true, onFolder }
    const agent = await callWithOptionNames((all) => startAgent(all, hooks), {
      ...toBrokerOptions(options),
      ...definedFields({ name, cores, gpus, memoryMb, labels, workDir, isolation }),
      ...definedFields({ only, allow, allowEnv }),
      log,
    })
    end.agent = agent
    say(`agent ${agent.name} is connected to ${options.connect}`)
    const received = await Promise.race([stop.received, agent.left.then(() => null)])
    if (received === null) await agent.close()
    else {
      say(`${received}: finishing the tasks that run, then leaving; a second signal ends them`)
      agent.drain()
    }
    const undelivered = await agent.left
    output.result({ name: agent.name, state: 'left', undelivered_ends: undelivered }, [
      `agent ${agent.name} has left`,
    ])
    if (end.signal !== null) return signalExitCodes[end.signal]
    if (undelivered === 0) return exitCodes.ok
    const results =
      undelivered === 1 ? 'the result of 1 task was' : `the results of ${undelivered} tasks were`
    say(`${results} not delivered: ${options.connect} did not accept all of them in time`)
    return exitCodes.backendFailed
  } finally {
    end.release()
    stop.release()
  }
}

export async function listAgents(options: ConnectionOptions, output: Output): Promise<number> {
  const found = await callWithOptionNames(findAgents, toBrokerOptions(options))
  const { agents, silent, unusable, isComplete } = found
  const rows = [
    ...agents.map((agent) => toAgentRow(agent, agent.state, null)),
    ...silent.map(({ agent, silentSeconds }) => toAgentRow(agent, 'silent', silentSeconds)),
  ].toSorted((a, b) => (a.name < b.name ? -1 : 1))
  output.result({ agents: rows, unusable, complete: isComplete }, [
    ...(rows.length === 0 ? [] : tableLines(agentColumns, rows)),
    ...unusable.map(({ reason }) => reason),
    ...(rows.length === 0 && unusable.length === 0 ? ['no agents'] : []),
    ...(isComplete ? [] : ['the list may be incomplete: agents still answered at the end']),
  ])
  return exitCodes.ok
}

type ListedAgent = AgentList['agents'][number]

type AgentRow = ReturnType<typeof toAgentRow>

/** `silentSeconds`: the time since the last message of an agent that does not answer. */
function toAgentRow(agent: ListedAgent, state: string, silentSeconds: number | null) {
  const { name, facts, only, allow, version, sessions, host, pid, refusedMessages } = agent
  return {
    name,
    state,
    silent_seconds: silentSeconds,
    cores: facts.cores,
    gpus: facts.gpus,
    memory_mb: facts.memoryMb,
    labels: facts.labels,
    only,
    allow,
    version,
    sessions,
    host,
    pid,
    refused_messages: refusedMessages,
  }
}

const agentColumns: readonly Column<AgentRow>[] = [
  { head: 'name', cell: ({ name }) => name },
  { head: 'state', cell: stateText },
  { head: 'cores', cell: ({ cores }) => String(cores), isNumber: true },
  { head: 'gpus', cell: ({ gpus }) => String(gpus), isNumber: true },
  { head: 'memory MB', cell: (row) => String(row.memory_mb), isNumber: true },
  { head: 'sessions', cell: ({ sessions }) => String(sessions), isNumber: true },
  { head: 'tutti', cell: ({ version }) => version },
  { head: 'labels', cell: labelsText },
  { head: 'rules', cell: rulesText },
]

function stateText({ state, silent_seconds: silent }: AgentRow): string {
  return silent === null ? state : `${state} for ${Math.round(silent)} s`
}

function labelsText({ labels }: AgentRow): string {
  return Object.entries(labels)
    .map((pair) => pair.join('='))
    .join(',')
}

function rulesText({ only, allow }: AgentRow): string {
  return [
    ...(only === null ? [] : [`only ${only}`]),
    ...(allow === null ? [] : [`allows ${allow.join(' ')}`]),
  ].join(', ')
}

function toBrokerOptions(options: ConnectionOptions): BrokerOptions {
  const { connect, tokenFile, credentials, user, passwordFile, tls, plaintext } = options
  const files = definedFields({ ca: options.tlsCa, cert: options.tlsCert, key: options.tlsKey })
  return {
    servers: connect,
    tokenFile,
    ...definedFields({ credentials, user, passwordFile, plaintext }),
    ...(tls === true || Object.keys(files).length > 0 ? { tls: files } : {}),
  }
}

const optionNames: Readonly<Record<string, string>> = {
  servers: 'connect',
  labels: 'label',
  'tls.ca': 'tls-ca',
  'tls.cert': 'tls-cert',
  'tls.key': 'tls-key',
}

const optionHints: Readonly<Record<string, string>> = {
  gpus: 'Write `--gpus 0` for none, or name GPUs that cannot be seen from here: `--gpus 0,1`.',
}

const toOptionName = (field: string): string =>
  `--${optionNames[field] ?? field.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`

/**
 * Replaces quoted field names by option names. Keeps quoted values, which are followed by their
 * type.
 */
const replaceFieldNames = (text: string): string =>
  text.replaceAll(quotedFieldPattern, (_, name: string) => toOptionName(name))

const quotedFieldPattern = /`([\w.]+)(?:\[\d+\])?(?:: true)?`(?! \(\w+\))/g

async function callWithOptionNames<Options, Result>(
  call: (options: Options) => Promise<Result>,
  options: Options,
): Promise<Result> {
  try {
    return await call(options)
  } catch (error) {
    if (!ValueError.isInstance(error) || error.field === undefined) throw error
    const { field, message, hint, code } = error
    // All elements of a list belong to the same option.
    const option = toOptionName(field.replace(/\[\d+\]$/, ''))
    const text = replaceFieldNames(message.replace(`${field}: `, `${option}: `))
    const newHint =
      hint === undefined ? {} : { hint: optionHints[field] ?? replaceFieldNames(hint) }
    throw new ValueError(text, { field: option, code, cause: error, ...newHint })
  }
}

/** Parses `--gpus`: `2` is a count, and `0,1` or `GPU-…` are device ids. */
function parseGpus(text: string): number | (number | string)[] {
  if (/^-?\d+$/.test(text)) return Number(text)
  return text.split(',').map((id) => (/^\d+$/.test(id) ? Number(id) : id))
}
