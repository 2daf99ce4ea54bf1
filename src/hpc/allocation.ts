/** The port between the HPC backend and the source of its nodes, such as a scheduler. */

import type { JsonObject } from '../foundation/json-value.ts'
import type { RemoteProcess } from './remote-process.ts'

/** A node of an allocation. */
export interface AllocatedNode {
  /** The `node_id` of tasks on this node. */
  readonly name: string
  /** The host name or address by which other nodes reach it. */
  readonly address: string
  /** The memory that the job may use on the node; `null` if the scheduler does not limit it. */
  readonly memoryMb: number | null
}

/** A command that runs once on each of several nodes. */
export interface NodeCommand {
  readonly command: readonly string[]
  /**
   * Written to the standard input of each process when the promise resolves. The input stays open
   * until the process is to end.
   */
  readonly input: string | Promise<string>
  /** Called with the standard output of all processes. */
  readonly onOutput?: (text: string) => void
}

/** A command that runs once per rank of an MPI program. */
export interface RankCommand {
  /** The node of each rank; ranks of the same node are adjacent. */
  readonly nodes: readonly string[]
  readonly command: readonly string[]
  /** Called with the standard output of all ranks. */
  readonly onOutput: (text: string) => void
}

/** What is known about the end of an allocation. */
export interface AllocationState {
  /** When the allocation ends, in seconds since the epoch; `null` without a limit. */
  readonly endsAt: number | null
  /** Why its nodes cannot be used any more, in the scheduler's words; `null` while they can. */
  readonly lost: string | null
  /** The allocation is ending, and the scheduler will report the reason soon. */
  readonly isEnding: boolean
}

/** A set of nodes that can be used for a limited time. */
export interface Allocation {
  /** A description for users, such as `Slurm job 35`. */
  readonly label: string
  readonly nodes: readonly AllocatedNode[]
  /** The time limit; `null` if there is none. */
  readonly limitSeconds: number | null
  /** Whether this process runs on its nodes and thus gets SIGTERM when the allocation ends. */
  readonly hasThisProcess: boolean
  /** Attributes for SessionStarted. */
  readonly facts: JsonObject
  /** Cheap to call often: answers from a cache unless `isChanged` is set. */
  state(options?: { readonly isChanged?: boolean }): Promise<AllocationState>
  /** Runs the command on each of the nodes, with the node's name as the last argument. */
  start(nodes: readonly AllocatedNode[], command: NodeCommand): readonly RemoteProcess[]
  /** Starts an MPI program. Each rank is told its number and how to reach the others. */
  startRanks(command: RankCommand): RemoteProcess
  /** Releases the nodes. Allowed for an allocation that is lost. */
  end(): Promise<void>
}
