/** Explains why a ready task does not run: the tasks ahead, and the missing resources. */

import type { RunPass } from './all-panels.ts'
import type { SlotLimit, SlotRequest } from './bounds/slots.ts'
import { readStageTimes } from './bounds/task-times.ts'
import { valueAt } from './columns.ts'
import { hasEnded, hasStarted, stages } from './lifecycle.ts'
import { isInterrupted, stagesOf } from './panels/counts.ts'
import { outcomeNumbers } from './panels/lanes.ts'
import { FreeResources, type Shortage } from './shortage.ts'

/** Why a task waits. Tasks are given by their numbers in the pass. */
export interface WaitReason {
  readonly ahead: number
  /** The first tasks ahead of this one in the queue. */
  readonly firstAhead: readonly number[]
  readonly shortage: Shortage | null
  readonly heldUpBy: { readonly task: number; readonly shortage: Shortage } | null
}

const noReason: WaitReason = { ahead: 0, firstAhead: [], shortage: null, heldUpBy: null }

interface WaitingTask {
  readonly task: number
  readonly priority: number
  readonly isRetry: boolean
  readonly ready: number
  readonly request: number
}

const maxNamed = 3

/**
 * Explains a wait. Backends order tasks by priority, then put retries first, then order by arrival.
 */
export function explainWait(pass: RunPass, task: number): WaitReason {
  const waitingTask = toWaitingTask(pass, task)
  const { requests, requestOfTask } = pass.states.bounds
  if (waitingTask === null) return noReason
  const request = requests[waitingTask.request]
  const others = new TasksAhead(waitingTask)
  for (let other = 0; other < pass.counts.index.names.size; other++) {
    // Cheap checks come first, because most tasks have ended.
    if (other === task || hasEnded(stagesOf(pass.counts, other))) continue
    if (requests[valueAt(requestOfTask, other)]?.backend !== request?.backend) continue
    const waiting = toWaitingTask(pass, other)
    if (waiting !== null) others.add(waiting)
  }
  const limitOf = (number: number): SlotLimit | null => requests[number]?.limit ?? null
  const hasOwnRequest = (number: number): boolean => number === waitingTask.request
  if (request === undefined) return others.toReason(hasOwnRequest)
  const free = new FreeResources(pass, request.backend)
  const shortage = free.shortageOf(request)
  const shortageOf = (number: number): Shortage | null =>
    requests[number] === undefined ? null : free.shortageOf(requests[number])
  const toHeldUpBy = (first: WaitingTask | null): WaitReason['heldUpBy'] => {
    const lack = first === null ? null : shortageOf(first.request)
    return first === null || lack === null ? null : { task: first.task, shortage: lack }
  }
  if (!free.isOrdered) {
    const first = others.first(
      (number) => !isSingleCore(requests[number]) && shortageOf(number) !== null,
    )
    const kept = requests[first?.request ?? -1]
    const isKept = kept !== undefined && free.isKeptFrom(request, kept)
    const holder = isKept ? first : others.first(hasOwnRequest)
    const mayStartFirst = (other: SlotRequest | undefined): boolean =>
      // Single-core tasks are already assigned to nodes, and take free cores before other tasks.
      other === undefined || isSingleCore(other) || free.hasCommonNode(request, other)
    const isAhead = (number: number): boolean =>
      hasOwnRequest(number) ||
      number === holder?.request ||
      (!isSingleCore(request) && mayStartFirst(requests[number]))
    return others.toReason(isAhead, shortage, toHeldUpBy(holder))
  }
  // Functions and programs have separate queues. A queue whose slots are all in use is skipped.
  const isAhead = (number: number): boolean =>
    free.isFull(limitOf(waitingTask.request))
      ? limitOf(number) === limitOf(waitingTask.request)
      : !free.isFull(limitOf(number))
  return others.toReason(isAhead, shortage, toHeldUpBy(others.first(isAhead)))
}

/**
 * Whether a task requests only one core. Such a task is assigned to a node immediately, and no node
 * is kept free for it.
 */
const isSingleCore = (request: SlotRequest | undefined): boolean =>
  request === undefined ||
  (request.cores === 1 &&
    request.gpus === 0 &&
    request.memoryMb === 0 &&
    request.ranks === 1 &&
    Object.keys(request.labels).length === 0)

class TasksAhead {
  readonly #own: WaitingTask
  readonly #counts = new Map<number, number>()
  readonly #firstByRequest = new Map<number, WaitingTask[]>()

  constructor(own: WaitingTask) {
    this.#own = own
  }

  add(waiting: WaitingTask): void {
    if (!isBefore(waiting, this.#own)) return
    const { request } = waiting
    this.#counts.set(request, (this.#counts.get(request) ?? 0) + 1)
    const first = this.#firstByRequest.get(request) ?? []
    const at = first.findIndex((one) => isBefore(waiting, one))
    first.splice(at === -1 ? first.length : at, 0, waiting)
    first.length = Math.min(first.length, maxNamed)
    this.#firstByRequest.set(request, first)
  }

  first(isMeant: (request: number) => boolean): WaitingTask | null {
    return this.#firstOf(isMeant)[0] ?? null
  }

  toReason(
    isAhead: (request: number) => boolean,
    shortage: Shortage | null = null,
    heldUpBy: WaitReason['heldUpBy'] = null,
  ): WaitReason {
    const ahead = [...this.#counts]
      .filter(([request]) => isAhead(request))
      .reduce((sum, [, count]) => sum + count, 0)
    return { ahead, firstAhead: this.#firstOf(isAhead).map(({ task }) => task), shortage, heldUpBy }
  }

  #firstOf(isMeant: (request: number) => boolean): WaitingTask[] {
    return [...this.#firstByRequest]
      .flatMap(([request, tasks]) => (isMeant(request) ? tasks : []))
      .toSorted((a, b) => (isBefore(a, b) ? -1 : 1))
      .slice(0, maxNamed)
  }
}

/** Returns `null` for a task that does not wait for a slot. */
function toWaitingTask(pass: RunPass, task: number): WaitingTask | null {
  const { counts, states } = pass
  const { times, requestOfTask, priorityOfTask, lastTime } = states.bounds
  const passed = stagesOf(counts, task)
  const isPending = (passed & stages.submitted) !== 0 && !isInterrupted(counts, task)
  if (!isPending || hasEnded(passed)) return null
  const retryAt = hasStarted(passed) ? findRetryTime(pass, task) : null
  const isRetry = retryAt !== null && retryAt <= lastTime
  if (hasStarted(passed) && !isRetry) return null
  return {
    task,
    priority: valueAt(priorityOfTask, task),
    isRetry,
    ready: isRetry ? retryAt : (readStageTimes(times, task, passed).ready ?? Infinity),
    request: valueAt(requestOfTask, task),
  }
}

function isBefore(a: WaitingTask, b: WaitingTask): boolean {
  if (a.priority !== b.priority) return a.priority > b.priority
  if (a.isRetry !== b.isRetry) return a.isRetry
  return a.ready === b.ready ? a.task < b.task : a.ready < b.ready
}

/** Returns when a task with a failed attempt may be retried; `null` for other tasks. */
export function findRetryTime({ counts, states: { lanes } }: RunPass, task: number): number | null {
  const segment = valueAt(lanes.latestOfTask, task) - 1
  const isOver = hasEnded(stagesOf(counts, task)) || isInterrupted(counts, task)
  if (isOver || segment === -1) return null
  if (valueAt(lanes.outcome, segment) !== outcomeNumbers.retried) return null
  const end = valueAt(lanes.start, segment) + valueAt(lanes.seconds, segment)
  return end + valueAt(lanes.retryDelay, segment)
}
