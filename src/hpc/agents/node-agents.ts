/** The agents of an allocation's nodes: started together, and each again when it has died. */

import { type Clock, sleep } from '../../foundation/clock.ts'
import { BackendError } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { BackOff } from '../../runtime/back-off.ts'
import type { AllocatedNode, Allocation, NodeCommand } from '../allocation.ts'
import type { RemoteProcess } from '../remote-process.ts'
import { parseSeen, withoutOwnLines } from '../shared-file.ts'
import { passingRefusal } from '../slurm/job-report.ts'

export interface NodeAgentsOptions {
  readonly allocation: Allocation
  readonly command: NodeCommand
  /** The names of nodes whose agents are there. */
  readonly present: () => ReadonlySet<string>
  /** Why the agent of a node is not there any more. */
  readonly whyGone: (name: string) => string | null
  readonly clock: Clock
  readonly log: Log
}

/** What an agent writes when it is connected. */
export const startedLine = 'tutti: agent started'
/** Its exit code while an agent of the same name is connected, such as a stopped one. */
export const nameTakenCode = 75

/** How long the agents may take to start: thousands of nodes read their modules at once. */
const startMs = 300_000
const pollMs = 20
const watchMs = 500
/** Of one node; after that none is started there. */
const mostRestarts = 3
/** How long the end of an agent may take to be told by whoever has started it. */
const endMs = 5000
/** What a start writes before it tells that it is connected. */
const longestTold = 65_536

/** Further starts on one node. */
class Restarts {
  /** Of agents that were started, and of starts that failed. */
  count = 0
  readonly backOff = new BackOff({ firstDelayMs: 1000, maxDelayMs: 60_000 })
  /** Of the latest start. */
  process: RemoteProcess | null = null
  state: 'none' | 'starting' | 'started' = 'none'
  /** How the latest start has ended; `null` before. */
  end: string | null = null
  /** Since when the node is not there. */
  missingMs: number | null = null
  /** What was told since the node was there. */
  told: 'nothing' | 'silent' | 'refused' | 'given up' = 'nothing'

  get hasStarted(): boolean {
    return this.state === 'started'
  }

  /** The node is there. */
  reset(): void {
    this.backOff.reset()
    this.missingMs = null
    this.told = 'nothing'
  }
}

export class NodeAgents {
  readonly #options: NodeAgentsOptions
  readonly #first: readonly RemoteProcess[]
  #told = ''
  readonly #restarts = new Map<string, Restarts>()
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
    const told = Array.from(reasons, ([one, reason]) => withoutOwnLines(one.output) || reason)
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
    const further = [...this.#restarts.values()].flatMap(({ process }) => process ?? [])
    await Promise.all([...this.#first, ...further].map((one) => one.close()))
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

  /** A node that is lost does not answer: its start waits there, and nobody for it. */
  #startAgain(node: AllocatedNode): void {
    const { clock, whyGone } = this.#options
    const restarts = this.#restartsOf(node)
    const nowMs = clock.monotonicMs()
    restarts.missingMs ??= nowMs
    const why = restarts.end ?? whyGone(node.name) ?? 'it is not there'
    if (restarts.state === 'started') {
      if (nowMs - restarts.missingMs > endMs) this.#tellSilent(node, restarts, why)
    } else if (restarts.state === 'none') {
      if (restarts.count >= mostRestarts) this.#giveUp(node, restarts, why)
      else if (restarts.backOff.delayMs(nowMs) === 0) void this.#start(node, restarts, why)
    }
  }

  async #start(node: AllocatedNode, restarts: Restarts, why: string): Promise<void> {
    const { allocation, command, clock, log } = this.#options
    let output = ''
    const onOutput = (text: string): void => {
      if (restarts.hasStarted) return
      output = (output + text).slice(-longestTold)
      if (!output.includes(startedLine)) return
      restarts.state = 'started'
      restarts.end = null
      const which = `${++restarts.count}), ${mostRestarts} times at most`
      const what = `the agent of node ${node.name} is started again (${which}`
      if (this.#isWatching) log.warn('AgentRestarted', `${what}: ${why}`)
    }
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

  /** The agent may go on, as one that was stopped does; nothing has ended, so nothing counts. */
  #tellSilent({ name }: AllocatedNode, restarts: Restarts, why: string): void {
    if (restarts.told !== 'nothing') return
    restarts.told = 'silent'
    const text = `the agent of node ${name} does not answer (${why}), and has not ended`
    this.#options.log.warn('AgentSilent', `${text}: the node is used again when it goes on or ends`)
  }

  #fail({ name }: AllocatedNode, restarts: Restarts, why: string): void {
    restarts.end = why
    const refusal = passingRefusal(why)
    if (refusal !== null) return this.#tellRefused(name, restarts, `${refusal}: ${why}`)
    const which = `${++restarts.count} of ${mostRestarts}`
    const text = `the agent of node ${name} could not be started again (${which})`
    this.#options.log.warn('AgentNotRestarted', `${text}: ${why}`)
  }

  /** It is tried until Slurm takes the step; nothing counts. */
  #tellRefused(name: string, restarts: Restarts, why: string): void {
    if (restarts.told === 'refused') return
    restarts.told = 'refused'
    const text = `the agent of node ${name} cannot be started again yet: ${why}`
    this.#options.log.warn('AgentNotRestarted', text)
  }

  #giveUp({ name }: AllocatedNode, restarts: Restarts, why: string): void {
    if (restarts.told === 'given up') return
    restarts.told = 'given up'
    const count = `its agent was started again ${mostRestarts} times, and is gone`
    const text = `node ${name} is not used any more: ${count}: ${why}`
    this.#options.log.warn('AgentGivenUp', text)
  }

  #restartsOf({ name }: AllocatedNode): Restarts {
    const restarts = this.#restarts.get(name) ?? new Restarts()
    this.#restarts.set(name, restarts)
    return restarts
  }
}
