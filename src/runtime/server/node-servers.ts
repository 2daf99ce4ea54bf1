/** How a backend starts servers on nodes of another backend. */

/** Nodes on which servers can be started. */
export interface NodeServers {
  /**
   * Reserves cores and GPUs for the servers of a service until the reservation is closed. Running
   * tasks are not interrupted; servers wait for them. Throws a `ValueError` for unknown nodes and
   * for resources that another service holds. Its `field` is `hardware.node_offset`,
   * `hardware.num_nodes`, `hardware.num_gpus` or `engine.cores`.
   */
  reserveServers(request: ServerRequest): ServerReservation
}

/** The nodes that the servers of a service need. */
export interface ServerRequest {
  /** The name of the service in messages. */
  readonly service: string
  /** The index of the service's first node among all nodes, from 0. */
  readonly nodeOffset: number
  /** For each node: the resources that all servers of the service need there in total. */
  readonly nodes: readonly { readonly cores: number; readonly gpus: number }[]
}

/** The parts of nodes that are reserved for a service. */
export interface ServerReservation {
  /** Starts a program on a reserved node. Never throws: the returned server reports failures. */
  start(order: ServerOrder): ServerProcess
  /**
   * Resolves with a reason when no reserved node can run servers any more: the nodes are lost, or
   * their backend was closed. Does not resolve after `close`.
   */
  readonly over: Promise<string>
  /**
   * Ends the servers, and resolves when all have ended. Idempotent: returns the same promise each
   * time.
   */
  close(): Promise<void>
}

/** Where a server listens: an address of its node that this process can reach, and a free port. */
export interface ServerAddress {
  readonly host: string
  readonly port: number
}

/** Describes a server to start. */
export interface ServerOrder {
  /** The index of the server's node in the request's `nodes`. */
  readonly node: number
  readonly cores: number
  /** The number of GPUs that the server sees, through `CUDA_VISIBLE_DEVICES`. */
  readonly gpus: number
  /** Returns the program and its arguments. Called once, when the address is known. */
  readonly toCommand: (address: ServerAddress) => readonly string[]
  /** Added to the variables that servers inherit. */
  readonly env: Readonly<Record<string, string>>
  /** Called with the reason why the server has not been started yet. */
  readonly onWait: (text: string) => void
}

/** A server program that was started or is waiting to start. */
export interface ServerProcess {
  /** The name of the server's node; absent for a server on this machine. */
  readonly nodeId?: string
  /** Resolves when the program runs; rejects if it cannot be started. */
  readonly launched: Promise<ServerAddress>
  /** Resolves with the reason when the program and all its child processes have ended. */
  readonly ended: Promise<string>
  /**
   * The last part of the output, with secrets masked. On another node, known only after the exit.
   */
  readonly output: string
  /** Stops the server from keeping this process alive. */
  unref(): void
  /** Ends the server. Resolves when the program and all its child processes have ended. */
  stop(): Promise<void>
}
