/** Groups waiting jobs by what they require (their shape). */

import { byTurn, JobQueue, type WaitingJob } from '../../../backends/local/job-queue.ts'
import { isDefaultRequest, type ResourceRequest } from '../../../tasks/resources.ts'
import type { TaskSpec } from '../../../tasks/spec.ts'
import { toTaskKind } from '../../wire/agent-rules.ts'
import type { GroupShape, JobGroup } from './job-group.ts'
import type { Exclusion, Node, JobRequirements } from './placement-node.ts'

export interface PlacedJob extends WaitingJob {
  readonly spec: Pick<TaskSpec, 'kind' | 'priority' | 'resources'>
  /** A node to avoid if another is available, because an attempt failed there. */
  readonly avoidedNode: string | null
  /** Nodes that must not get the job. Does not change while the job waits. */
  readonly exclusion: Exclusion | null
  /**
   * The group of jobs that must begin together with this one. Only its first job waits in a queue.
   */
  readonly group?: JobGroup<PlacedJob> | null
}

export interface Shape<T extends PlacedJob> extends JobRequirements {
  readonly key: string
  readonly avoidedNode: string | null
  readonly group: GroupShape | null
  readonly queue: JobQueue<T>
  /** Nodes that have changed since no node had room; `null` if a node may have room. */
  changed: Set<Node> | null
  stuckPriority: number
}

/** The state of a shape that a decision may depend on. */
export type WaitingShape = Omit<Shape<PlacedJob>, 'queue'> & {
  readonly queue: Pick<JobQueue<PlacedJob>, 'length' | 'peek' | 'countAbove' | 'lowestPriority'>
}

export const firstPriority = ({ queue }: Pick<WaitingShape, 'queue'>): number =>
  queue.peek()?.spec.priority ?? -Infinity

export class Shapes<T extends PlacedJob> {
  readonly #byKey = new Map<string, Shape<T>>()
  readonly #horizons: readonly number[]

  constructor(horizons: readonly number[] = []) {
    this.#horizons = horizons
  }

  get all(): readonly Shape<T>[] {
    return [...this.#byKey.values()]
  }

  get lowestPriority(): number {
    let lowestPriority = Infinity
    for (const { queue } of this.#byKey.values()) {
      lowestPriority = Math.min(lowestPriority, queue.lowestPriority ?? Infinity)
    }
    return lowestPriority
  }

  get(key: string): Shape<T> | undefined {
    return this.#byKey.get(key)
  }

  delete({ key }: Shape<T>): void {
    this.#byKey.delete(key)
  }

  findOrCreate({ spec, avoidedNode, exclusion, group }: T): Shape<T> {
    const request = spec.resources
    const kind = toTaskKind(spec)
    const size = group?.jobs.length ?? 1
    const isDefault = size === 1 && isDefaultRequest(request)
    let key = isDefault ? '' : toShapeKey(request)
    if (kind === 'programs') key += '\0programs'
    // A job that must not run on some nodes has its own shape, so that it does not block others.
    if (avoidedNode !== null) key += `\0avoid ${avoidedNode}`
    if (exclusion !== null) key += `\0not ${exclusion.key}`
    if (size > 1) key += `\0together ${size} ${group?.jobsPerNode}`
    const node = group?.node ?? null
    if (node !== null) key += `\0on ${node}`
    const { seconds } = request
    if (seconds !== undefined && this.#horizons.length > 0) {
      key += `\0beyond ${this.#horizons.filter((one) => one < seconds).length}`
    }
    const known = this.#byKey.get(key)
    if (known !== undefined) return known
    const own = size === 1 ? null : { size, jobsPerNode: group?.jobsPerNode ?? null }
    const wanted = { request, kind, avoidedNode, exclusion, node, isDefault }
    const queue = new JobQueue<T>()
    const state = { changed: null, stuckPriority: -Infinity }
    const shape = { key, ...wanted, group: own, queue, ...state }
    this.#byKey.set(key, shape)
    return shape
  }

  /**
   * Returns the shape with the next job, and the next job of any other shape. Ignores the shapes in
   * `done`.
   */
  findNext(done: ReadonlySet<Shape<T>>): { shape: Shape<T>; nextOther: T | undefined } | null {
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

const toShapeKey = (request: ResourceRequest): string =>
  JSON.stringify([
    request.cores,
    request.gpus,
    request.memoryMb,
    Object.entries(request.labels ?? {}).toSorted(([a], [b]) => (a < b ? -1 : 1)),
    toLengthClass(request.seconds),
  ])

/** A logarithmic class, which separates short jobs from long ones. */
const toLengthClass = (seconds: number | undefined): number | null =>
  seconds === undefined ? null : Math.ceil(4 * Math.log2(seconds))

export const isBefore = (a: PlacedJob, b: PlacedJob): boolean => byTurn(a, b) < 0

/** Whether the job is placed together with the first job of its group. */
export const isGroupFollower = (job: PlacedJob): boolean =>
  job.group !== undefined && job.group !== null && job.group.jobs[0] !== job

export const getGroupJobs = <T extends PlacedJob>(job: T): readonly T[] =>
  (job.group?.jobs as readonly T[] | undefined) ?? [job]
