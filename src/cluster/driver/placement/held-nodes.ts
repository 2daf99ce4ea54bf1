/**
 * The resources that services, such as model servers, hold on nodes from start to close. Jobs of
 * all sessions cannot use them, even while no process of the service runs.
 */

import { isDefaultRequest, type ResourceRequest } from '../../../tasks/resources.ts'
import { describeAmount } from '../../../tasks/resource-fit.ts'

export interface HeldAmounts {
  readonly service: string
  readonly cores: number
  readonly gpus: number
}

/** The jobs of one session. */
interface SessionJobs {
  /** Called when the amount that is held on this node has changed. */
  changed(node: string): void
  /** Jobs that were sent to the node and have not ended. */
  jobsAt(node: string): readonly { readonly spec: { readonly resources: ResourceRequest } }[]
}

/** The held resources, as one session sees them. */
export interface HeldView {
  /** Returns the part of a node that is available to the session's jobs. */
  without<T extends Amounts>(node: string, whole: T): T
  /** Called once, before any node is used. */
  attach(session: SessionJobs): void
  close(): void
}

type Amounts = Pick<ResourceRequest, 'cores' | 'gpus'>

/** For sessions that may use all resources, such as the session of the services. */
export const noneHeld: HeldView = {
  without: (_, whole) => whole,
  attach() {},
  close() {},
}

export class HeldNodes {
  readonly #held = new Map<string, readonly HeldAmounts[]>()
  readonly #sessions = new Set<SessionJobs>()

  /** Returns how much each service holds of a node. */
  of(node: string): readonly HeldAmounts[] {
    return this.#held.get(node) ?? []
  }

  /** Reserves the amounts until the returned function is called. New jobs cannot use them. */
  hold(node: string, amounts: HeldAmounts): () => void {
    this.#change(node, [...this.of(node), amounts])
    return () => {
      const left = this.of(node).filter((one) => one !== amounts)
      if (left.length < this.of(node).length) this.#change(node, left)
    }
  }

  /**
   * Whether the jobs on a node leave room for everything that is held there. Jobs of one core are
   * not counted, because they share cores with all other waiting work.
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

  /** Describes each held amount, such as `service "chat" holds 2 GPUs and 1 core of n1`. */
  describe(): string[] {
    return [...this.#held].flatMap(([node, held]) => held.map((one) => describeHeld(node, one)))
  }

  /** Creates the view of a new session. */
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
  const parts = [
    ...(gpus > 0 ? [describeAmount('gpus', gpus)] : []),
    describeAmount('cores', cores),
  ]
  return `service "${service}" holds ${parts.join(' and ')} of ${node}`
}

function sumOf(amounts: readonly Amounts[]): Amounts {
  let [cores, gpus] = [0, 0]
  for (const one of amounts) {
    cores += one.cores
    gpus += one.gpus
  }
  return { cores, gpus }
}
