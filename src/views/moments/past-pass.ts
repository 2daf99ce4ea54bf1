/**
 * A run as it was at an earlier time, made from the columns of a later pass. This takes a fraction
 * of a second for a million tasks; reading the record again would take half a minute. Pure.
 */

import { createRunPass, type RunPass, type RunStates } from '../all-panels.ts'
import { type Block, type Column, type ColumnKind, freeRows } from '../columns.ts'
import { toArray, toColumn, valueAt } from '../columns.ts'
import { listStageTimes } from '../bounds/task-times.ts'
import { isPresent, sizeOf, type SlotNode } from '../bounds/slots.ts'
import { countStage, createTotals, hasEnded, stages, type TaskTotals } from '../lifecycle.ts'
import { listStages } from '../panels/counts.ts'
import type { HealthState } from '../panels/health.ts'
import { outcomeNumbers } from '../panels/lanes.ts'
import type { NodeUsage } from '../panels/resources.ts'
import { cutSeries, showSeries } from '../series.ts'

type Panels = RunStates['panels']

/** Seconds by which an event may seem to be late, because end times come from 32-bit durations. */
const tolerance = 1e-3

/**
 * Returns the run up to a time, which is exact to a millisecond. Leaves out data that is recorded
 * without its time: the progress of tasks, delays of events, sizes of batches. Returns `null` for a
 * resumed run, because a task that ran again has only its latest times.
 */
export function createPastPass(pass: RunPass, at: number): RunPass | null {
  if (pass.states.run.sessions > 1 || pass.counts.index.file > 1) return null
  const until = at + tolerance
  const { passed, totals } = cutStages(pass, until)
  const lanes = cutLanes(pass.states, until, at)
  const bounds = cutBounds(pass.states, passed, at, until)
  const health = cutHealth(pass.states.health, until)
  const { tasks } = totals
  const panels: Panels = {
    ...pass.states,
    run: cutRun(pass.states, { at, until, lanes, health }),
    names: cutNames(pass.states, passed, lanes),
    failures: cutFailures(pass.states, until),
    lanes,
    resources: cutResources(pass.states, bounds.nodes, until),
    inference: cutInference(pass.states, until),
    graph: cutGraph(pass.states, passed),
    bounds,
    health,
    remarks: cutRemarks(pass.states, until),
  }
  // Before the start of the session, there are no events. Later, the final number is kept.
  const events =
    tasks === 0 && at < (pass.states.run.startTime ?? -Infinity) ? 0 : pass.counts.events
  const counts = { ...pass.counts, events, totals, passed: toColumn('u8', passed) }
  return createRunPass({ counts, panels })
}

interface PastStages {
  readonly passed: Block
  readonly totals: TaskTotals
}

const allStages = Object.values(stages)

function cutStages({ counts, states }: RunPass, until: number): PastStages {
  const { passed: known } = listStages(counts)
  const { times } = states.bounds
  const reached = listStageTimes(times, known)
  const routing = toArray(times.routing, known.length)
  const handover = toArray(times.handover, known.length)
  const passed = new Uint8Array(known.length)
  const totals = createTotals()
  const ends = stages.completed | stages.failed | stages.canceled
  for (let task = 0; task < known.length; task++) {
    const before = known[task] ?? 0
    if (!((reached.created[task] ?? Infinity) <= until)) continue
    const submitted = (reached.ready[task] ?? 0) + (routing[task] ?? 0)
    const timeOf = (stage: number): number => {
      if (stage === stages.created) return reached.created[task] ?? 0
      if (stage === stages.submitted) return submitted
      if (stage === stages.queued) return submitted + (handover[task] ?? 0)
      return (stage === stages.started ? reached.started : reached.ended)[task] ?? Infinity
    }
    let mask = 0
    for (const stage of allStages) {
      const isReached = (before & stage) !== 0 && timeOf(stage) <= until
      if (!isReached) continue
      const seconds = (reached.ended[task] ?? 0) - (reached.started[task] ?? 0)
      mask = countStage(totals, mask, stage, (stage & ends) === 0 ? 0 : seconds || 0)
    }
    passed[task] = mask
  }
  for (const rows of [known, routing, handover, ...Object.values(reached)]) freeRows(rows)
  return { passed, totals }
}

function cutLanes({ lanes }: Panels, until: number, at: number): Panels['lanes'] {
  const { size } = lanes
  const rows = (column: Column): Block => toArray(column, size)
  const [start, seconds, outcome, task] = [
    rows(lanes.start),
    rows(lanes.seconds),
    rows(lanes.outcome),
    rows(lanes.task),
  ]
  const kept = new Uint32Array(size)
  const latest = new Uint32Array(lanes.tasks)
  let count = 0
  for (let row = 0; row < size; row++) {
    if ((start[row] ?? 0) > until || outcome[row] === outcomeNumbers.repeated) continue
    latest[task[row] ?? 0] = count + 1
    kept[count++] = row
    if ((start[row] ?? 0) + (seconds[row] ?? 0) <= until) continue
    outcome[row] = outcomeNumbers.running
    seconds[row] = 0
  }
  const cut = (kind: ColumnKind, values: Block): Column => {
    const found = new Float64Array(count)
    for (let row = 0; row < count; row++) found[row] = values[kept[row] ?? 0] ?? 0
    const column = toColumn(kind, found)
    for (const one of [found, values]) freeRows(one)
    return column
  }
  return {
    ...lanes,
    size: count,
    task: cut('u32', task),
    start: cut('f64', start),
    seconds: cut('f32', seconds),
    retryDelay: cut('f32', rows(lanes.retryDelay)),
    attempt: cut('u32', rows(lanes.attempt)),
    lane: cut('u32', rows(lanes.lane)),
    outcome: cut('u8', outcome),
    latestOfTask: toColumn('u32', latest),
    lastTime: at,
    lostOfTask: new Map(),
  }
}

function cutNames({ names }: Panels, passed: Block, lanes: Panels['lanes']): Panels['names'] {
  const { size } = names.names
  const column = (): Uint32Array => new Uint32Array(size)
  const sums = {
    total: column(),
    running: column(),
    completed: column(),
    reused: column(),
    failed: column(),
    canceled: column(),
  }
  const nameOf = toArray(names.nameOfTask, names.tasks)
  const isReused = toArray(names.isReused, names.tasks)
  const durations = toArray(names.durations, names.tasks)
  const waitsSince = new Map<number, number>()
  for (let task = 0; task < names.tasks; task++) {
    const known = passed[task] ?? 0
    const name = nameOf[task] ?? 0
    const add = (sum: Uint32Array): void => {
      sum[name] = (sum[name] ?? 0) + 1
    }
    if (!hasEnded(known)) durations[task] = Number.NaN
    if (known === 0) continue
    add(sums.total)
    if ((known & stages.completed) !== 0) add(isReused[task] === 1 ? sums.reused : sums.completed)
    if ((known & stages.completed) !== 0 && isReused[task] === 1) add(sums.completed)
    if ((known & stages.failed) !== 0) add(sums.failed)
    if ((known & stages.canceled) !== 0) add(sums.canceled)
    if (hasEnded(known) || (known & stages.started) === 0) continue
    add(sums.running)
    const attempt = valueAt(lanes.latestOfTask, task) - 1
    if (attempt === -1 || valueAt(lanes.outcome, attempt) !== outcomeNumbers.retried) continue
    waitsSince.set(task, valueAt(lanes.start, attempt) + valueAt(lanes.seconds, attempt))
  }
  const columns = Object.entries(sums).map(([key, values]) => [key, toColumn('u32', values)])
  return {
    ...names,
    ...(Object.fromEntries(columns) as Record<keyof typeof sums, Column>),
    reports: new Map(),
    durations: toColumn('f64', durations),
    waitsSince,
  }
}

function cutFailures({ failures }: Panels, until: number): Panels['failures'] {
  const { groups, tasks } = failures
  const past = groups.map((group) => ({ ...group, count: 0 }))
  const groupOf = toArray(failures.groupOfTask, tasks)
  const timeOf = toArray(failures.timeOfTask, tasks)
  let ungrouped = 0
  for (let task = 0; task < tasks; task++) {
    if ((groupOf[task] ?? 0) === 0) continue
    if ((timeOf[task] ?? 0) > until) {
      groupOf[task] = 0
      continue
    }
    const group = past[(groupOf[task] ?? 0) - 1]
    if (group === undefined) ungrouped++
    else group.count++
  }
  return { ...failures, groups: past, ungrouped, groupOfTask: toColumn('u32', groupOf) }
}

function cutGraph({ graph }: Panels, passed: Block): Panels['graph'] {
  if (graph.size === 0) return graph
  const entryOf = toArray(graph.entryOfTask, graph.tasks)
  for (let task = 0; task < graph.tasks; task++) if (passed[task] === 0) entryOf[task] = 0
  return { ...graph, entryOfTask: toColumn('u32', entryOf) }
}

function cutBounds({ bounds }: Panels, passed: Block, at: number, until: number): Panels['bounds'] {
  const nodes = bounds.nodes
    .map((node) => cutNode(node, until))
    .filter(({ changes }) => changes.length > 0)
  const numbers = nodes.map(({ backend, nodeId }, number) => {
    return [JSON.stringify([backend, nodeId]), number] as const
  })
  const { blocks, times } = bounds
  const created = toArray(times.created, passed.length)
  const dependencies = toArray(times.dependencies, passed.length)
  for (let task = 0; task < passed.length; task++) {
    const ready = (created[task] ?? 0) + (dependencies[task] ?? 0)
    if (ready > until) dependencies[task] = Number.NaN
  }
  const endedTasks = toArray(blocks.ended, blocks.endedCount).filter((task) =>
    hasEnded(passed[task - 1] ?? 0),
  )
  return {
    ...bounds,
    times: { ...times, dependencies: toColumn('f32', dependencies) },
    nodes,
    nodeNumbers: new Map(numbers),
    blocks: { ...blocks, ended: toColumn('u32', endedTasks), endedCount: endedTasks.length },
    stopped: at < bounds.lastTime ? 0 : bounds.stopped,
    lastTime: at,
  }
}

function cutNode(node: SlotNode, until: number): SlotNode {
  const size = node.earlier.find((one) => one.until > until) ?? node
  return {
    ...node,
    ...sizeOf(size),
    earlier: node.earlier.filter((one) => one.until <= until),
    changes: node.changes.filter((time) => time <= until),
  }
}

function cutResources(
  { resources }: Panels,
  nodes: readonly SlotNode[],
  until: number,
): Panels['resources'] {
  const present = new Set(nodes.filter(isPresent).map(({ nodeId }) => nodeId))
  const past = [...resources.nodes].flatMap(([key, usage]): [string, NodeUsage][] => {
    const series = usage.series === null ? null : cutSeries(usage.series, until)
    const points = series === null ? [] : showSeries(series)
    if (points.length === 0) return []
    const gaugeOf = (at: number): NodeUsage['cpu'] => {
      const values = points.flatMap(({ values: all }) => all[at] ?? [])
      const sum = values.reduce((before, one) => before + one, 0)
      const max = values.length === 0 ? null : Math.max(...values)
      return { last: values.at(-1) ?? null, max, sum, count: values.length }
    }
    const gpus = new Map([...usage.gpus].map(([id, one]) => [id, cutSeries(one, until)]))
    const gauges = { cpu: gaugeOf(0), memory: gaugeOf(1), gpu: gaugeOf(2) }
    const runCpu = { last: null, max: null, sum: 0, count: 0 }
    const hasLeft = usage.hasLeft && !present.has(usage.nodeId)
    return [[key, { ...usage, ...gauges, runCpu, series, gpus, hasLeft }]]
  })
  return { ...resources, nodes: new Map(past), ownHost: null, latest: null }
}

/**
 * Replaces numbers that are kept without times: those of servers and models, and sizes of batches.
 */
function cutInference({ inference }: Panels, until: number): Panels['inference'] {
  const series = cutSeries(inference.series, until)
  const batches = series.counts.reduce((sum, one, at) => (at % 3 === 0 ? sum + one : sum), 0)
  const sumOf = (column: number): number =>
    series.sums.reduce((sum, one, at) => (at % 3 === column ? sum + one : sum), 0)
  const all = {
    backend: 'all servers',
    workerId: '',
    batches,
    requests: sumOf(0),
    failed: 0,
    waitSeconds: sumOf(1),
    computeSeconds: sumOf(2),
    maxWait: 0,
    lost: 0,
  }
  const engines = new Map(batches === 0 ? [] : [['', all] as const])
  const none = { models: new Map(), routes: new Map(), keys: new Map(), sizes: [] }
  return { ...inference, ...none, engines, series }
}

function cutHealth(health: HealthState, until: number): HealthState {
  const warnings = health.warnings.filter(({ time }) => time <= until)
  const gaps = health.gaps.filter(({ to }) => to <= until)
  const warningCounts = new Map<string, number>()
  for (const { type } of warnings) warningCounts.set(type, (warningCounts.get(type) ?? 0) + 1)
  const countOf = (type: string): number => warningCounts.get(`tutti.${type}`) ?? 0
  return {
    ...health,
    gaps,
    gapCount: gaps.length,
    gapSeconds: gaps.reduce((sum, { from, to }) => sum + to - from, 0),
    loopDelays: health.loopDelays.filter(({ time }) => time <= until),
    warnings,
    warningCounts,
    lostLines: 0,
    isDegraded: countOf('CheckpointDegraded') > countOf('CheckpointRecovered'),
    nodesLost: countOf('NodeLost'),
    nodesDrained: countOf('NodeDrained'),
    workersLost: countOf('WorkerLost'),
    enginesLost: countOf('EngineLost'),
    tasksMoved: countOf('TaskMoved'),
    staleResults: countOf('StaleResult'),
    throttled: countOf('BackendThrottled'),
    subscriberErrors: countOf('SubscriberError'),
    maxDelay: 0,
  }
}

function cutRemarks({ remarks }: Panels, until: number): Panels['remarks'] {
  const { latestOfTask, time, earlier, moves } = remarks
  const latest: Column = {
    kind: latestOfTask.kind,
    blocks: latestOfTask.blocks.map((block) => {
      const past = block.slice()
      for (const [at, row] of block.entries()) {
        let remark = row - 1
        while (remark !== -1 && valueAt(time, remark) > until) {
          remark = valueAt(earlier, remark) - 1
        }
        past[at] = remark + 1
      }
      return past
    }),
  }
  const past = [...moves].filter(([, move]) => move.time <= until)
  return { ...remarks, latestOfTask: latest, moves: new Map(past) }
}

interface PastParts {
  readonly at: number
  readonly until: number
  readonly lanes: Panels['lanes']
  readonly health: HealthState
}

function cutRun({ run }: Panels, { at, until, lanes, health }: PastParts): Panels['run'] {
  const hasEnd = run.endTime !== null && run.endTime <= until
  let retries = 0
  for (let row = 0; row < lanes.size; row++) {
    if (valueAt(lanes.outcome, row) === outcomeNumbers.retried) retries++
  }
  return {
    ...run,
    startTime: run.startTime === null || run.startTime > until ? null : run.startTime,
    endTime: hasEnd ? run.endTime : null,
    durationSeconds: hasEnd ? run.durationSeconds : null,
    lastTime: Math.min(run.lastTime, at),
    retries,
    workersLost: health.workersLost,
  }
}
