/**
 * The port between whoever needs server programs on other nodes, such as an inference backend, and
 * whoever has nodes, such as the HPC backend. Neither knows the other.
 */

/** Nodes on which servers can be started. */
export interface NodeServers {
  /**
   * Keeps the cores and GPUs of a service free for its servers until the reservation is closed: no
   * task gets them. Tasks that have them are not disturbed; servers wait for their ends. Throws a
   * `ValueError` for nodes that are not there and for what another service holds. Its `field` is
   * `hardware.node_offset`, `hardware.num_nodes`, `hardware.num_gpus` or `engine.cores`; the
   * message names the node and the other service.
   */
  reserveServers(request: ServerRequest): ServerReservation
}

/** What the servers of a service need. */
export interface ServerRequest {
  /** For people. */
  readonly service: string
  /** The place of its first node among all nodes, from 0. */
  readonly nodeOffset: number
  /** What all its servers on each of its nodes need together. */
  readonly nodes: readonly { readonly cores: number; readonly gpus: number }[]
}

/** Nodes that a service has a part of. */
export interface ServerReservation {
  /** Starts a program on one of them. Never throws: what goes wrong is told by the server. */
  start(order: ServerOrder): ServerProcess
  /**
   * Resolves with the reason when no server can run on any of its nodes again: they are lost, or
   * whoever has them was closed. Never after `close`.
   */
  readonly over: Promise<string>
  /** Ends what runs there. Idempotent, same promise, complete when it resolves. */
  close(): Promise<void>
}

/** Where a server listens: an address of its node that this process reaches, and a free port. */
export interface ServerAddress {
  readonly host: string
  readonly port: number
}

/** One server. */
export interface ServerOrder {
  /** Its node: the place in `nodes` of the request. */
  readonly node: number
  readonly cores: number
  /** It sees that many, by `CUDA_VISIBLE_DEVICES`. */
  readonly gpus: number
  /** Program and arguments. Called once, when its address is known. */
  readonly toCommand: (address: ServerAddress) => readonly string[]
  /** Added to what servers inherit. */
  readonly env: Readonly<Record<string, string>>
  /** Called with why it has not been started yet. */
  readonly onWait: (text: string) => void
}

/** A server program that was started, or waits to be. */
export interface ServerProcess {
  /** Resolves when the program runs; rejects if it cannot be started. */
  readonly launched: Promise<ServerAddress>
  /** Resolves with the reason when the program has ended and nothing of it is left. */
  readonly ended: Promise<string>
  /** The end of its output, without secrets; of one on another node it is known when it ended. */
  readonly output: string
  /** From now on it does not keep this process alive, if it did. */
  unref(): void
  /** Ends it. Resolves when nothing of it is left. */
  stop(): Promise<void>
}
