/**
 * The resources that services hold on nodes from start to close, even while no process of the
 * service is running.
 */

import { isDefaultRequest, type ResourceRequest } from '../../../tasks/resources.ts'
import { describeAmount } from '../../../tasks/resource-fit.ts'

export interface HeldAmounts {
  readonly service: string
  readonly cores: number
  readonly gpus: number
}

interface SessionView {
  changed(node: string): void
  jobsAt(node: string): readonly { readonly spec: { readonly resources: ResourceRequest } }[]
}

export interface HeldView {
  /** Returns the part of a node that is available to the session's jobs. */
  without<T extends Amounts>(node: string, whole: T): T
  attach(session: SessionView): void
  close(): void
}

type Amounts = Pick<ResourceRequest, 'cores' | 'gpus'>

/** The view of a session that may use all resources, such as the session of the services. */
export const noHeldNodes: HeldView = {
  without: (_, whole) => whole,
  attach() {},
  close() {},
}

export class HeldNodes {
  readonly #held = new Map<string, readonly HeldAmounts[]>()
  readonly #sessions = new Set<SessionView>()

  of(node: string): readonly HeldAmounts[] {
    return this.#held.get(node) ?? []
  }

  /** Holds amounts of a node until the returned function is called. New jobs cannot use them. */
  hold(node: string, amounts: HeldAmounts): () => void {
    this.#change(node, [...this.of(node), amounts])
    return () => {
      const remaining = this.of(node).filter((one) => one !== amounts)
      if (remaining.length < this.of(node).length) this.#change(node, remaining)
    }
  }

  /**
   * Whether the node has room for its jobs and all amounts held on it. Jobs with default resources
   * do not count, because many of them only wait.
   */
  hasRoom(node: string, whole: Amounts): boolean {
    const jobs = [...this.#sessions].flatMap((session) => session.jobsAt(node))
    const requests = jobs.map(({ spec }) => spec.resources)
    const used = sumAmounts([...this.of(node), ...requests.filter((one) => !isDefaultRequest(one))])
    return used.cores <= whole.cores && used.gpus <= whole.gpus
  }

  without<T extends Amounts>(node: string, whole: T): T {
    const held = this.#held.get(node)
    if (held === undefined) return whole
    const { cores, gpus } = sumAmounts(held)
    return { ...whole, cores: whole.cores - cores, gpus: whole.gpus - gpus }
  }

  /** Describes each held amount, such as `service "chat" holds 2 GPUs and 1 core of n1`. */
  describe(): string[] {
    return [...this.#held].flatMap(([node, held]) => held.map((one) => describeHeld(node, one)))
  }

  open(): HeldView {
    let session: SessionView | null = null
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

function sumAmounts(amounts: readonly Amounts[]): Amounts {
  let [cores, gpus] = [0, 0]
  for (const one of amounts) {
    cores += one.cores
    gpus += one.gpus
  }
  return { cores, gpus }
}
