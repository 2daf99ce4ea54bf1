/** Polls nodes at an interval; their readings become events. It reads nothing itself. */

import { messageOf, StateError } from '../../foundation/errors.ts'
import { expectNumber, invalid } from '../../foundation/options.ts'
import { Service } from '../../foundation/service.ts'
import type { NodeNotice, SampledNode } from '../backend.ts'
import {
  emitSample,
  PolledNode,
  type PolledNodeContext,
  type PolledNodeOptions,
} from './polled-node.ts'

export interface ResourcePollerOptions extends PolledNodeContext {
  /** Above 0, at most a day. Default 5. */
  readonly intervalSeconds?: number
}

/**
 * Polls every node once an interval, the first time one interval after `start()`. A poll of a
 * node with N GPUs emits 1 + N ResourceUpdate events of one `event_time`. Polls of a node never
 * overlap, missed ones are not made up for, and no node waits for another. The poller closes the
 * samplers that it was given.
 */
export class ResourcePoller extends Service {
  readonly #options: ResourcePollerOptions
  readonly #intervalMs: number
  readonly #nodes = new Map<string, PolledNode>()
  #state: 'new' | 'running' | 'stopped' = 'new'
  #cancelTimer: () => void = () => {}

  constructor(options: ResourcePollerOptions) {
    super()
    this.#options = options
    const { intervalSeconds = 5 } = options
    const range = { above: 0, max: 86_400 }
    this.#intervalMs = expectNumber('intervalSeconds', intervalSeconds, range) * 1000
  }

  /** Also after `start()`: the node is primed at once and polled from the next cycle on. */
  add(options: PolledNodeOptions): void {
    if (this.#state === 'stopped') throw new StateError('The resource poller has stopped')
    const key = keyOf(options)
    if (this.#nodes.has(key)) throw invalid('nodeId', 'a node not polled yet', options.nodeId)
    const node = new PolledNode(options, this.#options)
    this.#nodes.set(key, node)
    if (this.#state === 'running') node.prime()
  }

  /** Polls the nodes that a backend has now; those that are polled already stay. */
  follow(backend: string, nodes: readonly SampledNode[]): void {
    for (const node of nodes) this.#join(backend, node)
  }

  /** Follows a backend whose nodes come and go, or send samples by themselves. */
  take(backend: string, notice: NodeNotice): void {
    if (this.#state === 'stopped') return
    if (notice.kind === 'node-joined') this.#join(backend, notice.node)
    else if (notice.kind === 'node-left') void this.remove({ backend, nodeId: notice.nodeId })
    else emitSample(this.#options, { backend, nodeId: notice.nodeId }, notice.sample)
  }

  #join(backend: string, node: SampledNode): void {
    const { nodeId } = node
    if (node.createSampler === undefined || this.#nodes.has(keyOf({ backend, nodeId }))) return
    try {
      this.add({ backend, nodeId, sampler: node.createSampler(this.#intervalMs / 1000) })
    } catch (error) {
      const text = `node "${nodeId}" (backend "${backend}") has no sampler: ${messageOf(error)}`
      this.#options.log.warn('SamplerFailed', text)
    }
  }

  /** Resolves when the node's sampler is closed, or after 2 s; an unknown node is fine. */
  async remove(node: Omit<PolledNodeOptions, 'sampler'>): Promise<void> {
    const key = keyOf(node)
    const polled = this.#nodes.get(key)
    this.#nodes.delete(key)
    await polled?.close()
  }

  protected async onStart(): Promise<void> {
    this.#state = 'running'
    const nodes = [...this.#nodes.values()]
    for (const node of nodes) node.prime()
    await Promise.all(nodes.map((node) => node.settled()))
    this.#pollAt(this.#options.clock.monotonicMs() + this.#intervalMs)
  }

  protected async onStop(): Promise<void> {
    this.#state = 'stopped'
    this.#cancelTimer()
    const nodes = [...this.#nodes.values()]
    this.#nodes.clear()
    await Promise.all(nodes.map((node) => node.close()))
  }

  #pollAt(dueMs: number): void {
    const { clock } = this.#options
    const poll = (): void => {
      this.#pollAt(nextDueMs(dueMs, clock.monotonicMs(), this.#intervalMs))
      for (const node of this.#nodes.values()) node.poll()
    }
    // A short interval may have passed meanwhile.
    const waitMs = Math.max(0, dueMs - clock.monotonicMs())
    this.#cancelTimer = clock.after(waitMs, poll, { background: true })
  }
}

/**
 * Keeps the schedule if a poll was slightly late; after a long pause (a suspended laptop) it starts
 * a new one, so that missed polls are not made up for.
 */
export function nextDueMs(dueMs: number, nowMs: number, intervalMs: number): number {
  return (nowMs - dueMs < intervalMs / 2 ? dueMs : nowMs) + intervalMs
}

const keyOf = (node: { readonly backend: string; readonly nodeId: string }): string =>
  JSON.stringify([node.backend, node.nodeId])
