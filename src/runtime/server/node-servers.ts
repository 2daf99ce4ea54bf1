/**
 * The port between backends that need server programs on other nodes, such as an inference backend,
 * and backends that have nodes, such as the HPC backend.
 */

/** Nodes on which servers can be started. */
export interface NodeServers {
  /**
   * Reserves cores and GPUs for the servers of a service until the reservation is closed: tasks do
   * not get them. Running tasks are not interrupted; servers wait for their ends. Throws a
   * `ValueError` for nodes that do not exist and for resources that another service holds. Its
   * `field` is `hardware.node_offset`, `hardware.num_nodes`, `hardware.num_gpus` or `engine.cores`;
   * the message names the node and the other service.
   */
  reserveServers(request: ServerRequest): ServerReservation
}

/** The nodes that the servers of a service need. */
export interface ServerRequest {
  /** The name of the service in messages. */
  readonly service: string
  /** The index of its first node among all nodes, from 0. */
  readonly nodeOffset: number
  /** For each of its nodes: what all its servers there need together. */
  readonly nodes: readonly { readonly cores: number; readonly gpus: number }[]
}

/** The parts of nodes that are reserved for a service. */
export interface ServerReservation {
  /** Starts a program on one of its nodes. Never throws: the returned server reports failures. */
  start(order: ServerOrder): ServerProcess
  /**
   * Resolves with the reason when no server can run on any of its nodes any more: they are lost, or
   * the backend that has them was closed. Does not resolve after `close`.
   */
  readonly over: Promise<string>
  /**
   * Ends its servers, which have ended when it resolves. Idempotent: returns the same promise each
   * time.
   */
  close(): Promise<void>
}

/** Where a server listens: an address of its node that this process can reach, and a free port. */
export interface ServerAddress {
  readonly host: string
  readonly port: number
}

/** One server to start. */
export interface ServerOrder {
  /** The index of its node in the request's `nodes`. */
  readonly node: number
  readonly cores: number
  /** The number of GPUs that it sees, through `CUDA_VISIBLE_DEVICES`. */
  readonly gpus: number
  /** Returns the program and its arguments. Called once, when the address is known. */
  readonly toCommand: (address: ServerAddress) => readonly string[]
  /** Added to the variables that servers inherit. */
  readonly env: Readonly<Record<string, string>>
  /** Called with the reason why it has not been started yet. */
  readonly onWait: (text: string) => void
}

/** A server program that was started, or waits to be. */
export interface ServerProcess {
  /** The name of its node; absent for a server on this machine. */
  readonly nodeId?: string
  /** Resolves when the program runs; rejects if it cannot be started. */
  readonly launched: Promise<ServerAddress>
  /** Resolves with the reason when the program and all its child processes have ended. */
  readonly ended: Promise<string>
  /** The end of its output, with secrets masked; on another node it is known only after the end. */
  readonly output: string
  /** From now on it does not keep this process alive, if it did. */
  unref(): void
  /** Ends it. Resolves when the program and all its child processes have ended. */
  stop(): Promise<void>
}
