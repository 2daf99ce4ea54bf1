/** The port between the HPC backend and whoever gave it nodes. */

import type { JsonObject } from '../foundation/json-value.ts'
import type { RemoteProcess } from './remote-process.ts'

/** A node of an allocation. */
export interface AllocatedNode {
  /** `node_id` of its tasks. */
  readonly name: string
  /** A host name or an address, by which the other nodes reach it. */
  readonly address: string
  /** What the job may use there; `null` if the scheduler does not count it. */
  readonly memoryMb: number | null
}

/** A command that runs once on each of some nodes. */
export interface NodeCommand {
  readonly command: readonly string[]
  /** Written to the standard input of each once it is known; that stays open until it is to end. */
  readonly input: string | Promise<string>
  /** What they write to their standard outputs. */
  readonly onOutput?: (text: string) => void
}

/** A command that runs once for each rank of an MPI program, as a rank of it. */
export interface RankCommand {
  /** The node of each rank; those of a node follow each other. */
  readonly nodes: readonly string[]
  readonly command: readonly string[]
  /** What it writes to its standard output. */
  readonly onOutput: (text: string) => void
}

/** What is known about the end of an allocation. */
export interface AllocationState {
  /** Seconds since the epoch; `null` without a limit. */
  readonly endsAt: number | null
  /** Why its nodes cannot be used any more, in the scheduler's words; `null` while they can. */
  readonly lost: string | null
  /** It ends, and the scheduler will soon say why. */
  readonly isEnding: boolean
}

/** Nodes for a time. */
export interface Allocation {
  /** For people, such as `Slurm job 35`. */
  readonly label: string
  readonly nodes: readonly AllocatedNode[]
  /** In seconds; `null` without a limit. */
  readonly limitSeconds: number | null
  /** Whether this process runs on its nodes: it then gets SIGTERM when the allocation ends. */
  readonly hasThisProcess: boolean
  /** For SessionStarted. */
  readonly facts: JsonObject
  /** May be asked often: answers from memory, unless the caller has seen a change. */
  state(options?: { readonly isChanged?: boolean }): Promise<AllocationState>
  /** Runs it on each of the nodes, with the node's name as its last argument. */
  start(nodes: readonly AllocatedNode[], command: NodeCommand): readonly RemoteProcess[]
  /** Each of them is told its number and how to reach the others. */
  startRanks(command: RankCommand): RemoteProcess
  /** Gives the nodes back. Fine for one that is lost. */
  end(): Promise<void>
}
