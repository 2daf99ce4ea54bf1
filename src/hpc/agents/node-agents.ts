/** Starts the agents of an allocation's nodes together, and restarts each one that dies. */

import type { Clock } from '../../foundation/clock.ts'
import { BackendError, messageOf } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { once } from '../../foundation/service.ts'
import { Restarts } from '../../runtime/retry.ts'
import type { AllocatedNode, Allocation, NodeCommand } from '../allocation.ts'
import type { RemoteProcess } from '../remote-process.ts'
import { parseFolderReport, withoutDriverLines } from '../shared-file.ts'
import { isJobOver, parseTemporaryRefusal } from '../slurm/slurm-output.ts'
import { drainLine, nameTakenCode, parseAgentEnded, agentStartedLine } from './agent-lines.ts'

export interface NodeAgentsOptions {
  readonly allocation: Allocation
  readonly command: NodeCommand
  readonly connectedNodes: () => ReadonlySet<string>
  readonly exitReasonOf: (name: string) => string | null
  /** `isExpected` is `true` after `close` or `drain`. */
  readonly onAgentEnded: (name: string, isExpected: boolean) => void
  /** Called when the agent of a node has ended too often and is no longer restarted. */
  readonly onNodeAbandoned: (name: string, why: string) => void
  readonly clock: Clock
  readonly log: Log
}

/** The time limit is long, because thousands of nodes may read their modules at the same time. */
const startTimeoutMs = 300_000
const watchIntervalMs = 500
const maxRestarts = 3
const exitReportTimeoutMs = 5000
/** The maximum length of an incomplete line. Only the end of a longer line is kept. */
const maxLineLength = 65_536

class NodeRestarts {
  /** The number of restarts, including failed ones. */
  count = 0
  readonly backOff = new Restarts({ firstDelayMs: 1000, maxDelayMs: 60_000 })
  process: RemoteProcess | null = null
  state: 'none' | 'starting' | 'started' = 'none'
  exitReason: string | null = null
  /** When the agent was first found missing; `null` while it is connected. */
  missingMs: number | null = null
  lastWarning: 'nothing' | 'silent' | 'refused' | 'given up' = 'nothing'

  get hasStarted(): boolean {
    return this.state === 'started'
  }

  reset(): void {
    this.backOff.succeed()
    this.missingMs = null
    this.lastWarning = 'nothing'
  }
}

export class NodeAgents {
  readonly #options: NodeAgentsOptions
  readonly #firstProcesses: readonly RemoteProcess[]
  readonly #canReadFolder = new Map<string, boolean>()
  readonly #joined = new Set<string>()
  readonly #ended = new Set<string>()
  readonly #abandoned = Promise.withResolvers<string>()
  #onChange: () => void = () => {}
  readonly #restarts = new Map<string, NodeRestarts>()
  #isWatching = true
  #isExitExpected = false
  #cancelWatch: () => void = () => {}
  readonly #endAll = once(() => Promise.all(this.#processes.map((one) => one.close())))

  constructor(options: NodeAgentsOptions) {
    const { allocation, command } = options
    this.#options = options
    const onOutput = splitLines((line) => this.#handleLine(line))
    this.#firstProcesses = allocation.start(allocation.nodes, { ...command, onOutput })
  }

  /** The nodes that cannot read the folder of the launch. Complete once `ready` has resolved. */
  get nodesWithoutFolder(): readonly string[] {
    return Array.from(this.#canReadFolder)
      .filter(([, isSeen]) => !isSeen)
      .map(([name]) => name)
  }

  noteJoined(name: string): void {
    this.#joined.add(name)
    this.#onChange()
  }

  /** Resolves when all agents are connected. From then on, agents that exit are restarted. */
  async ready(): Promise<void> {
    const { clock } = this.#options
    const reasons = new Map<RemoteProcess, string>()
    const { promise: over, resolve: finish, reject } = Promise.withResolvers<boolean>()
    const cancelDeadline = clock.after(startTimeoutMs, () => finish(false))
    this.#onChange = () => {
      if (this.#isComplete()) finish(true)
      else if (reasons.size > 0 || this.#ended.size > 0) finish(false)
    }
    const noteEnd = (one: RemoteProcess, reason: string): void => {
      reasons.set(one, reason)
      this.#onChange()
    }
    for (const one of this.#firstProcesses) {
      one.ended.then((reason) => noteEnd(one, reason)).catch(reject)
    }
    this.#onChange()
    const isComplete = await over
    cancelDeadline()
    this.#onChange = () => {}
    if (isComplete) return this.#watch()
    throw await this.#startError(reasons)
  }

  /** Compares the counts first, because this is called for each of possibly thousands of nodes. */
  #isComplete(): boolean {
    const { length } = this.#options.allocation.nodes
    if (this.#canReadFolder.size < length || this.#joined.size < length) return false
    return this.#missingNodes().length === 0
  }

  #handleLine(line: string): void {
    for (const [name, isSeen] of parseFolderReport(line)) this.#canReadFolder.set(name, isSeen)
    const ended = parseAgentEnded(line)
    if (ended !== null) {
      this.#ended.add(ended)
      if (this.#restarts.get(ended)?.hasStarted !== true) this.#reportEnded(ended)
    }
    this.#onChange()
  }

  #reportEnded(name: string): void {
    this.#options.onAgentEnded(name, this.#isExitExpected)
  }

  /** The error names the nodes whose agents have ended, or else those whose agents are missing. */
  async #startError(reasons: ReadonlyMap<RemoteProcess, string>): Promise<BackendError> {
    const { nodes, label } = this.#options.allocation
    const isSingle = this.#firstProcesses.length === nodes.length
    const processOf = (at: number): RemoteProcess | null =>
      (isSingle ? this.#firstProcesses[at] : this.#firstProcesses[0]) ?? null
    const hasEnded = (name: string, at: number): boolean =>
      this.#ended.has(name) || (isSingle && reasons.has(this.#firstProcesses[at] as RemoteProcess))
    const ended = nodes.filter(({ name }, at) => hasEnded(name, at))
    const missingNodes = this.#missingNodes()
    const affectedNodes = ended.length > 0 ? ended : missingNodes.length > 0 ? missingNodes : nodes
    const processes = new Set(affectedNodes.map((node) => processOf(nodes.indexOf(node))))
    const hasFailure = ended.length > 0 || reasons.size > 0
    // The output is complete only after the processes have ended.
    if (this.#ended.size > 0) await this.close()
    const outputs = [...processes].flatMap((one) => {
      return one === null ? [] : withoutDriverLines(one.output) || (reasons.get(one) ?? [])
    })
    const why = hasFailure
      ? outputs.join('\n')
      : `none has connected within ${startTimeoutMs / 1000} s`
    const names = affectedNodes.map(({ name }) => name).join(', ')
    return new BackendError(`no agent on ${names} of ${label}: ${why}`, { code: 'AgentStartError' })
  }

  /** Stops restarting agents that exit. */
  stopWatching(): void {
    this.#isWatching = false
    this.#cancelWatch()
  }

  drain(): void {
    this.stopWatching()
    this.#isExitExpected = true
    for (const one of this.#processes) one.write(`${drainLine}\n`)
  }

  /** Resolves with the reason when all nodes are abandoned, so that no agent is restarted. */
  get abandoned(): Promise<string> {
    return this.#abandoned.promise
  }

  async ended(): Promise<void> {
    await Promise.all(this.#processes.map((one) => one.ended))
  }

  async close(): Promise<void> {
    this.stopWatching()
    this.#isExitExpected = true
    await this.#endAll()
  }

  get #processes(): readonly RemoteProcess[] {
    const restarted = [...this.#restarts.values()].flatMap(({ process }) => process ?? [])
    return [...this.#firstProcesses, ...restarted]
  }

  #missingNodes(): AllocatedNode[] {
    const connectedNodes = this.#options.connectedNodes()
    return this.#options.allocation.nodes.filter(({ name }) => !connectedNodes.has(name))
  }

  #watch(): void {
    if (!this.#isWatching) return
    const { allocation, clock } = this.#options
    const connectedNodes = this.#options.connectedNodes()
    for (const node of allocation.nodes) {
      if (connectedNodes.has(node.name)) this.#restarts.get(node.name)?.reset()
      else this.#restartIfDue(node)
    }
    this.#cancelWatch = clock.after(watchIntervalMs, () => this.#watch(), { background: true })
  }

  /**
   * Restarts the agent if a restart is due. Does not wait for the start, which hangs if a node is
   * down.
   */
  #restartIfDue(node: AllocatedNode): void {
    const { clock, exitReasonOf } = this.#options
    const restarts = this.#restarts.get(node.name) ?? new NodeRestarts()
    this.#restarts.set(node.name, restarts)
    const nowMs = clock.monotonicMs()
    restarts.missingMs ??= nowMs
    const why = restarts.exitReason ?? exitReasonOf(node.name) ?? 'it is gone'
    if (restarts.state === 'started') {
      if (nowMs - restarts.missingMs > exitReportTimeoutMs) this.#warnSilent(node, restarts, why)
    } else if (restarts.state === 'none') {
      if (restarts.count >= maxRestarts) this.#abandon(node, restarts, why)
      else if (restarts.backOff.canStart(() => nowMs)) {
        this.#restart(node, restarts, why).catch((error: unknown) => {
          restarts.state = 'none'
          restarts.backOff.fail(clock.monotonicMs())
          this.#noteFailure(node, restarts, messageOf(error))
        })
      }
    }
  }

  async #restart(node: AllocatedNode, restarts: NodeRestarts, why: string): Promise<void> {
    const { allocation, command, clock, log } = this.#options
    const onOutput = splitLines((line) => {
      // Ignores the exit of an agent that had not started, such as one whose name was in use.
      if (restarts.hasStarted && parseAgentEnded(line) === node.name) this.#reportEnded(node.name)
      if (line !== agentStartedLine || restarts.hasStarted) return
      restarts.state = 'started'
      restarts.exitReason = null
      const countText = `restart ${++restarts.count} of at most ${maxRestarts}`
      const what = `the agent of node ${node.name} is started again (${countText})`
      if (this.#isWatching) log.warn('AgentRestarted', `${what}: ${why}`)
    })
    const [process] = allocation.start([node], { ...command, onOutput })
    if (process === undefined) return
    restarts.process = process
    restarts.state = 'starting'
    const exitReason = await process.ended
    const { hasStarted } = restarts
    restarts.state = 'none'
    restarts.backOff.fail(clock.monotonicMs())
    if (!this.#isWatching) return
    if (hasStarted) restarts.exitReason = `it ended with ${exitReason}`
    else if (exitReason === `exit code ${nameTakenCode}`) this.#warnSilent(node, restarts, why)
    else this.#noteFailure(node, restarts, withoutDriverLines(process.output) || exitReason)
  }

  /** Warns about a missing agent that has not ended. It may be suspended and continue later. */
  #warnSilent({ name }: AllocatedNode, restarts: NodeRestarts, why: string): void {
    if (restarts.lastWarning !== 'nothing') return
    restarts.lastWarning = 'silent'
    const text = `the agent of node ${name} does not answer (${why}), and has not ended`
    this.#options.log.warn(
      'AgentSilent',
      `${text}: the node is used again when the agent continues or exits`,
    )
  }

  #noteFailure({ name }: AllocatedNode, restarts: NodeRestarts, why: string): void {
    restarts.exitReason = why
    // `AllocationWatch` reports the end of the allocation.
    if (isJobOver(why)) return this.stopWatching()
    const refusal = parseTemporaryRefusal(why)
    if (refusal !== null) return this.#warnRefused(name, restarts, `${refusal}: ${why}`)
    const countText = `${++restarts.count} of ${maxRestarts}`
    const text = `the agent of node ${name} could not be started again (${countText})`
    this.#options.log.warn('AgentNotRestarted', `${text}: ${why}`)
  }

  /** Warns about a temporary refusal. Retries after it do not count as restarts. */
  #warnRefused(name: string, restarts: NodeRestarts, why: string): void {
    if (restarts.lastWarning === 'refused') return
    restarts.lastWarning = 'refused'
    const text = `the agent of node ${name} cannot be started again yet: ${why}`
    this.#options.log.warn('AgentNotRestarted', text)
  }

  #abandon({ name }: AllocatedNode, restarts: NodeRestarts, why: string): void {
    if (restarts.lastWarning === 'given up') return
    restarts.lastWarning = 'given up'
    const count = `its agent was started again ${maxRestarts} times and has ended again`
    const text = `node ${name} is not used any more: ${count}: ${why}`
    const { log, allocation, onNodeAbandoned } = this.#options
    log.warn('AgentGivenUp', text)
    onNodeAbandoned(name, text)
    const isUseless = allocation.nodes.every(
      (one) => this.#restarts.get(one.name)?.lastWarning === 'given up',
    )
    if (isUseless) this.#abandoned.resolve(text)
  }
}

function splitLines(onLine: (line: string) => void): (text: string) => void {
  let rest = ''
  return (text) => {
    const lines = (rest + text).split('\n')
    rest = (lines.pop() ?? '').slice(-maxLineLength)
    for (const line of lines) onLine(line)
  }
}
