/** `tutti agent` runs tasks of a cluster on this machine; `tutti agents` lists running agents. */

import { usableCores } from '../backends/local/node-capacity.ts'
import { type AgentList, findAgents } from '../cluster/agent-list.ts'
import { startAgent } from '../cluster/agent/agent-options.ts'
import type { BrokerOptions } from '../cluster/cluster-options.ts'
import { systemClock } from '../foundation/clock.ts'
import { ValueError } from '../foundation/errors.ts'
import type { Log } from '../foundation/log.ts'
import { definedFields } from '../foundation/options.ts'
import { exitCodes, firstSignal, signalExitCodes, type StopSignal } from './exit.ts'
import type { Output } from './output.ts'
import { type Column, tableLines } from './reading/text.ts'

interface ConnectionOptions {
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

export type AgentsCommandOptions = ConnectionOptions

export interface AgentCommandOptions extends ConnectionOptions {
  readonly name?: string
  readonly cores?: number
  readonly gpus?: string
  readonly memoryMb?: number
  readonly label?: Readonly<Record<string, string>>
  readonly workDir?: string
  readonly isolation?: string
  readonly only?: string
  readonly allow?: readonly string[]
}

/** How long a stopping agent waits for the broker to receive the results of its tasks. */
const endMs = 3000

type Agent = Awaited<ReturnType<typeof startAgent>>

/** Handles the second stop signal, and removes the agent's folder if the process exits. */
class AgentEnd {
  /** The second signal, if one was received. */
  signal: StopSignal | null = null
  agent: Agent | null = null
  #removeFolder = (): void => {}

  /** Removes the agent's folder at exit if it is empty, as before the first session. */
  readonly onFolder = (remove: () => void): void => {
    this.#removeFolder = remove
    process.on('exit', remove)
  }

  readonly onSecond = (signal: StopSignal): void => {
    const { agent } = this
    if (agent === null) process.exit(signalExitCodes[signal])
    this.signal = signal
    agent.leave()
    systemClock.after(endMs, () => agent.leave({ needsEnds: false }), { background: true })
  }

  release(): void {
    process.off('exit', this.#removeFolder)
  }
}

/** The first signal drains: running tasks are finished. A second one ends them, a third exits. */
export async function runAgent(options: AgentCommandOptions, output: Output): Promise<number> {
  const { name, cores, memoryMb, label, workDir, gpus, isolation, only, allow } = options
  // Adds a timestamp, because an agent runs for days and its log is read later.
  const say = (text: string): void =>
    output.problem(`${new Date(systemClock.now() * 1000).toISOString()} ${text}`)
  const log: Log = { warn: (code, message) => say(`${code}: ${message}`) }
  if (cores !== undefined && cores > usableCores()) {
    say(`--cores ${cores}: more than this process may use, which is ${usableCores()}`)
  }
  const end = new AgentEnd()
  const { onFolder, onSecond } = end
  const signal = firstSignal(output.closed, onSecond)
  try {
    const ties = { hasWatcher: true, onFolder }
    const agent = await withOptionNames((all) => startAgent(all, ties), {
      ...toBrokerOptions(options),
      ...definedFields({
        name,
        cores,
        memoryMb,
        labels: label,
        workDir,
        allow,
        gpus: gpus === undefined ? undefined : toGpus(gpus),
        isolation: toOneOf('--isolation', isolation, ['thread', 'process']),
        only: toOneOf('--only', only, ['functions', 'programs']),
      }),
      log,
    })
    end.agent = agent
    say(`agent ${agent.name} is connected to ${options.connect}`)
    const received = await Promise.race([signal.received, agent.left.then(() => null)])
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
    signal.release()
  }
}

export async function listAgents(options: AgentsCommandOptions, output: Output): Promise<number> {
  const found = await withOptionNames(findAgents, toBrokerOptions(options))
  const { agents, silent, unusable, isComplete } = found
  const rows = [
    ...agents.map((agent) => toRow(agent, agent.state, null)),
    ...silent.map(({ agent, silentSeconds }) => toRow(agent, 'silent', silentSeconds)),
  ].toSorted((a, b) => (a.name < b.name ? -1 : 1))
  const none = rows.length === 0 && unusable.length === 0 ? ['no agents'] : []
  const reasons = unusable.map(({ reason }) => reason)
  const table = rows.length === 0 ? [] : tableLines(columns, rows)
  const late = isComplete ? [] : ['the list may be incomplete: agents still answered at the end']
  const result = { agents: rows, unusable, complete: isComplete }
  output.result(result, [...table, ...reasons, ...none, ...late])
  return exitCodes.ok
}

type ListedAgent = AgentList['agents'][number]

type AgentRow = ReturnType<typeof toRow>

/** `silentSeconds`: the time since the last message of an agent that does not answer. */
function toRow(agent: ListedAgent, state: string, silentSeconds: number | null) {
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

const columns: readonly Column<AgentRow>[] = [
  { head: 'name', cell: ({ name }) => name },
  { head: 'state', cell: stateOf },
  { head: 'cores', cell: ({ cores }) => String(cores), isNumber: true },
  { head: 'gpus', cell: ({ gpus }) => String(gpus), isNumber: true },
  { head: 'memory MB', cell: (row) => String(row.memory_mb), isNumber: true },
  { head: 'sessions', cell: ({ sessions }) => String(sessions), isNumber: true },
  { head: 'tutti', cell: ({ version }) => version },
  { head: 'labels', cell: ({ labels }) => labelsText(labels) },
  { head: 'rules', cell: rulesText },
]

function stateOf({ state, silent_seconds: silent }: AgentRow): string {
  return silent === null ? state : `${state} for ${Math.round(silent)} s`
}

function labelsText(labels: Readonly<Record<string, string>>): string {
  const texts = Object.entries(labels).map(([key, value]) => `${key}=${value}`)
  return texts.join(',')
}

function rulesText({ only, allow }: AgentRow): string {
  const kinds = only === null ? [] : [`only ${only}`]
  return [...kinds, ...(allow === null ? [] : [`allows ${allow.join(' ')}`])].join(', ')
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

/** Option fields whose command-line names differ. */
const optionNames: Readonly<Record<string, string>> = {
  servers: 'connect',
  labels: 'label',
  'tls.ca': 'tls-ca',
  'tls.cert': 'tls-cert',
  'tls.key': 'tls-key',
}

/** Hints for fields whose values are written differently on the command line. */
const optionHints: Readonly<Record<string, string>> = {
  gpus: 'Write `--gpus 0` for none, or name GPUs that cannot be seen from here: `--gpus 0,1`.',
}

const toOptionName = (field: string): string =>
  `--${optionNames[field] ?? field.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`

/** Replaces quoted field names by option names. A quoted value is followed by its type. */
const withTypedNames = (text: string): string =>
  text.replaceAll(quotedField, (_, name: string) => toOptionName(name))

const quotedField = /`([\w.]+)(?:\[\d+\])?(?:: true)?`(?! \(\w+\))/g

/** Rewrites errors about options so that they use the names typed on the command line. */
async function withOptionNames<Options, Result>(
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
    const text = withTypedNames(message.replace(`${field}: `, `${option}: `))
    const words = hint === undefined ? undefined : (optionHints[field] ?? withTypedNames(hint))
    throw new ValueError(text, {
      field: option,
      code,
      cause: error,
      ...(words === undefined ? {} : { hint: words }),
    })
  }
}

/** `2` is a count; `0,1` and `GPU-…` are device ids. */
function toGpus(text: string): number | (number | string)[] {
  if (/^-?\d+$/.test(text)) return Number(text)
  return text.split(',').map((id) => (/^\d+$/.test(id) ? Number(id) : id))
}

function toOneOf<One extends string>(
  field: string,
  text: string | undefined,
  known: readonly One[],
): One | undefined {
  const found = known.find((one) => one === text)
  if (found !== undefined || text === undefined) return found
  throw new ValueError(`${field}: expected ${known.join(' or ')}, got ${text}`, { field })
}
