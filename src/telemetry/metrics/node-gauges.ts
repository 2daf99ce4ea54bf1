/**
 * The utilization of each node, keyed by backend and node: the last seen, and its mean and peak.
 */

import type { ResourceUpdate } from '../../events/resource-update.ts'

/** One reading of a node over time. */
export class Gauge {
  last: number | null = null
  max: number | null = null
  #sum = 0
  #count = 0

  get mean(): number | null {
    return this.#count === 0 ? null : this.#sum / this.#count
  }

  /** A reading that is unknown leaves the last known one. */
  record(value: number | null): void {
    if (value === null || !Number.isFinite(value)) return
    this.last = value
    this.max = Math.max(this.max ?? value, value)
    this.#sum += value
    this.#count++
  }
}

export interface NodeGauge {
  readonly backend: string
  readonly nodeId: string
  readonly cpu: Gauge
  readonly memory: Gauge
  readonly gpu: Gauge
}

export class NodeGauges {
  readonly #gauges = new Map<string, NodeGauge>()
  #latest: NodeGauge | undefined

  /** The node that was heard of last. */
  get latest(): NodeGauge | undefined {
    return this.#latest
  }

  all(): IterableIterator<NodeGauge> {
    return this.#gauges.values()
  }

  /** A GPU's reading is not its node's. */
  apply(update: ResourceUpdate): void {
    if (update.resource_scope !== 'per_node') return
    const gauge = this.#gaugeOf(update.backend, update.node_id ?? '')
    gauge.cpu.record(update.cpu_percent)
    gauge.memory.record(update.memory_percent)
    gauge.gpu.record(update.gpu_percent)
    this.#latest = gauge
  }

  #gaugeOf(backend: string, nodeId: string): NodeGauge {
    const key = JSON.stringify([backend, nodeId])
    let gauge = this.#gauges.get(key)
    if (gauge === undefined) {
      gauge = { backend, nodeId, cpu: new Gauge(), memory: new Gauge(), gpu: new Gauge() }
      this.#gauges.set(key, gauge)
    }
    return gauge
  }
}
