/**
 * The values of the task instruments without `task_id`: one series per backend, executable and task
 * type. The number of series is limited, regardless of the number of tasks.
 */

import {
  addValue,
  createDistribution,
  type Distribution,
  type Labels,
  overflowLabels,
} from '../../events/measurement.ts'
import type { StepScheduler, Steps } from '../../runtime/turn-budget.ts'
import { taskHistograms, taskInstruments } from './metrics.ts'
import type { TaskRow } from './task-row.ts'
import type { TaskTable } from './task-table.ts'

export interface TaskGroup {
  readonly labels: Labels
  /** One sum per instrument, in the order of `taskInstruments`. */
  readonly sums: number[]
  /** One distribution per histogram, in the order of `taskHistograms`. */
  readonly distributions: readonly Distribution[]
}

type Groups = Map<string, TaskGroup>

/**
 * The maximum number of groups. The tasks of all further groups are counted in a group `overflow`.
 */
const maxGroups = 1000
const tasksPerStep = 100

/**
 * Collects the groups. Adds each ended task only once, so that later collections have less to do.
 */
export class TaskGroups {
  readonly #sessionId: string
  readonly #tasks: TaskTable
  readonly #scheduler: StepScheduler
  readonly #endedGroups: Groups = new Map()
  #endedCount = 0
  #collecting: Promise<unknown> = Promise.resolve()

  constructor(sessionId: string, tasks: TaskTable, scheduler: StepScheduler) {
    this.#sessionId = sessionId
    this.#tasks = tasks
    this.#scheduler = scheduler
  }

  /** Collections run one at a time: each takes several turns and writes to the shared groups. */
  collect(): Promise<readonly TaskGroup[]> {
    const collected = this.#collecting.then(() => this.#scheduler.run(this.#collect()))
    this.#collecting = collected.catch(() => {})
    return collected
  }

  *#collect(): Steps<readonly TaskGroup[]> {
    // A consistent snapshot: tasks that end from now on count as open.
    const open = this.#tasks.openRecords()
    const endedCount = this.#tasks.endedCount
    while (this.#endedCount < endedCount) {
      const to = Math.min(this.#endedCount + tasksPerStep, endedCount)
      for (const record of this.#tasks.endedRecords(this.#endedCount, to)) {
        this.#add(this.#endedGroups, record)
      }
      this.#endedCount = to
      yield
    }
    const all: Groups = new Map(
      [...this.#endedGroups].map(([key, group]) => [key, copyGroup(group)]),
    )
    for (const [at, record] of open.entries()) {
      this.#add(all, record)
      if (at % tasksPerStep === 0) yield
    }
    return [...all.values()]
  }

  #add(groups: Groups, record: TaskRow): void {
    const { sums, distributions } = this.#groupOf(groups, record)
    taskInstruments.forEach(({ perTask }, at) => {
      sums[at] = (sums[at] ?? 0) + (perTask(record) ?? 0)
    })
    for (const [at, distribution] of distributions.entries()) {
      const seconds = taskHistograms[at]?.perTask(record) ?? null
      if (seconds !== null) addValue(distribution, seconds)
    }
  }

  #groupOf(groups: Groups, { backend, executable, taskType }: TaskRow): TaskGroup {
    const key = `${backend}\n${executable}\n${taskType}`
    const known = groups.get(key)
    if (known !== undefined) return known
    // Uses `>=`, because the size exceeds the limit once there is an overflow group.
    const isFull = groups.size >= maxGroups
    const group = isFull ? groups.get('') : undefined
    if (group !== undefined) return group
    const session = { session_id: this.#sessionId }
    const labels = isFull
      ? { ...session, ...overflowLabels }
      : { ...session, backend, executable, task_type: taskType }
    const created = {
      labels,
      sums: taskInstruments.map(() => 0),
      distributions: taskHistograms.map((one) => createDistribution(one, labels)),
    }
    groups.set(isFull ? '' : key, created)
    return created
  }
}

function copyGroup({ labels, sums, distributions }: TaskGroup): TaskGroup {
  return {
    labels,
    sums: [...sums],
    distributions: distributions.map((one) => ({ ...one, counts: [...one.counts] })),
  }
}
