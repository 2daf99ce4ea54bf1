/** The agents of an allocation's nodes: starts them together, and restarts each one that dies. */

import type { Clock } from '../../foundation/clock.ts'
import { BackendError, messageOf } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { once } from '../../foundation/service.ts'
import { Restarts } from '../../runtime/retry.ts'
import type { AllocatedNode, Allocation, NodeCommand } from '../allocation.ts'
import type { RemoteProcess } from '../remote-process.ts'
import { parseSeen, withoutOwnLines } from '../shared-file.ts'
import { isJobOver, passingRefusal } from '../slurm/job-report.ts'
import { drainLine, nameTakenCode, parseEnded, startedLine } from './agent-lines.ts'

export interface NodeAgentsOptions {
  readonly allocation: Allocation
  readonly command: NodeCommand
  /** The names of the nodes whose agents are connected. */
  readonly present: () => ReadonlySet<string>
  /** Why the agent of a node is no longer connected. */
  readonly whyGone: (name: string) => string | null
  /** The agent's process on a node has ended; this is expected if all agents were asked to end. */
  readonly onEnded: (name: string, isExpected: boolean) => void
  /** No further agent is started on this node. */
  readonly onGivenUp: (name: string, why: string) => void
  readonly clock: Clock
  readonly log: Log
}

/** How long the agents may take to start: thousands of nodes may read their modules at once. */
const startMs = 300_000
const watchMs = 500
/** The maximum per node; after that, no further agent is started there. */
const maxRestarts = 3
/** How long it may take until the end of an agent's process is reported. */
const endMs = 5000
/** The maximum length that is kept of an incomplete line. */
const maxLineLength = 65_536

/** The restarts of one node's agent. */
class NodeRestarts {
  /** Counts successful restarts and failed ones. */
  count = 0
  readonly backOff = new Restarts({ firstDelayMs: 1000, maxDelayMs: 60_000 })
  /** The process of the latest restart. */
  process: RemoteProcess | null = null
  state: 'none' | 'starting' | 'started' = 'none'
  /** How the latest restart ended; `null` while it has not. */
  end: string | null = null
  /** Since when the agent has been missing. */
  missingMs: number | null = null
  /** The warning that was logged since the agent was last connected. */
  warned: 'nothing' | 'silent' | 'refused' | 'given up' = 'nothing'

  get hasStarted(): boolean {
    return this.state === 'started'
  }

  /** The agent is connected again. */
  reset(): void {
    this.backOff.succeed()
    this.missingMs = null
    this.warned = 'nothing'
  }
}

export class NodeAgents {
  readonly #options: NodeAgentsOptions
  readonly #first: readonly RemoteProcess[]
  /** Whether each node can read the folder of the launch, as far as reported. */
  readonly #seen = new Map<string, boolean>()
  /** Nodes whose agents have been connected. */
  readonly #arrived = new Set<string>()
  /** Nodes whose first agents have ended. */
  readonly #ended = new Set<string>()
  readonly #givenUp = Promise.withResolvers<string>()
  #onChange: () => void = () => {}
  readonly #restarts = new Map<string, NodeRestarts>()
  #isWatching = true
  /** The agents were asked to end. */
  #isEndExpected = false
  #cancelWatch: () => void = () => {}
  readonly #endAll = once(() => Promise.all(this.#processes.map((one) => one.close())))

  /** Starts the agents. */
  constructor(options: NodeAgentsOptions) {
    const { allocation, command } = options
    this.#options = options
    const onOutput = byLine((line) => this.#takeFirst(line))
    this.#first = allocation.start(allocation.nodes, { ...command, onOutput })
  }

  /** Nodes that cannot read the folder of the launch. Complete after `ready`. */
  get unseeing(): readonly string[] {
    return Array.from(this.#seen)
      .filter(([, isSeen]) => !isSeen)
      .map(([name]) => name)
  }

  /** The agent of this node is connected now. */
  noteJoined(name: string): void {
    this.#arrived.add(name)
    this.#onChange()
  }

  /** Resolves when all agents are connected; from then on restarts them. */
  async ready(): Promise<void> {
    const { clock } = this.#options
    const reasons = new Map<RemoteProcess, string>()
    const { promise: over, resolve: finish, reject } = Promise.withResolvers<boolean>()
    const cancelDeadline = clock.after(startMs, () => finish(false))
    this.#onChange = () => {
      if (this.#isComplete()) finish(true)
      else if (reasons.size > 0 || this.#ended.size > 0) finish(false)
    }
    const noteEnd = (one: RemoteProcess, reason: string): void => {
      reasons.set(one, reason)
      this.#onChange()
    }
    for (const one of this.#first) {
      one.ended.then((reason) => noteEnd(one, reason)).catch(reject)
    }
    this.#onChange()
    const isComplete = await over
    cancelDeadline()
    this.#onChange = () => {}
    if (isComplete) return this.#watch()
    throw await this.#startError(reasons)
  }

  /** Compares counts first, because this is called for each of thousands of nodes. */
  #isComplete(): boolean {
    const { length } = this.#options.allocation.nodes
    if (this.#seen.size < length || this.#arrived.size < length) return false
    return this.#missing().length === 0
  }

  #takeFirst(line: string): void {
    for (const [name, isSeen] of parseSeen(line)) this.#seen.set(name, isSeen)
    const ended = parseEnded(line)
    if (ended !== null) {
      this.#ended.add(ended)
      // Not reported if the node's restarted agent may already be running.
      if (this.#restarts.get(ended)?.hasStarted !== true) this.#tellEnded(ended)
    }
    this.#onChange()
  }

  #tellEnded(name: string): void {
    this.#options.onEnded(name, this.#isEndExpected)
  }

  /** Names the nodes whose agents have ended, if known; otherwise all that are missing. */
  async #startError(reasons: ReadonlyMap<RemoteProcess, string>): Promise<BackendError> {
    const { nodes, label } = this.#options.allocation
    const isSingle = this.#first.length === nodes.length
    const processOf = (at: number): RemoteProcess | null =>
      (isSingle ? this.#first[at] : this.#first[0]) ?? null
    const hasEnded = (name: string, at: number): boolean =>
      this.#ended.has(name) || (isSingle && reasons.has(this.#first[at] as RemoteProcess))
    const ended = nodes.filter(({ name }, at) => hasEnded(name, at))
    const missing = this.#missing()
    const named = ended.length > 0 ? ended : missing.length > 0 ? missing : nodes
    const processes = new Set(named.map((node) => processOf(nodes.indexOf(node))))
    const isOver = ended.length > 0 || reasons.size > 0
    // When the processes have ended, their output is complete.
    if (this.#ended.size > 0) await this.close()
    const outputs = [...processes].flatMap((one) => {
      return one === null ? [] : withoutOwnLines(one.output) || (reasons.get(one) ?? [])
    })
    const why = isOver ? outputs.join('\n') : `none has connected within ${startMs / 1000} s`
    const names = named.map(({ name }) => name).join(', ')
    return new BackendError(`no agent on ${names} of ${label}: ${why}`, { code: 'AgentStartError' })
  }

  /** Agents that end are not restarted from now on. */
  stopWatching(): void {
    this.#isWatching = false
    this.#cancelWatch()
  }

  /** Tells the agents to finish running tasks, to accept no new ones, and to leave. */
  drain(): void {
    this.stopWatching()
    this.#isEndExpected = true
    for (const one of this.#processes) one.write(`${drainLine}\n`)
  }

  /** Resolves with the reason when no agent is started on any of the nodes any more. */
  get givenUp(): Promise<string> {
    return this.#givenUp.promise
  }

  /** Resolves when all agent processes have ended. */
  async ended(): Promise<void> {
    await Promise.all(this.#processes.map((one) => one.ended))
  }

  /** Ends all agents. Idempotent. */
  async close(): Promise<void> {
    this.stopWatching()
    this.#isEndExpected = true
    await this.#endAll()
  }

  get #processes(): readonly RemoteProcess[] {
    const further = [...this.#restarts.values()].flatMap(({ process }) => process ?? [])
    return [...this.#first, ...further]
  }

  #missing(): AllocatedNode[] {
    const present = this.#options.present()
    return this.#options.allocation.nodes.filter(({ name }) => !present.has(name))
  }

  #watch(): void {
    if (!this.#isWatching) return
    const { allocation, clock } = this.#options
    const present = this.#options.present()
    for (const node of allocation.nodes) {
      if (present.has(node.name)) this.#restarts.get(node.name)?.reset()
      else this.#startAgain(node)
    }
    this.#cancelWatch = clock.after(watchMs, () => this.#watch(), { background: true })
  }

  /** Other nodes do not wait for this start, which hangs if the node is down. */
  #startAgain(node: AllocatedNode): void {
    const { clock, whyGone } = this.#options
    const restarts = this.#restartsOf(node)
    const nowMs = clock.monotonicMs()
    restarts.missingMs ??= nowMs
    const why = restarts.end ?? whyGone(node.name) ?? 'it is gone'
    if (restarts.state === 'started') {
      if (nowMs - restarts.missingMs > endMs) this.#tellSilent(node, restarts, why)
    } else if (restarts.state === 'none') {
      if (restarts.count >= maxRestarts) this.#giveUp(node, restarts, why)
      else if (restarts.backOff.mayStart(() => nowMs)) {
        this.#start(node, restarts, why).catch((error: unknown) => {
          restarts.state = 'none'
          restarts.backOff.fail(clock.monotonicMs())
          this.#fail(node, restarts, messageOf(error))
        })
      }
    }
  }

  async #start(node: AllocatedNode, restarts: NodeRestarts, why: string): Promise<void> {
    const { allocation, command, clock, log } = this.#options
    const onOutput = byLine((line) => {
      // The shell also reports an agent that exited because another one with its name is connected.
      if (restarts.hasStarted && parseEnded(line) === node.name) this.#tellEnded(node.name)
      if (line !== startedLine || restarts.hasStarted) return
      restarts.state = 'started'
      restarts.end = null
      const which = `restart ${++restarts.count} of at most ${maxRestarts}`
      const what = `the agent of node ${node.name} is started again (${which})`
      if (this.#isWatching) log.warn('AgentRestarted', `${what}: ${why}`)
    })
    const [process] = allocation.start([node], { ...command, onOutput })
    if (process === undefined) return
    restarts.process = process
    restarts.state = 'starting'
    const end = await process.ended
    const { hasStarted } = restarts
    restarts.state = 'none'
    restarts.backOff.fail(clock.monotonicMs())
    if (!this.#isWatching) return
    if (hasStarted) restarts.end = `it ended with ${end}`
    else if (end === `exit code ${nameTakenCode}`) this.#tellSilent(node, restarts, why)
    else this.#fail(node, restarts, withoutOwnLines(process.output) || end)
  }

  /**
   * The agent may continue later, for instance if it was suspended. It has not ended, so this does
   * not count as a restart.
   */
  #tellSilent({ name }: AllocatedNode, restarts: NodeRestarts, why: string): void {
    if (restarts.warned !== 'nothing') return
    restarts.warned = 'silent'
    const text = `the agent of node ${name} does not answer (${why}), and has not ended`
    this.#options.log.warn(
      'AgentSilent',
      `${text}: the node is used again when the agent continues or exits`,
    )
  }

  #fail({ name }: AllocatedNode, restarts: NodeRestarts, why: string): void {
    restarts.end = why
    // The watch of the allocation reports its end once.
    if (isJobOver(why)) return this.stopWatching()
    const refusal = passingRefusal(why)
    if (refusal !== null) return this.#tellRefused(name, restarts, `${refusal}: ${why}`)
    const which = `${++restarts.count} of ${maxRestarts}`
    const text = `the agent of node ${name} could not be started again (${which})`
    this.#options.log.warn('AgentNotRestarted', `${text}: ${why}`)
  }

  /** Slurm refused the step for now. Its retries do not count as restarts. */
  #tellRefused(name: string, restarts: NodeRestarts, why: string): void {
    if (restarts.warned === 'refused') return
    restarts.warned = 'refused'
    const text = `the agent of node ${name} cannot be started again yet: ${why}`
    this.#options.log.warn('AgentNotRestarted', text)
  }

  #giveUp({ name }: AllocatedNode, restarts: NodeRestarts, why: string): void {
    if (restarts.warned === 'given up') return
    restarts.warned = 'given up'
    const count = `its agent was started again ${maxRestarts} times and has ended again`
    const text = `node ${name} is not used any more: ${count}: ${why}`
    const { log, allocation, onGivenUp } = this.#options
    log.warn('AgentGivenUp', text)
    onGivenUp(name, text)
    const isUseless = allocation.nodes.every(
      (one) => this.#restarts.get(one.name)?.warned === 'given up',
    )
    if (isUseless) this.#givenUp.resolve(text)
  }

  #restartsOf({ name }: AllocatedNode): NodeRestarts {
    const restarts = this.#restarts.get(name) ?? new NodeRestarts()
    this.#restarts.set(name, restarts)
    return restarts
  }
}

/** Splits a text that arrives in pieces into whole lines. */
function byLine(take: (line: string) => void): (text: string) => void {
  let rest = ''
  return (text) => {
    const lines = (rest + text).split('\n')
    rest = (lines.pop() ?? '').slice(-maxLineLength)
    for (const line of lines) take(line)
  }
}
