/** Types for slots: nodes, the requests of tasks, and core-seconds by class. */

/** The resources that a task requests; equal requests are stored once. */
export interface SlotRequest {
  readonly backend: string
  /** Whether the task is a prompt: no node reports how many prompts a model runs at a time. */
  readonly isPrompt: boolean
  /** The node's limit that applies in addition to resources; `null` for closures and prompts. */
  readonly limit: SlotLimit | null
  /** `cores`, `gpus` and `memoryMb` are per rank. */
  readonly cores: number
  readonly gpus: number
  readonly memoryMb: number
  readonly ranks: number
  readonly labels: Readonly<Record<string, string>>
}

export interface NodeSize {
  cores: number
  gpus: number
  /** 0 if unknown. */
  memoryMb: number
  /** The maximum number of concurrent functions (`workers`) and programs; 0 if unknown. */
  workers: number
  processes: number
  labels: Readonly<Record<string, string>>
}

/** A node with its size at the end of the record. */
export interface SlotNode extends NodeSize {
  readonly backend: string
  readonly nodeId: string
  /** Earlier sizes, oldest first; 0 cores for sessions that the node did not join. */
  readonly earlier: (NodeSize & { readonly until: number })[]
  /** The number of the last session that the node joined. */
  session: number
  /** The times at which the node joined, left, joined again, and so on. */
  readonly changes: number[]
}

/** Whether the node has joined and not left, according to the events so far. */
export const isPresent = ({ changes }: SlotNode): boolean => changes.length % 2 === 1

/** Time intervals with a request each; the end may be Infinity. */
export interface Intervals {
  readonly from: Float64Array
  readonly to: Float64Array
  /** Indexes into the requests. */
  readonly request: Uint16Array
}

/** Functions run in workers, programs in processes. */
export type SlotLimit = 'workers' | 'processes'
/** The resources that tasks hold while they run. */
export type HeldResource = 'cores' | 'gpus' | 'memory' | SlotLimit
export type SlotResource = HeldResource | 'labels'

/** The reason why a slot is idle. */
export type IdleReason = keyof Omit<SlotSeconds, 'ran' | 'noSlotFitted'> | SlotResource

/** Core-seconds by class. Their sum covers all cores that existed at each moment. */
export interface SlotSeconds {
  ran: number
  /** No task was ready for a free slot. */
  noTaskReady: number
  /** Tasks were ready, but the free slots had too little of this resource. */
  readonly noSlotFitted: Record<SlotResource, number>
  /** A ready task fitted a free slot but waited for the limit of its name. */
  nameLimit: number
  /** A ready task fitted a free slot, but its worker was still starting. */
  startingWorkers: number
  /** A ready task fitted a free slot, for about as long as most tasks of the run take to start. */
  taskOverhead: number
  /** A ready task fitted a free slot for longer than that but did not start. */
  heldBack: number
  /** The node of the slot had not joined yet or had left. */
  nodeAway: number
}

/** The attempts and waits of one backend, whose tasks cannot use other backends' slots. */
export interface SlotRun {
  readonly nodes: readonly SlotNode[]
  readonly requests: readonly SlotRequest[]
  readonly uses: Intervals & { /** Indexes into the nodes. */ readonly node: Uint32Array }
  /** Times in which tasks were ready but did not run. */
  readonly waits: Intervals
  /** Indexes of the waits for the limit of a name. */
  readonly limitWaits: ReadonlySet<number>
  /** Indexes of the waits that ended with the first attempt of a worker. */
  readonly workerStarts: ReadonlySet<number>
  /** The time when the last task became ready; -Infinity if none did. */
  readonly lastReady: number
  readonly from: number
  readonly to: number
}

/** A part of a run in which the total size of all nodes did not change. */
export interface SizeSpan {
  readonly seconds: number
  /** Totals of all nodes; 0 if unknown or unlimited. */
  readonly capacity: Readonly<Record<HeldResource, number>>
}

/** The resources of a backend's nodes that its tasks held. */
export interface SlotUse {
  /** In order of time; most runs have only one. */
  readonly sizes: readonly SizeSpan[]
  /** By resource: units times seconds. */
  readonly held: Readonly<Record<HeldResource, number>>
  /** Core-seconds of functions that ran in the program itself. */
  readonly closureSeconds: number
  /** Seconds in which a task was ready and all slots that it fits were in use. */
  readonly fullSeconds: number
  /** The part of `fullSeconds` in which no blocked task ahead left cores free. */
  readonly noneFreeSeconds: number
  /**
   * For each reason, how long at least one slot was idle. Missing resources count only while no
   * task was held back.
   */
  readonly idleSeconds: Readonly<Record<IdleReason, number>>
  /** Slot-seconds without a ready task, before the last task became ready. */
  readonly notYetReady: number
}

export const createSlotSeconds = (): SlotSeconds => ({
  ran: 0,
  noTaskReady: 0,
  noSlotFitted: { cores: 0, gpus: 0, memory: 0, workers: 0, processes: 0, labels: 0 },
  nameLimit: 0,
  startingWorkers: 0,
  taskOverhead: 0,
  heldBack: 0,
  nodeAway: 0,
})

/** The request of a task whose resources are unknown. */
export const oneCore = { cores: 1, gpus: 0, memoryMb: 0, ranks: 1, limit: null } as const

export const noSize: Readonly<NodeSize> = {
  cores: 0,
  gpus: 0,
  memoryMb: 0,
  workers: 0,
  processes: 0,
  labels: {},
}

/** The smallest and the largest total size of all nodes. */
export function sizeRange(
  sizes: readonly SizeSpan[],
  resource: HeldResource,
): { readonly min: number; readonly max: number } {
  let [min, max] = [Infinity, 0]
  for (const { capacity } of sizes) {
    min = Math.min(min, capacity[resource])
    max = Math.max(max, capacity[resource])
  }
  return { min, max }
}
