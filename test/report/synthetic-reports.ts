/** Reports of runs whose course is known. */

import type { RecordViews } from '../../src/record/record-views.ts'
import { collectReport, type ReportData } from '../../src/report/report-data.ts'
import { createRunPass, type RunPass } from '../../src/views/all-panels.ts'
import type { ViewEvent } from '../../src/views/panel.ts'
import type { RecordState } from '../../src/views/panels/run.ts'
import {
  type ComparisonText,
  describeComparison,
  pairRuns,
} from '../../src/views/texts/comparison-text.ts'
import {
  eventsOf,
  passOver,
  type SyntheticRun,
  type SyntheticTask,
} from '../views/synthetic-run.ts'
import { viewEvent } from '../views/view-event.ts'

export function reportOf(
  pass: RunPass,
  changes: Partial<RecordViews> = {},
  state: RecordState = 'ended',
): ReportData {
  const views: RecordViews = {
    pass,
    files: ['s-1.1790000000.telemetry.jsonl'],
    missing: null,
    lines: pass.counts.events,
    bad: 0,
    unknown: 0,
    torn: null,
    metrics: null,
    bytesRead: 0,
    ...changes,
  }
  const attributes = { format: 'tutti-telemetry/1', host: 'n1', program: 'simulate.ts' }
  const now = pass.states.run.lastTime
  return collectReport(views, { path: 'x', state, now, scope: null, attributes, command: null }, [])
}

export const reportOfRun = (run: SyntheticRun): ReportData => reportOf(passOver(eventsOf(run)))

/** Tasks of one second, one after the other on each of the workers. */
const bag = (count: number, workers: number): SyntheticTask[] =>
  Array.from({ length: count }, (_, at) => {
    const start = Math.floor(at / workers)
    return { uid: `t${at}`, start, end: start + 1, worker: `n1/local/w${at % workers}` }
  })

/** The five runs whose bound is known, and one with every kind of event. */
export const boundedRuns = {
  chain: {
    nodes: [{ nodeId: 'n1', cores: 4 }],
    tasks: Array.from({ length: 10 }, (_, at) => ({
      uid: `t${at}`,
      start: at,
      end: at + 1,
      ...(at === 0 ? {} : { ready: at, dependencies: [`t${at - 1}`] }),
    })),
    end: 10,
  },
  bag: { nodes: [{ nodeId: 'n1', cores: 4 }], tasks: bag(40, 4), end: 10 },
  straggler: {
    nodes: [{ nodeId: 'n1', cores: 4 }],
    tasks: [...bag(39, 4), { uid: 'slow', start: 9, end: 100, worker: 'n1/local/w3' }],
    end: 100,
  },
  gpus: {
    nodes: [{ nodeId: 'n1', cores: 4, gpus: 1 }],
    tasks: bag(10, 1).map((task) => ({
      ...task,
      resources: { cores: 1, gpus: 1, memory_mb: 0, ranks: 1 },
    })),
    end: 10,
  },
  overhead: {
    nodes: [{ nodeId: 'n1', cores: 1 }],
    tasks: Array.from({ length: 5 }, (_, at) => ({
      uid: `t${at}`,
      created: 0,
      start: 2 * at + 1,
      end: 2 * at + 2,
    })),
    end: 10,
  },
} as const satisfies Record<string, SyntheticRun>

/** Simulations, some of which fail, sums of them, batches, a lost worker and readings. */
export const mixedEvents = (scale = 1): ViewEvent[] =>
  [...unorderedEvents(scale)].toSorted((a, b) => a.event_time - b.event_time)

function* unorderedEvents(scale: number): Generator<ViewEvent> {
  const at = (event_time: number, more: object): Partial<ViewEvent> => ({ event_time, ...more })
  yield viewEvent('SessionStarted', null, at(1e9, {}))
  const node = { node_id: 'node-1', cores: 8, gpus: 1, memory_mb: 64_000, labels: {} }
  yield viewEvent('tutti.NodeJoined', null, at(1e9, node))
  let time = 1e9 + 0.1
  for (let task = 0; task < 120; task++) {
    yield* lifeOfTask(task, time, scale)
    if (task % 40 === 39) {
      const sum = { dependencies: Array.from({ length: 40 }, (_, one) => `sim-${task - one}`) }
      yield* simpleLife(`sum-${task}`, 'reduce', time + 3 * scale, 0.5 * scale, sum)
    }
    if (task % 8 === 7) {
      const usage = { cpu_percent: 60 + (task % 40), memory_percent: 20 + task / 4 }
      const gpu = { gpu_percent: task % 90, resource_scope: 'per_node', node_id: 'node-1' }
      yield viewEvent('ResourceUpdate', null, at(time, { ...usage, ...gpu }))
      const batch = { size: 1 + (task % 13), wait_seconds: 0.02, duration_seconds: 0.3 }
      yield viewEvent('tutti.Batch', null, at(time, { ...batch, worker_id: 'llm/w1' }))
    }
    time += 0.05 * scale
  }
  const lost = { worker_id: 'node-1/local/w3', reason: 'ended by SIGKILL' }
  yield viewEvent('tutti.WorkerLost', null, at(time, lost))
  const duration_seconds = time + 5 * scale - 1e9
  yield viewEvent('SessionEnded', null, at(time + 5 * scale, { duration_seconds }))
}

function* lifeOfTask(task: number, time: number, scale: number): Generator<ViewEvent> {
  const worker = `node-1/local/w${task % 8}`
  const seconds = scale * (0.4 + (task % 7) * 0.05 + (task === 60 ? 4 : 0))
  const failure = {
    error_type: 'RangeError',
    error_message: `bad seed ${task} <script>alert(1)</script>`,
    error_stack: `RangeError: bad seed ${task}\n    at simulate (simulate.ts:12:9)`,
    error_hint: `PATH is ${'/opt/a-folder/of/programs/bin:'.repeat(8)}/bin; see \`delaySeconds\`.`,
    'tutti.arguments': ['--seed', String(task), '--out', 'run 1'],
  }
  const more = { worker_id: worker, ...(task % 30 === 7 ? failure : {}) }
  yield* simpleLife(`sim-${task}`, '/opt/science/bin/simulate', time, seconds, more)
}

function* simpleLife(
  uid: string,
  executable: string,
  time: number,
  seconds: number,
  more: Readonly<Record<string, unknown>>,
): Generator<ViewEvent> {
  const attributes = { executable, worker_id: 'node-1/local/w1', ...more }
  const event = (type: string, after: number, fields: object = {}): ViewEvent =>
    viewEvent(type, uid, { event_time: time + after, node_id: 'node-1', attributes, ...fields })
  yield event('TaskCreated', 0)
  yield event('TaskSubmitted', 0.001)
  yield event('TaskQueued', 0.002)
  yield event('TaskStarted', 0.1)
  const end = 'error_type' in more ? 'TaskFailed' : 'TaskCompleted'
  yield event(end, 0.1 + seconds, { duration_seconds: seconds })
}

/** So many short tasks that the timeline sums them. */
export function largePass(tasks: number): RunPass {
  const pass = createRunPass()
  pass.take(viewEvent('SessionStarted', null, { event_time: 0 }))
  pass.take(viewEvent('tutti.NodeJoined', null, { event_time: 0, node_id: 'n1', cores: 16 }))
  for (let task = 0; task < tasks; task++) {
    const start = Math.floor(task / 16) * 0.11
    const common = { node_id: 'n1', attributes: { executable: `step-${task % 5}` } }
    const worker = { ...common.attributes, worker_id: `n1/local/w${task % 16}` }
    const type = task % 997 === 5 ? 'TaskFailed' : 'TaskCompleted'
    const uid = `task.${String(task).padStart(6, '0')}`
    pass.take(viewEvent('TaskCreated', uid, { event_time: start, ...common }))
    pass.take(viewEvent('TaskSubmitted', uid, { event_time: start, ...common }))
    pass.take(viewEvent('TaskQueued', uid, { event_time: start, ...common }))
    const begun = { event_time: start + 0.01, node_id: 'n1', attributes: worker }
    pass.take(viewEvent('TaskStarted', uid, begun))
    const ended = { event_time: start + 0.1, duration_seconds: 0.09 }
    pass.take(viewEvent(type, uid, { ...ended, node_id: 'n1', attributes: worker }))
  }
  const end = (tasks / 16) * 0.11
  pass.take(viewEvent('SessionEnded', null, { event_time: end, duration_seconds: end }))
  return pass
}

/** The sentences about two runs. */
export const compare = (before: ReportData, after: ReportData): ComparisonText =>
  describeComparison(pairRuns(before, after))
