/** What the slots of a run are: nodes, what tasks ask of them, and their seconds by class. */

/** What a task asks for; tasks that ask for the same share one. */
export interface SlotRequest {
  readonly backend: string
  /** Whether a model answers it: how many it takes at a time is told by no node. */
  readonly isPrompt: boolean
  /** Which limit of a node counts for it, beside its resources; `null` for a closure or prompt. */
  readonly limit: SlotLimit | null
  /** Of each rank. */
  readonly cores: number
  readonly gpus: number
  readonly memoryMb: number
  readonly ranks: number
  readonly labels: Readonly<Record<string, string>>
}

/** What a node has. */
export interface NodeSize {
  cores: number
  gpus: number
  /** 0 when it is not known. */
  memoryMb: number
  /** How many functions, and how many programs, run there at a time; 0 when it is not known. */
  workers: number
  processes: number
  labels: Readonly<Record<string, string>>
}

/** With the size that it has in the end. */
export interface SlotNode extends NodeSize {
  readonly backend: string
  readonly nodeId: string
  /** The sizes that it had before, in their order; 0 cores in sessions that it did not join. */
  readonly earlier: (NodeSize & { readonly until: number })[]
  /** The number of the session that it has joined last. */
  session: number
  /** When it joined, left, joined again, and so on. */
  readonly changes: number[]
}

/** Intervals with what they are about; an end may be Infinity. */
export interface Intervals {
  readonly from: Float64Array
  readonly to: Float64Array
  /** Indexes into the requests. */
  readonly request: Uint16Array
}

/** Functions run in workers, programs in processes. */
export type SlotLimit = 'workers' | 'processes'
/** What tasks hold while they run. */
export type HeldResource = 'cores' | 'gpus' | 'memory' | SlotLimit
export type SlotResource = HeldResource | 'labels'

/** Why a slot is idle. */
export type IdleReason = 'noTaskReady' | 'heldBack' | 'nodeAway' | SlotResource

/** Core-seconds by class; together they are those of all cores, as many as there were each time. */
export interface SlotSeconds {
  ran: number
  /** No task was ready for a free slot. */
  noTaskReady: number
  /** Tasks were ready, but the free slots had too little of this resource. */
  readonly noSlotFitted: Record<SlotResource, number>
  /** A ready task fitted a free slot and did not run there yet. */
  heldBack: number
  /** Of nodes that had not joined or had left. */
  nodeAway: number
}

/** All of one backend: a slot of another one is no slot for its tasks. */
export interface SlotRun {
  readonly nodes: readonly SlotNode[]
  readonly requests: readonly SlotRequest[]
  /** Attempts. */
  readonly uses: Intervals & { /** Indexes into the nodes. */ readonly node: Uint32Array }
  /** Tasks that could run and did not. */
  readonly waits: Intervals
  /** When the last task became ready; -Infinity for none. */
  readonly lastReady: number
  readonly from: number
  readonly to: number
}

/** A part of a run in which the sizes of all nodes together did not change. */
export interface SizeSpan {
  readonly seconds: number
  /** Of all nodes; 0 where it is not known, or without a limit. */
  readonly capacity: Readonly<Record<HeldResource, number>>
}

/** What the tasks of one backend held of its nodes. */
export interface SlotUse {
  /** In the order of their times; most runs have one. */
  readonly sizes: readonly SizeSpan[]
  /** Units times seconds. */
  readonly held: Readonly<Record<HeldResource, number>>
  /** In which a task was ready, and all slots that it fits were in use. */
  readonly fullSeconds: number
  /** Of those: in which it was not behind a task that lacks something while a core is free. */
  readonly noneFreeSeconds: number
  /**
   * By class: how long at least one slot was idle for that reason; of what slots lacked, only while
   * no task was held back.
   */
  readonly idleSeconds: Readonly<Record<IdleReason, number>>
  /** Slot seconds without a ready task, up to when the last task became ready. */
  readonly notYetReady: number
}

export const createSlotSeconds = (): SlotSeconds => ({
  ran: 0,
  noTaskReady: 0,
  noSlotFitted: { cores: 0, gpus: 0, memory: 0, workers: 0, processes: 0, labels: 0 },
  heldBack: 0,
  nodeAway: 0,
})

/** The request of a task of which nothing is known. */
export const oneCore = { cores: 1, gpus: 0, memoryMb: 0, ranks: 1, limit: null } as const

export const noSize: Readonly<NodeSize> = {
  cores: 0,
  gpus: 0,
  memoryMb: 0,
  workers: 0,
  processes: 0,
  labels: {},
}

/** The smallest and the largest size of all nodes together. */
export function sizeRange(
  sizes: readonly SizeSpan[],
  resource: HeldResource,
): { readonly least: number; readonly most: number } {
  let [least, most] = [Infinity, 0]
  for (const { capacity } of sizes) {
    least = Math.min(least, capacity[resource])
    most = Math.max(most, capacity[resource])
  }
  return { least, most }
}
