/** Polls the nodes of a session's backends, and emits events when nodes join or leave. */

import { hostname } from 'node:os'
import { stampEvent, type TrustedFields } from '../../events/event.ts'
import { NodeDrained, NodeJoined, NodeLost } from '../../events/library-events.ts'
import { messageOf } from '../../foundation/errors.ts'
import { type JsonObject, toFrozen } from '../../foundation/json-value.ts'
import { definedFields, expectNumber } from '../../foundation/options.ts'
import { maskSecretsIn } from '../../foundation/secrets.ts'
import { Service } from '../../foundation/service.ts'
import type { NodeCapacity, NodeNotice, SampledNode } from '../backend.ts'
import type { LoopDelay } from './loop-delay.ts'
import { createLocalSampler } from './node-sampler.ts'
import { emitSample, PolledNode, type PolledNodeContext } from './polled-node.ts'

export interface ResourcePollerOptions extends PolledNodeContext {
  /** The time between two polls in seconds, above 0 and at most a day. Default 5. */
  readonly intervalSeconds?: number
  /** Measures the event loop while the poller runs. Default: not measured. */
  readonly loopDelay?: LoopDelay
  /** The node that is sampled while no backend has a node. Default: this host. */
  readonly host?: SampledNode
}

const hostBackend = 'tutti'

/**
 * Polls every node once per interval, and once at `stop()`. A poll of a node with N GPUs emits 1 +
 * N ResourceUpdate events with one `event_time`. No node waits for another, polls of a node never
 * overlap, and missed polls are skipped.
 */
export class ResourcePoller extends Service {
  readonly #options: ResourcePollerOptions
  readonly #intervalMs: number
  readonly #claims = new NodeClaims()
  readonly #polled = new Map<string, { readonly owner: NodeClaim; readonly node: PolledNode }>()
  readonly #hostClaim: NodeClaim
  #polledHost: PolledNode | null = null
  #state: 'new' | 'running' | 'stopped' = 'new'
  #cancelTimer: () => void = () => {}

  constructor(options: ResourcePollerOptions) {
    super()
    this.#options = options
    const { clock, log, intervalSeconds = 5 } = options
    const range = { above: 0, max: 86_400 }
    this.#intervalMs = expectNumber('intervalSeconds', intervalSeconds, range) * 1000
    const host: SampledNode = {
      nodeId: hostname(),
      createSampler: (pollSeconds) => createLocalSampler({ clock, log, pollSeconds }),
    }
    this.#hostClaim = { backend: hostBackend, node: options.host ?? host }
  }

  /**
   * Must be called in the order of the session's backends. A node that is added while the poller
   * runs is polled from the next cycle on.
   */
  addBackend(backend: string, nodes: readonly SampledNode[]): void {
    this.#claims.addBackend(backend)
    for (const node of nodes) this.#join({ backend, node })
  }

  handleNotice(backend: string, notice: NodeNotice): void {
    if (this.#state === 'stopped') return
    if (notice.kind === 'node-joined') this.#join({ backend, node: notice.node })
    else if (notice.kind === 'node-left') this.#leave(backend, notice)
    else this.#recordSample(backend, notice)
  }

  /** Does not wait for samplers to be primed, so that events can be dispatched meanwhile. */
  protected onStart(): Promise<void> {
    this.#state = 'running'
    this.#options.loopDelay?.start()
    this.#updateHost()
    for (const { node } of this.#polled.values()) node.prime()
    this.#pollAt(this.#options.clock.monotonicMs() + this.#intervalMs)
    return Promise.resolve()
  }

  protected async onStop(): Promise<void> {
    this.#state = 'stopped'
    this.#cancelTimer()
    const nodes = this.#listPolled()
    this.#polled.clear()
    this.#polledHost = null
    await Promise.all(
      nodes.map(async (node) => {
        await node.pollFinally()
        await node.close()
      }),
    )
    this.#options.loopDelay?.stop()
  }

  #join(claim: NodeClaim): void {
    const { backend, node } = claim
    const { nodeId, capacity } = node
    if (this.#state === 'stopped' || !this.#claims.add(claim)) return
    const { cores = 0, gpus = 0, memoryMb = 0, labels = {}, version = '' } = capacity ?? {}
    const shownLabels = maskSecretsIn(toFrozen(labels))
    const facts = { cores, gpus, memory_mb: memoryMb, labels: shownLabels, version }
    const { clock, sink } = this.#options
    const origin = { ...this.#origin(backend, nodeId), attributes: toAttributes(node) }
    sink.emit(stampEvent(NodeJoined, clock, { ...origin, ...facts }))
    this.#updateOwner(nodeId)
    this.#updateHost()
  }

  #leave(backend: string, notice: NodeNotice & { readonly kind: 'node-left' }): void {
    const { nodeId, lost } = notice
    if (!this.#claims.remove(backend, nodeId)) return
    const { clock, sink } = this.#options
    const origin = this.#origin(backend, nodeId)
    if (lost === undefined) sink.emit(stampEvent(NodeDrained, clock, origin))
    else sink.emit(stampEvent(NodeLost, clock, { ...origin, ...maskSecretsIn(toFrozen(lost)) }))
    this.#updateOwner(nodeId)
    this.#updateHost()
  }

  #origin(backend: string, nodeId: string): TrustedFields {
    return { session_id: this.#options.sessionId, backend, node_id: nodeId }
  }

  /** Emits a sample that a node has sent, unless another backend samples the node. */
  #recordSample(
    backend: string,
    { nodeId, sample }: NodeNotice & { readonly kind: 'sample' },
  ): void {
    const owner = this.#claims.ownerOf(nodeId)
    if (owner !== undefined && owner.backend !== backend) return
    emitSample(this.#options, { backend, nodeId }, sample)
  }

  #updateOwner(nodeId: string): void {
    const owner = this.#claims.ownerOf(nodeId)
    const polled = this.#polled.get(nodeId)
    if (polled?.owner === owner) return
    void polled?.node.close()
    this.#polled.delete(nodeId)
    const node = owner === undefined ? null : this.#create(owner)
    if (owner === undefined || node === null) return
    this.#polled.set(nodeId, { owner, node })
    if (this.#state === 'running') node.prime()
  }

  #updateHost(): void {
    if (this.#state !== 'running' || this.#claims.isEmpty === (this.#polledHost !== null)) return
    void this.#polledHost?.close()
    this.#polledHost = this.#claims.isEmpty ? this.#create(this.#hostClaim) : null
    this.#polledHost?.prime()
  }

  /** Returns `null` if the node sends samples itself or cannot be sampled. */
  #create({ backend, node }: NodeClaim): PolledNode | null {
    const { nodeId } = node
    try {
      const sampler = node.createSampler?.(this.#intervalMs / 1000)
      return sampler === undefined
        ? null
        : new PolledNode({ backend, nodeId, sampler }, this.#options)
    } catch (error) {
      const text = `node "${nodeId}" (backend "${backend}") has no sampler: ${messageOf(error)}`
      this.#options.log.warn('SamplerFailed', text)
      return null
    }
  }

  #listPolled(): PolledNode[] {
    const nodes = Array.from(this.#polled.values(), ({ node }) => node)
    return this.#polledHost === null ? nodes : [...nodes, this.#polledHost]
  }

  #pollAt(dueMs: number): void {
    const { clock } = this.#options
    const poll = (): void => {
      this.#pollAt(nextDueMs(dueMs, clock.monotonicMs(), this.#intervalMs))
      for (const node of this.#listPolled()) node.poll()
    }
    const waitMs = Math.max(0, dueMs - clock.monotonicMs())
    this.#cancelTimer = clock.after(waitMs, poll, { background: true })
  }
}

function toAttributes({ capacity, agentStart }: SampledNode): JsonObject {
  const { workers, maxProcesses }: Partial<NodeCapacity> = capacity ?? {}
  const known = { workers, max_processes: maxProcesses, agent_start: agentStart }
  return Object.freeze(definedFields(known))
}

/** Keeps the schedule after a slight delay. After a long pause, skips the missed polls. */
export function nextDueMs(dueMs: number, nowMs: number, intervalMs: number): number {
  return (nowMs - dueMs < intervalMs / 2 ? dueMs : nowMs) + intervalMs
}

interface NodeClaim {
  readonly backend: string
  readonly node: SampledNode
}

/**
 * Chooses the backend that samples a node: the highest `samplingPriority`, or the first of equals.
 */
class NodeClaims {
  readonly #backends: string[] = []
  readonly #claims = new Map<string, NodeClaim[]>()

  get isEmpty(): boolean {
    return this.#claims.size === 0
  }

  /** Must be called for all backends of the session in order, even for those without nodes. */
  addBackend(backend: string): void {
    if (!this.#backends.includes(backend)) this.#backends.push(backend)
  }

  add(claim: NodeClaim): boolean {
    const { nodeId } = claim.node
    const claims = this.#claims.get(nodeId) ?? []
    if (claims.some(({ backend }) => backend === claim.backend)) return false
    this.addBackend(claim.backend)
    const sorted = [...claims, claim].toSorted(
      (a, b) =>
        priorityOf(b) - priorityOf(a) ||
        this.#backends.indexOf(a.backend) - this.#backends.indexOf(b.backend),
    )
    this.#claims.set(nodeId, sorted)
    return true
  }

  remove(backend: string, nodeId: string): boolean {
    const claims = this.#claims.get(nodeId) ?? []
    const remaining = claims.filter((claim) => claim.backend !== backend)
    if (remaining.length > 0) this.#claims.set(nodeId, remaining)
    else this.#claims.delete(nodeId)
    return remaining.length < claims.length
  }

  ownerOf(nodeId: string): NodeClaim | undefined {
    return this.#claims.get(nodeId)?.[0]
  }
}

const priorityOf = ({ node }: NodeClaim): number => node.samplingPriority ?? 0
