/** The agents of an allocation's nodes: started together, and each again when it has died. */

import { type Clock, sleep } from '../foundation/clock.ts'
import { BackendError } from '../foundation/errors.ts'
import type { Log } from '../foundation/log.ts'
import type { AllocatedNode, Allocation, NodeCommand } from './allocation.ts'
import type { RemoteProcess } from './remote-process.ts'
import { parseSeen, withoutSeen } from './shared-file.ts'

export interface NodeAgentsOptions {
  readonly allocation: Allocation
  readonly command: NodeCommand
  /** The names of nodes whose agents are there. */
  readonly present: () => ReadonlySet<string>
  readonly clock: Clock
  readonly log: Log
}

/** How long the agents may take to start: thousands of nodes read their modules at once. */
const startMs = 300_000
const pollMs = 20
const watchMs = 500
/** Of one node; after that the node is not used any more. */
const mostRestarts = 3

interface Restarted {
  count: number
  /** Of the latest start. */
  process: RemoteProcess
  isUnderWay: boolean
}

export class NodeAgents {
  readonly #options: NodeAgentsOptions
  readonly #first: readonly RemoteProcess[]
  #told = ''
  readonly #restarted = new Map<string, Restarted>()
  #isWatching = true
  #cancelWatch: () => void = () => {}
  #closing: Promise<void> | null = null

  /** Starts them. */
  constructor(options: NodeAgentsOptions) {
    const { allocation, command } = options
    this.#options = options
    const onOutput = (text: string): void => void (this.#told += text)
    this.#first = allocation.start(allocation.nodes, { ...command, onOutput })
  }

  /** Nodes that do not see the folder of the launch. Known when all are ready. */
  get unseeing(): readonly string[] {
    return Array.from(parseSeen(this.#told))
      .filter(([, isSeen]) => !isSeen)
      .map(([name]) => name)
  }

  /** Resolves when all are there, and watches them from then on. */
  async ready(): Promise<void> {
    const { allocation, clock } = this.#options
    const reasons = new Map<RemoteProcess, string>()
    for (const one of this.#first) void one.ended.then((reason) => reasons.set(one, reason))
    const untilMs = clock.monotonicMs() + startMs
    for (;;) {
      const missing = this.#missing()
      if (missing.length === 0 && parseSeen(this.#told).size === allocation.nodes.length) break
      if (reasons.size > 0 || clock.monotonicMs() > untilMs) throw this.#startError(reasons)
      await sleep(clock, pollMs)
    }
    this.#watch()
  }

  /** Names the nodes whose process has ended, where each has its own; else all that are missing. */
  #startError(reasons: ReadonlyMap<RemoteProcess, string>): BackendError {
    const { nodes, label } = this.#options.allocation
    const isSingle = this.#first.length === nodes.length
    const ended = nodes.filter((_, at) => reasons.has(this.#first[at] as RemoteProcess))
    const missing = this.#missing()
    const named = isSingle && ended.length > 0 ? ended : missing.length > 0 ? missing : nodes
    const told = Array.from(reasons, ([one, reason]) => withoutSeen(one.output) || reason)
    const why = told.length > 0 ? told.join('\n') : `none after ${startMs / 1000} s`
    const names = named.map(({ name }) => name).join(', ')
    return new BackendError(`no agent on ${names} of ${label}: ${why}`, { code: 'AgentStartError' })
  }

  /** None is started again. */
  stopWatching(): void {
    this.#isWatching = false
    this.#cancelWatch()
  }

  /** Ends all. Idempotent, same promise. */
  close(): Promise<void> {
    this.stopWatching()
    this.#closing ??= this.#closeOnce()
    return this.#closing
  }

  async #closeOnce(): Promise<void> {
    const restarted = [...this.#restarted.values()].map(({ process }) => process)
    await Promise.all([...this.#first, ...restarted].map((one) => one.close()))
  }

  #missing(): AllocatedNode[] {
    const present = this.#options.present()
    return this.#options.allocation.nodes.filter(({ name }) => !present.has(name))
  }

  #watch(): void {
    if (!this.#isWatching) return
    for (const node of this.#missing()) this.#startAgain(node)
    const { clock } = this.#options
    this.#cancelWatch = clock.after(watchMs, () => this.#watch(), { background: true })
  }

  /** A node that is lost does not answer: its start waits there, and nobody for it. */
  #startAgain(node: AllocatedNode): void {
    const { allocation, command, log } = this.#options
    const before = this.#restarted.get(node.name)
    if (before?.isUnderWay === true || (before?.count ?? 0) >= mostRestarts) return
    const [process] = allocation.start([node], command)
    if (process === undefined) return
    const restarted = { count: (before?.count ?? 0) + 1, process, isUnderWay: true }
    this.#restarted.set(node.name, restarted)
    void process.ended.then(() => (restarted.isUnderWay = false))
    const text = `the agent of node ${node.name} is started again (${restarted.count})`
    log.warn('AgentRestarted', `${text}, ${mostRestarts} times at most`)
  }
}
