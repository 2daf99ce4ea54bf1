/** Events for property tests: any in any order, and lives of tasks as sessions emit them. */

import { createHash } from 'node:crypto'
import fc from 'fast-check'
import { type BaseEvent, type EventClass, stampEvent } from '../../src/events/event.ts'
import * as library from '../../src/events/library-events.ts'
import { ResourceUpdate } from '../../src/events/resource-update.ts'
import * as vocabulary from '../../src/events/vocabulary.ts'
import type { Clock } from '../../src/foundation/clock.ts'

const { TaskCreated, TaskSubmitted, TaskQueued, TaskStarted } = vocabulary
const { TaskCompleted, TaskFailed, TaskCanceled } = vocabulary

/** A future event of a task or node. */
export interface Draft {
  readonly of: EventClass
  readonly uid: string | null
  readonly fields: Readonly<Record<string, unknown>>
}

const asClass = (eventClass: unknown): EventClass => eventClass as EventClass

/** Halves add up exactly in any order. */
const seconds = fc.oneof(
  { weight: 5, arbitrary: fc.nat(200).map((halves) => halves / 2) },
  { weight: 1, arbitrary: fc.constantFrom(-1, Number.NaN, Infinity) },
)
const lifecycle = [TaskCreated, TaskSubmitted, TaskQueued, TaskStarted].map(asClass)
const ends = [TaskCompleted, TaskFailed, TaskCanceled].map(asClass)
const uids = ['a', 'b', 'c', 'd', 'e']
const uid = fc.constantFrom(...uids)
const node = fc.constantFrom('n1', 'n2')
const worker = fc.constantFrom('n1/local/w1', 'n1/local/w2', 'n2/local/w1')

/** A worker is on one node, and an executable of one type. */
const nodeOf = (workerId: string): string => workerId.split('/')[0] ?? ''

const attributesOf = fc
  .record({
    executable: fc.constantFrom('simulate', 'model', ''),
    error_type: fc.constantFrom('RangeError', 'TypeError'),
    error_message: fc.constantFrom('bad seed 17', 'bad seed 18', 'out of memory'),
    worker_id: worker,
    dependencies: fc.constantFrom([], ['a'], ['b', 'a'], ['z']),
    resources: fc.constantFrom(null, { cores: 2, gpus: 1, memory_mb: 0, ranks: 1 }),
  })
  .map((attributes) => ({
    ...attributes,
    task_type: attributes.executable === 'model' ? 'ai' : 'function',
  }))

const fieldsOf = fc
  .record({
    duration_seconds: seconds,
    error_type: fc.constantFrom('RangeError', 'unknown'),
    attributes: attributesOf,
  })
  .map((fields) => ({ ...fields, node_id: nodeOf(fields.attributes.worker_id) }))

/** Any lifecycle event of any task, in any order: repeated, late, without a start. */
const anyTaskEvent: fc.Arbitrary<Draft> = fc.record({
  of: fc.constantFrom(...lifecycle, ...ends),
  uid,
  fields: fieldsOf,
})

const attemptFields = fc
  .record({
    attempt: fc.constantFrom(1, 2),
    worker_id: worker,
    start_time: fc.constant(null),
    duration_seconds: fc.constant(0.5),
    error_type: fc.constant('Error'),
    error_message: fc.constant('again'),
    retry_at: fc.constantFrom(0, 1e9),
  })
  .map((fields) => ({ ...fields, node_id: nodeOf(fields.worker_id) }))

const between: fc.Arbitrary<Draft> = fc.record({
  of: fc.constantFrom(...[library.TaskAttempt, library.AttemptStarted].map(asClass)),
  uid,
  fields: attemptFields,
})

const poll: fc.Arbitrary<Draft> = fc.record({
  of: fc.constant(asClass(ResourceUpdate)),
  uid: fc.constant(null),
  fields: fc.record({
    node_id: node,
    gpu_id: fc.constantFrom(null, 0),
    cpu_percent: fc.constantFrom(null, 0, 50, 100),
    memory_percent: fc.constantFrom(null, 25),
    gpu_percent: fc.constantFrom(null, 75),
    disk_read_bytes: fc.constant(null),
    disk_write_bytes: fc.constant(null),
    net_sent_bytes: fc.constant(null),
    net_recv_bytes: fc.constant(null),
  }),
})

const besideTasks = [
  [library.NodeJoined, { cores: 2, gpus: 1, memory_mb: 100, labels: {}, version: '' }],
  [library.NodeLost, { reason: 'silent', tasks: ['a'] }],
  [library.NodeDrained, {}],
  [library.WorkerLost, { worker_id: 'n1/local/w1', reason: 'SIGKILL', tasks: ['a'] }],
  [library.Batch, { worker_id: 'llm-0', size: 3, wait_seconds: 0.5, duration_seconds: 1 }],
  [library.EngineLost, { worker_id: 'llm-0', reason: 'crashed' }],
  [library.BackendThrottled, { reason: 'EAGAIN', limit: 1 }],
  [library.CheckpointDegraded, { errno: 'ENOSPC', lines_pending: 3 }],
  [library.CheckpointRecovered, { lost: 2 }],
  [library.SubscriberError, { subscriber: 'mine', count: 2, message: 'boom' }],
  [library.LoopBlocked, { executable: 'f', seconds: 2, timeout_seconds: 1, hint: '' }],
  [library.StaleResult, { attempt: 1 }],
] as const
const beside: fc.Arbitrary<Draft> = fc
  .tuple(fc.constantFrom(...besideTasks), node)
  .map(([[of, fields], node_id]) => ({
    of: asClass(of),
    uid: null,
    fields: { ...fields, node_id },
  }))

export const anyEvents = fc.array(
  fc.oneof(
    { weight: 8, arbitrary: anyTaskEvent },
    { weight: 1, arbitrary: between },
    { weight: 1, arbitrary: poll },
    { weight: 1, arbitrary: beside },
  ),
  { maxLength: 80 },
)

export const toEvent = ({ of, uid: task_id, fields }: Draft, clock: Clock): BaseEvent =>
  stampEvent(of, clock, { session_id: 's1', backend: 'local', task_id, ...fields })

/** The events of one task as a session emits them: some missing, one end or none. */
export const life = fc
  .record({
    hasStage: fc.array(fc.boolean(), { minLength: 4, maxLength: 4 }),
    end: fc.constantFrom(...ends, null),
    retries: fc.nat(2),
    fields: fieldsOf,
    attempt: attemptFields,
  })
  .map(({ hasStage, end, retries, fields, attempt }) => {
    const before = lifecycle.filter((_, at) => hasStage[at] === true)
    const again = Array.from({ length: retries }, () => [
      { of: asClass(library.TaskAttempt), fields: attempt },
      { of: asClass(library.AttemptStarted), fields: attempt },
    ])
    return [
      ...before.map((of) => ({ of, fields })),
      ...again.flat(),
      ...(end === null ? [] : [{ of: end, fields }]),
    ]
  })

/** Plain data with typed arrays as digests, which compares many times faster. */
export function condensed(value: unknown): unknown {
  if (ArrayBuffer.isView(value)) {
    const bytes = new Uint8Array(value.buffer, value.byteOffset, value.byteLength)
    return `${value.constructor.name} ${createHash('sha1').update(bytes).digest('hex')}`
  }
  if (value instanceof Map) return ['Map', ...[...value].map(condensed)]
  if (Array.isArray(value)) return value.map(condensed)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, condensed(one)]))
}
