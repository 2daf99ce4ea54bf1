/** Groups waiting jobs by their requests: if one job of a shape fits, all do. */

import { byTurn, JobQueue, type WaitingJob } from '../../../backends/local/job-queue.ts'
import { isDefaultRequest, type ResourceRequest } from '../../../tasks/resources.ts'
import type { TaskSpec } from '../../../tasks/spec.ts'
import { kindOf } from '../../wire/messages.ts'
import type { GroupShape, JobGroup } from './job-group.ts'
import type { Exclusion, Node, Wanted } from './placement-node.ts'

export interface PlacedJob extends WaitingJob {
  readonly spec: Pick<TaskSpec, 'kind' | 'priority' | 'resources'>
  /** A node to avoid if another is available, because an attempt failed there. */
  readonly avoid: string | null
  /** Nodes that must not get the job. Does not change while the job waits. */
  readonly excluded: Exclusion | null
  /** The group with which the job begins. Only its first job waits in a queue. */
  readonly group?: JobGroup<PlacedJob> | null
}

/** Jobs with equal requests. */
export interface Shape<T extends PlacedJob> extends Wanted {
  readonly key: string
  readonly avoid: string | null
  /** `null` for single jobs. */
  readonly group: GroupShape | null
  readonly queue: JobQueue<T>
  /** Nodes that have changed since no node had room; `null` while a node may have room. */
  changed: Set<Node> | null
  /** The priority of the first job when no node had room for it. */
  stuckPriority: number
}

type Peekable = Pick<JobQueue<PlacedJob>, 'peek'>

/** The priority of the first job in the queue. */
export const priorityOf = ({ queue }: { readonly queue: Peekable }): number =>
  queue.peek()?.spec.priority ?? -Infinity

/** The shapes of waiting jobs. */
export class Shapes<T extends PlacedJob> {
  readonly #byKey = new Map<string, Shape<T>>()
  readonly #horizons: readonly number[]

  /** Jobs that run longer than one of the horizons are queued separately from shorter ones. */
  constructor(horizons: readonly number[] = []) {
    this.#horizons = horizons
  }

  get all(): readonly Shape<T>[] {
    return [...this.#byKey.values()]
  }

  /** The lowest priority of all waiting jobs. */
  get lowestPriority(): number {
    let lowest = Infinity
    for (const { queue } of this.#byKey.values()) {
      lowest = Math.min(lowest, queue.lowestPriority ?? Infinity)
    }
    return lowest
  }

  get(key: string): Shape<T> | undefined {
    return this.#byKey.get(key)
  }

  delete({ key }: Shape<T>): void {
    this.#byKey.delete(key)
  }

  of({ spec, avoid, excluded, group }: T): Shape<T> {
    const request = spec.resources
    const kind = kindOf(spec)
    const size = group?.jobs.length ?? 1
    const isDefault = size === 1 && isDefaultRequest(request)
    let key = isDefault ? '' : shapeKey(request)
    if (kind === 'programs') key += '\0programs'
    // A job that must not run on some nodes has its own shape, so that it does not block others.
    if (avoid !== null) key += `\0avoid ${avoid}`
    if (excluded !== null) key += `\0not ${excluded.key}`
    if (size > 1) key += `\0together ${size} ${group?.perNode}`
    const node = group?.node ?? null
    if (node !== null) key += `\0on ${node}`
    const { seconds } = request
    if (seconds !== undefined && this.#horizons.length > 0) {
      key += `\0beyond ${this.#horizons.filter((one) => one < seconds).length}`
    }
    const known = this.#byKey.get(key)
    if (known !== undefined) return known
    const own = size === 1 ? null : { size, perNode: group?.perNode ?? null }
    const wanted = { request, kind, avoid, excluded, node, isDefault }
    const queue = new JobQueue<T>()
    const state = { changed: null, stuckPriority: -Infinity }
    const shape = { key, ...wanted, group: own, queue, ...state }
    this.#byKey.set(key, shape)
    return shape
  }

  /** The shape with the first job of all, and the next job among the other shapes. */
  first(done: ReadonlySet<Shape<T>>): { shape: Shape<T>; nextOther: T | undefined } | null {
    let first: Shape<T> | null = null
    let head: T | undefined
    let nextOther: T | undefined
    for (const shape of this.#byKey.values()) {
      if (done.has(shape)) continue
      const candidate = shape.queue.peek()
      if (candidate === undefined) continue
      if (head === undefined || isBefore(candidate, head)) {
        nextOther = head
        first = shape
        head = candidate
      } else if (nextOther === undefined || isBefore(candidate, nextOther)) nextOther = candidate
    }
    return first === null ? null : { shape: first, nextOther }
  }
}

const shapeKey = (request: ResourceRequest): string =>
  JSON.stringify([
    request.cores,
    request.gpus,
    request.memoryMb,
    Object.entries(request.labels ?? {}).toSorted(([a], [b]) => (a < b ? -1 : 1)),
    lengthClass(request.seconds),
  ])

/** Separates short jobs from long ones. Logarithmic, so that there are few classes. */
const lengthClass = (seconds: number | undefined): number | null =>
  seconds === undefined ? null : Math.ceil(4 * Math.log2(seconds))

export const isBefore = (a: PlacedJob, b: PlacedJob): boolean => byTurn(a, b) < 0

/** Whether the job is placed with the first job of its group. */
export const isGroupFollower = (job: PlacedJob): boolean =>
  job.group !== undefined && job.group !== null && job.group.jobs[0] !== job

/** The job, or all jobs of its group. */
export const allOf = <T extends PlacedJob>(job: T): readonly T[] =>
  (job.group?.jobs as readonly T[] | undefined) ?? [job]
