/** Runs whose course is known, as their events. */

import { createRunPass, type RunPass } from '../../src/views/all-panels.ts'
import type { ViewEvent } from '../../src/views/panel.ts'
import { viewEvent } from './view-event.ts'

export interface SyntheticTask {
  readonly uid: string
  readonly name?: string
  readonly created?: number
  /** When its dependencies have ended; for tasks that have some. */
  readonly ready?: number
  /** When the limit of its name let it into its backend's queue. Default: immediately. */
  readonly queued?: number
  readonly start?: number
  readonly end?: number
  readonly worker?: string
  readonly dependencies?: readonly string[]
  /** The block that made it. */
  readonly block?: string
  readonly resources?: object
  /** Default `function`. */
  readonly taskType?: 'compute' | 'function' | 'ai'
  readonly priority?: number
  /** Default `local`. */
  readonly backend?: string
  readonly endType?: 'TaskCompleted' | 'TaskFailed' | 'TaskCanceled'
}

export interface SyntheticNode {
  readonly nodeId: string
  readonly cores: number
  readonly gpus?: number
  readonly memoryMb?: number
  readonly workers?: number
  readonly maxProcesses?: number
  readonly labels?: Readonly<Record<string, string>>
  /** Default `local`. */
  readonly backend?: string
  readonly from?: number
  readonly to?: number
}

/** From second 0 to `end`, on the nodes of one backend. */
export interface SyntheticRun {
  readonly nodes: readonly SyntheticNode[]
  readonly tasks: readonly SyntheticTask[]
  readonly end: number
  /** The limits of the session by name, as in the record. */
  readonly limits?: object
}

/** In the order of their times. */
export function eventsOf({ nodes, tasks, end, limits }: SyntheticRun): ViewEvent[] {
  const attributes = limits === undefined ? {} : { 'tutti.limits': limits }
  const events = [
    viewEvent('SessionStarted', null, { event_time: 0, attributes }),
    ...nodes.flatMap(nodeEvents),
    ...tasks.flatMap(taskEvents),
    viewEvent('SessionEnded', null, { event_time: end, duration_seconds: end }),
  ]
  return events.toSorted((a, b) => a.event_time - b.event_time)
}

export function passOver(events: Iterable<ViewEvent>): RunPass {
  const pass = createRunPass()
  for (const event of events) pass.take(event)
  return pass
}

function nodeEvents(told: SyntheticNode): ViewEvent[] {
  const { nodeId, cores, gpus = 0, memoryMb = 0, from = 0, to, backend = 'local' } = told
  const attributes = { workers: told.workers, max_processes: told.maxProcesses }
  const size = { cores, gpus, memory_mb: memoryMb, labels: told.labels ?? {} }
  const node = { backend, node_id: nodeId, ...size, attributes }
  const joined = viewEvent('tutti.NodeJoined', null, { event_time: from, ...node })
  const lost = { backend, event_time: to ?? 0, node_id: nodeId }
  return to === undefined ? [joined] : [joined, viewEvent('tutti.NodeLost', null, lost)]
}

function taskEvents(task: SyntheticTask): ViewEvent[] {
  const { uid, name = 'simulate', created = 0, ready, start, end, worker = 'n1/local/w1' } = task
  const { dependencies = [], resources, endType = 'TaskCompleted', backend = 'local' } = task
  const attributes = { executable: name, task_type: task.taskType ?? 'function' }
  const event = (type: string, time: number, more: object = {}): ViewEvent =>
    viewEvent(type, uid, { backend, event_time: time, attributes: { ...attributes, ...more } })
  const submitted = ready ?? created
  const node_id = worker.split('/')[0] ?? ''
  const events = [event('TaskCreated', created, { dependencies, 'tutti.block': task.block })]
  if (dependencies.length > 0 && ready === undefined) return events
  if (ready !== undefined) events.push(event('tutti.TaskResolved', ready))
  const asked = {
    ...(resources === undefined ? {} : { resources }),
    'tutti.priority': task.priority,
  }
  events.push(event('TaskSubmitted', submitted, asked))
  events.push(event('TaskQueued', task.queued ?? submitted))
  if (start !== undefined) {
    events.push({ ...event('TaskStarted', start, { worker_id: worker }), node_id })
  }
  if (end !== undefined) {
    events.push({ ...event(endType, end), duration_seconds: end - (start ?? end) })
  }
  return events
}
