/** Two runs to be compared, and how much they have in common. Pure. */

import type { NameReport, RunOverview } from './run-overview.ts'

/** Smaller relative changes count as noise. */
export const noise = 0.05
/** Medians of fewer tasks may differ by chance. */
const minFinished = 4

export interface NamePair {
  readonly name: string
  readonly a: NameReport | undefined
  readonly b: NameReport | undefined
}

export class RunPair {
  readonly before: RunOverview
  readonly after: RunOverview
  readonly names: readonly NamePair[]
  /** Same tasks with the same results, same tasks, some common names, or nothing. */
  readonly common: 'work' | 'tasks' | 'names' | 'nothing'
  /** The relative increase in length of the second run. */
  readonly lengthChange: number

  constructor(before: RunOverview, after: RunOverview) {
    this.before = before
    this.after = after
    const [first, second] = [before, after].map(
      ({ names }) => new Map(names.map((name) => [name.name, name])),
    )
    const all = new Set([...(second?.keys() ?? []), ...(first?.keys() ?? [])])
    this.names = Array.from(all, (name) => ({ name, a: first?.get(name), b: second?.get(name) }))
    this.common = this.#compare()
    const [a, b] = [before.durationSeconds, after.durationSeconds]
    this.lengthChange = a > 0 ? b / a - 1 : 0
  }

  /** Whether the same tasks had the same results, but one run reused more of them. */
  get isReuseOnly(): boolean {
    const { before, after, common } = this
    const ends = ['completed', 'failed', 'canceled', 'open'] as const
    const isSameEnds = ends.every((end) => before.counts[end] === after.counts[end])
    return common === 'tasks' && before.reused !== after.reused && isSameEnds
  }

  /** Whether each name has the same share of the tasks in both runs. */
  get hasSameMix(): boolean {
    const share = (name: NameReport | undefined, { counts }: RunOverview): number =>
      (name?.total ?? 0) / Math.max(1, counts.tasks)
    return this.#known.every(
      ({ a, b }) => Math.abs(share(a, this.before) - share(b, this.after)) < noise,
    )
  }

  /** Excludes names that may be missing only because a run has too many to know all. */
  get #known(): NamePair[] {
    const [isFirst, isSecond] = [this.before, this.after].map(({ otherNames }) => otherNames === 0)
    return this.names.filter(
      ({ a, b }) => (a !== undefined || isFirst) && (b !== undefined || isSecond),
    )
  }

  #compare(): RunPair['common'] {
    const { before, after } = this
    const [a, b] = [before.counts, after.counts]
    const known = this.#known
    const isSame = (key: 'total' | 'completed' | 'reused'): boolean =>
      known.every(({ a: one, b: other }) => one?.[key] === other?.[key])
    if (a.tasks === b.tasks && isSame('total')) {
      const isSameEnd = a.completed === b.completed && isSame('completed')
      return isSameEnd && before.reused === after.reused && isSame('reused') ? 'work' : 'tasks'
    }
    const hasAllNames = before.otherNames + after.otherNames === 0
    const hasCommon = known.some((pair) => pair.a !== undefined && pair.b !== undefined)
    return hasAllNames && !hasCommon ? 'nothing' : 'names'
  }
}

/**
 * Whether the durations of a name are comparable: they belong to the same two or more tasks, or to
 * many and most of the tasks of each run. Failed tasks do not count, because they end early or
 * late.
 */
export function isComparable({ a, b }: NamePair): boolean {
  if (a === undefined || b === undefined) return false
  const isDone = ({ completed, reused, total }: NameReport): boolean =>
    completed === total && reused === 0
  if (a.total === b.total && isDone(a) && isDone(b)) return a.total > 1
  return [a, b].every(({ completed, reused, total }) => {
    const ran = completed - reused
    return ran >= minFinished && 2 * ran >= total - reused
  })
}

/** The rate of tasks that ran and completed, per second of the run. */
export function rateOf(data: RunOverview, name?: NameReport): number {
  const seconds = data.durationSeconds
  const done = (name ?? data.counts).completed - (name ?? data).reused
  return seconds > 0 ? done / seconds : 0
}
