/**
 * What services, such as model servers, hold on the nodes for as long as they are there. It is kept
 * from the jobs of all sessions, also while no process of the service runs.
 */

import { isDefaultRequest, type ResourceRequest } from '../../../tasks/resources.ts'

export interface HeldAmounts {
  /** Who holds it, for people. */
  readonly service: string
  readonly cores: number
  readonly gpus: number
}

/** The jobs of one session. */
interface SessionJobs {
  /** More or less is held on this node than before. */
  changed(node: string): void
  /** Those that were sent there and have not ended. */
  jobsAt(node: string): readonly { readonly spec: { readonly resources: ResourceRequest } }[]
}

/** What one session is told. */
export interface HeldView {
  /** What is left of a node for its jobs. */
  without<T extends Amounts>(node: string, whole: T): T
  /** Called once, before any node is used. */
  attach(session: SessionJobs): void
  /** The session is over. */
  close(): void
}

type Amounts = Pick<ResourceRequest, 'cores' | 'gpus'>

/** For a session from which nothing is kept, such as that of the services. */
export const noneHeld: HeldView = {
  without: (_, whole) => whole,
  attach() {},
  close() {},
}

export class HeldNodes {
  readonly #held = new Map<string, readonly HeldAmounts[]>()
  readonly #sessions = new Set<SessionJobs>()

  /** By whom a node is held. */
  of(node: string): readonly HeldAmounts[] {
    return this.#held.get(node) ?? []
  }

  /** Holds it until the returned function is called. New jobs do not get it from now on. */
  hold(node: string, amounts: HeldAmounts): () => void {
    this.#change(node, [...this.of(node), amounts])
    return () => {
      const left = this.of(node).filter((one) => one !== amounts)
      if (left.length < this.of(node).length) this.#change(node, left)
    }
  }

  /**
   * Whether the jobs that a node has leave room for all that is held there. Jobs of one core do not
   * count: they take turns with whatever else waits for one.
   */
  hasRoom(node: string, whole: Amounts): boolean {
    const jobs = [...this.#sessions].flatMap((session) => session.jobsAt(node))
    const requests = jobs.map(({ spec }) => spec.resources)
    const used = sumOf([...this.of(node), ...requests.filter((one) => !isDefaultRequest(one))])
    return used.cores <= whole.cores && used.gpus <= whole.gpus
  }

  without<T extends Amounts>(node: string, whole: T): T {
    const held = this.#held.get(node)
    if (held === undefined) return whole
    const { cores, gpus } = sumOf(held)
    return { ...whole, cores: whole.cores - cores, gpus: whole.gpus - gpus }
  }

  /** Such as `service "chat" holds 2 GPUs and 1 core of n1`. */
  describe(): string[] {
    return [...this.#held].flatMap(([node, held]) => held.map((one) => describeHeld(node, one)))
  }

  /** For a new session. */
  open(): HeldView {
    let session: SessionJobs | null = null
    return {
      without: (node, whole) => this.without(node, whole),
      attach: (given) => {
        session = given
        this.#sessions.add(given)
      },
      close: () => {
        if (session !== null) this.#sessions.delete(session)
      },
    }
  }

  #change(node: string, held: readonly HeldAmounts[]): void {
    if (held.length === 0) this.#held.delete(node)
    else this.#held.set(node, held)
    for (const session of this.#sessions) session.changed(node)
  }
}

function describeHeld(node: string, { service, cores, gpus }: HeldAmounts): string {
  const parts = [...(gpus > 0 ? [count(gpus, 'GPU')] : []), count(cores, 'core')]
  return `service "${service}" holds ${parts.join(' and ')} of ${node}`
}

const count = (number: number, unit: string): string =>
  `${number} ${unit}${number === 1 ? '' : 's'}`

function sumOf(amounts: readonly Amounts[]): Amounts {
  let [cores, gpus] = [0, 0]
  for (const one of amounts) {
    cores += one.cores
    gpus += one.gpus
  }
  return { cores, gpus }
}
