/** The interface between the HPC backend and the source of its nodes, such as a scheduler. */

import type { JsonObject } from '../foundation/json-value.ts'
import type { RemoteProcess } from './remote-process.ts'

/** A node of an allocation. */
export interface AllocatedNode {
  /** The `node_id` of tasks on this node. */
  readonly name: string
  readonly address: string
  /** The memory that the job may use on the node; `null` if the scheduler does not limit it. */
  readonly memoryMb: number | null
}

/** A command that runs once on each of several nodes. */
export interface NodeCommand {
  readonly command: readonly string[]
  /** Written to each process's standard input, which stays open until the process must end. */
  readonly input: string | Promise<string>
  readonly onOutput?: (text: string) => void
}

/** A command that runs once per rank of an MPI program. */
export interface RankCommand {
  /** The node of each rank. Ranks on the same node are adjacent. */
  readonly nodes: readonly string[]
  readonly command: readonly string[]
  readonly onOutput: (text: string) => void
}

/** Information about the end of an allocation. */
export interface AllocationState {
  /** When the allocation ends, in seconds since the epoch; `null` if it has no time limit. */
  readonly endsAt: number | null
  /** The scheduler's reason why the nodes can no longer be used; `null` while they can be used. */
  readonly lost: string | null
  /** Whether the allocation is ending for a reason that is not known yet. */
  readonly isEnding: boolean
}

/** A set of nodes that can be used for a limited time. */
export interface Allocation {
  readonly label: string
  readonly nodes: readonly AllocatedNode[]
  readonly limitSeconds: number | null
  /** Whether this process runs on one of the nodes and gets SIGTERM when the allocation ends. */
  readonly hasThisProcess: boolean
  /** Attributes of the event `SessionStarted` that describe the allocation. */
  readonly facts: JsonObject
  /**
   * Returns the state of the allocation. It may come from a cache, unless `isChanged` says that it
   * has probably changed.
   */
  state(options?: { readonly isChanged?: boolean }): Promise<AllocationState>
  /** Runs the command on each of the nodes, with the node's name as the last argument. */
  start(nodes: readonly AllocatedNode[], command: NodeCommand): readonly RemoteProcess[]
  startRanks(command: RankCommand): RemoteProcess
}
