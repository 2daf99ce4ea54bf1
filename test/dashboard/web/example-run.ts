/** A run that looks like one of a user: the pictures of the guide show it. */

import type { ViewEvent } from '../../../src/views/panel.ts'
import { createRandom } from '../../long-run.ts'
import { eventsOf, type SyntheticTask } from '../../views/synthetic-run.ts'
import { viewEvent } from '../../views/view-event.ts'

const workers = 8
const nodes = ['node-1', 'node-2']
const names = ['simulate', 'python3 mesh.py', 'score', 'summarize', 'collect'] as const
const sessionStart = 1_790_000_000

/** Several hundred tasks of five names on two nodes; some fail, and most depend on others. */
export function exampleEvents(count = 420): ViewEvent[] {
  const random = createRandom(37)
  const free = Array.from({ length: workers }, () => 0.5)
  const tasks: SyntheticTask[] = []
  for (let at = 0; at < count; at++) {
    const begin = free.reduce((min, one) => Math.min(min, one), Infinity)
    const worker = free.indexOf(begin)
    const name = names[Math.floor(random() ** 1.6 * names.length)] ?? 'simulate'
    const start = begin + 0.05 + random() * 0.2
    const seconds = (0.4 + random() ** 3 * 4) * (name === 'simulate' ? 2 : 1)
    free[worker] = start + seconds
    const isAfter = at > 20 && name !== 'simulate'
    const dependency = isAfter ? { dependencies: [`task-${at - 17}`], ready: start - 0.5 } : {}
    tasks.push({
      uid: `task-${at}`,
      name,
      created: Math.max(0, start - 6),
      queued: start - 0.4,
      start,
      end: start + seconds,
      worker: `${nodeOf(worker)}/local/w${worker}`,
      endType: random() < 0.03 ? 'TaskFailed' : 'TaskCompleted',
      ...dependency,
    })
  }
  const end = free.reduce((max, one) => Math.max(max, one), 0) + 0.5
  const sized = nodes.map((nodeId) => ({ nodeId, cores: workers / 2, workers: workers / 2 }))
  const events = [...eventsOf({ nodes: sized, tasks, end }), ...readings(end)]
  return events
    .toSorted((a, b) => a.event_time - b.event_time)
    .map((event) => withFailure({ ...event, event_time: event.event_time + sessionStart }))
}

const nodeOf = (worker: number): string => nodes[worker < workers / 2 ? 0 : 1] ?? ''

const withFailure = (event: ViewEvent): ViewEvent => {
  if (event.event_type !== 'TaskFailed') return event
  const attributes = {
    ...event.attributes,
    error_message: 'the mesh has no volume: 3 of 4 points are in one plane',
    error_stack:
      'RangeError: the mesh has no volume: 3 of 4 points are in one plane\n' +
      '    at measure (file:///project/mesh.js:48:11)\n' +
      '    at simulate (file:///project/simulate.js:12:9)',
  }
  return { ...event, error_type: 'RangeError', attributes }
}

function readings(end: number): ViewEvent[] {
  return Array.from({ length: Math.floor(end / 2) }, (_, at) => at * 2).flatMap((time) =>
    nodes.flatMap((node_id, node) => {
      const common = { event_time: time, node_id, resource_scope: 'per_node', gpu_id: null }
      const cpu_percent = 72 + 22 * Math.sin(time / (9 + 5 * node)) + (time % 3)
      const memory_percent = 24 + 8 * node + time / 6
      const gpu_percent = 55 + 40 * Math.sin(time / 4)
      const whole = { ...common, cpu_percent, memory_percent, gpu_percent: null }
      const gpu = { ...common, resource_scope: 'per_gpu', gpu_id: 0, gpu_percent }
      return [
        viewEvent('ResourceUpdate', null, whole),
        ...(node === 0 ? [viewEvent('ResourceUpdate', null, gpu)] : []),
      ]
    }),
  )
}
