/** The nodes of a recorded run whose agents may still hold its tasks. */

import type { EarlierRun } from '../../backends/backend.ts'
import type { EventLine } from '../../checkpoint/format.ts'

export class RecordedNodes {
  /** By backend and node: the latest start of the agent. */
  readonly #starts = new Map<string, Map<string, number>>()

  of(backend: string): EarlierRun['nodes'] {
    const starts = this.#starts.get(backend) ?? []
    return Array.from(starts, ([nodeId, start]) => ({ nodeId, start }))
  }

  /** Must be called for all events of the record in order, except those of tasks. */
  apply({ event_type: type, backend, node_id: nodeId, attributes }: EventLine): void {
    // A session that has ended has left nothing with its agents.
    if (type === 'SessionEnded') return this.#starts.clear()
    if (nodeId === null) return
    if (type === 'tutti.NodeJoined') this.#join(backend, nodeId, attributes['agent_start'])
    else if (type === 'tutti.NodeLost' || type === 'tutti.NodeDrained') {
      this.#starts.get(backend)?.delete(nodeId)
    }
  }

  #join(backend: string, nodeId: string, start: unknown): void {
    if (typeof start !== 'number') return
    const starts = this.#starts.get(backend)
    if (starts === undefined) this.#starts.set(backend, new Map([[nodeId, start]]))
    else starts.set(nodeId, start)
  }
}
