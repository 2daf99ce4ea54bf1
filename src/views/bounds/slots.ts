/** Types for slots: nodes, the requests of tasks, and core-seconds by class. */

/** The resources that tasks hold while they run. */
export const heldResources = ['cores', 'gpus', 'memory', 'workers', 'processes'] as const
export type HeldResource = (typeof heldResources)[number]
/**
 * The limit of a node that applies to a task: `workers` for functions, or `processes` for programs
 * (`maxProcesses`).
 */
export type SlotLimit = 'workers' | 'processes'
export type SlotResource = HeldResource | 'labels'
export type Amounts = Readonly<Record<HeldResource, number>>

/** The resources that a task requests. Equal requests are stored once. */
export interface SlotRequest {
  readonly backend: string
  /** Whether the task is a prompt. No node reports how many prompts a model runs at a time. */
  readonly isPrompt: boolean
  /** `null` for closures and prompts, which need neither a worker nor a process. */
  readonly limit: SlotLimit | null
  /** The number of cores per rank. `gpus` and `memoryMb` are per rank too. */
  readonly cores: number
  readonly gpus: number
  readonly memoryMb: number
  readonly ranks: number
  readonly labels: Readonly<Record<string, string>>
}

export interface NodeSize {
  cores: number
  gpus: number
  /** The memory in MB; 0 if unknown. */
  memoryMb: number
  /** The maximum number of concurrent functions; 0 if unknown. */
  workers: number
  /** The maximum number of concurrent programs; 0 if unknown. */
  processes: number
  labels: Readonly<Record<string, string>>
}

export const sizeOf = (size: NodeSize): NodeSize => {
  const { cores, gpus, memoryMb, workers, processes, labels } = size
  return { cores, gpus, memoryMb, workers, processes, labels }
}

/** A node with its size at the end of the record. */
export interface SlotNode extends NodeSize {
  readonly backend: string
  readonly nodeId: string
  /** Earlier sizes, oldest first. In sessions that the node did not join, it has 0 cores. */
  readonly earlier: (NodeSize & { readonly until: number })[]
  /** The number of the last session that the node joined. */
  session: number
  /** The times at which the node joined, left, joined again, and so on. */
  readonly changes: number[]
}

/** Whether the node has joined and has not left, according to the events so far. */
export const isPresent = ({ changes }: SlotNode): boolean => changes.length % 2 === 1

/**
 * The reasons for idle slots. If the reason is a resource, tasks were ready, but the free slots had
 * too little of that resource. If a ready task fits a free slot, the reason is at first
 * `taskOverhead`, for as long as most tasks take to start, and then `heldBack`.
 */
export const idleReasons = [
  ...heldResources,
  'labels',
  'noTaskReady',
  'nameLimit',
  'startingWorkers',
  'taskOverhead',
  'heldBack',
  'nodeAway',
] as const
export type IdleReason = (typeof idleReasons)[number]
export type SlotClass = 'ran' | IdleReason

/** Core-seconds by class. Their sum covers all cores that existed at each moment. */
export type SlotSeconds = Record<SlotClass, number>

export const createSlotSeconds = (): SlotSeconds =>
  Object.fromEntries(['ran', ...idleReasons].map((key) => [key, 0])) as SlotSeconds

/** Time intervals. Each interval belongs to one request. */
export interface Intervals {
  readonly from: Float64Array
  /** The end of each interval; `Infinity` if it has none. */
  readonly to: Float64Array
  readonly request: Uint16Array
}

/** What a task waited for: a slot, the limit of its name, or a worker that was starting. */
export const waitKinds = { slot: 0, limit: 1, worker: 2 } as const

/** The attempts and waits of one backend, whose tasks cannot use other backends' slots. */
export interface SlotActivity {
  readonly nodes: readonly SlotNode[]
  readonly requests: readonly SlotRequest[]
  readonly uses: Intervals & { /** Indexes into the nodes. */ readonly node: Uint32Array }
  readonly waits: Intervals & { /** Values of `waitKinds`. */ readonly kind: Uint8Array }
  /** The time at which the last task became ready; `-Infinity` if no task became ready. */
  readonly lastReady: number
  readonly from: number
  readonly to: number
}

/** A part of a run in which the total size of all nodes stayed the same. */
export interface CapacityPeriod {
  readonly seconds: number
  /** The totals of all nodes; 0 if unknown or unlimited. */
  readonly capacity: Amounts
}

/** How the tasks of a backend used the resources of its nodes. */
export interface SlotUse {
  /** The sizes of the nodes in order of time. Most runs have only one. */
  readonly sizes: readonly CapacityPeriod[]
  /** The use of each resource, in units times seconds. */
  readonly held: Amounts
  /** Core-seconds of functions that ran in the program itself. */
  readonly closureSeconds: number
  /** Seconds in which a task was ready and all slots that it fits into were in use. */
  readonly fullSeconds: number
  /**
   * The part of `fullSeconds` in which at least one such task was not behind a task that fits on no
   * node.
   */
  readonly noneFreeSeconds: number
  /**
   * For each reason, the number of seconds in which at least one slot was idle for that reason.
   * Missing resources are counted only while no task was held back.
   */
  readonly idleSeconds: Readonly<SlotSeconds>
  /** Slot-seconds without a ready task, up to the time when the last task became ready. */
  readonly notYetReady: number
}

/** The request of a task whose resources are unknown. */
export const oneCore = { cores: 1, gpus: 0, memoryMb: 0, ranks: 1, limit: null } as const

type RequestAmounts = Pick<SlotRequest, keyof typeof oneCore>

/** The resources that one rank of a request needs. */
export const toRankAmounts = ({ cores, gpus, memoryMb, limit }: RequestAmounts): Amounts => ({
  cores,
  gpus,
  memory: memoryMb,
  workers: limit === 'workers' ? 1 : 0,
  processes: limit === 'processes' ? 1 : 0,
})

/** The resources that a task holds. All its ranks share one worker or process. */
export function toTaskAmounts(request: RequestAmounts): Amounts {
  const { cores, gpus, memory, ...limits } = toRankAmounts(request)
  const { ranks } = request
  return { cores: cores * ranks, gpus: gpus * ranks, memory: memory * ranks, ...limits }
}

/** The resources of a node. Unknown amounts are replaced with `unlimited`. */
export const toNodeAmounts = (size: NodeSize, unlimited: number): Amounts => ({
  cores: size.cores,
  gpus: size.gpus,
  memory: size.memoryMb || unlimited,
  workers: size.workers || unlimited,
  processes: size.processes || unlimited,
})

export const noSize: Readonly<NodeSize> = {
  cores: 0,
  gpus: 0,
  memoryMb: 0,
  workers: 0,
  processes: 0,
  labels: {},
}

/** Returns the smallest and the largest total size of all nodes. */
export function sizeRange(
  sizes: readonly CapacityPeriod[],
  resource: HeldResource,
): { readonly min: number; readonly max: number } {
  let [min, max] = [Infinity, 0]
  for (const { capacity } of sizes) {
    min = Math.min(min, capacity[resource])
    max = Math.max(max, capacity[resource])
  }
  return { min, max }
}
