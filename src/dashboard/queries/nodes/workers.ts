/** Nodes, workers with their current tasks, allocations, and warnings about them. */

import { readSessionStart } from '../../../checkpoint/chain.ts'
import { isPresent, type SlotNode, toNodeAmounts } from '../../../views/bounds/slots.ts'
import { textAt } from '../../../views/columns.ts'
import { compareWorkers } from '../../../views/panels/lane-rows.ts'
import { isFailedOutcome, listLanes, outcomeNumbers } from '../../../views/panels/lanes.ts'
import { type NodeUsage } from '../../../views/panels/resources.ts'
import { countText, secondsText } from '../../../views/readable.ts'
import { usedByNode } from '../../../views/shortage.ts'
import type { Filter, WorkersView } from '../../protocol.ts'
import { showWarnings } from '../health.ts'
import type { RunMoment } from '../run-moment.ts'
import { describeNotShown, nameOfTask, shownText, shownUid } from '../shown-texts.ts'

type NodeRow = WorkersView['nodes'][number]
type WorkerRow = WorkersView['workers'][number]

const maxNodes = 500
const maxWorkers = 1000

export async function showWorkers(
  moment: RunMoment,
  filter: Filter,
  files: readonly string[],
): Promise<WorkersView> {
  const nodes = listNodes(moment)
  const gone = new Set(nodes.flatMap(({ key, row }) => (row.left === null ? [] : [key])))
  const workers = listWorkers(moment, filter, gone)
  return {
    nodes: nodes.slice(0, maxNodes).map(({ row }) => row),
    workers: workers.slice(0, maxWorkers),
    allocations: await readAllocations(moment, files),
    warnings: listWarnings(moment),
    notShown: describeNotShown(
      [nodes.length - maxNodes, 'node'],
      [workers.length - maxWorkers, 'worker'],
    ),
  }
}

interface NodeEntry {
  /** The backend and the id of the node as a JSON pair. */
  readonly key: string
  readonly row: NodeRow
}

/** Lists present nodes first, then those with more busy slots. */
function listNodes(moment: RunMoment): NodeEntry[] {
  const { pass, isRunning } = moment
  const { bounds, resources, lanes } = pass.states
  const usedAmounts = isRunning ? usedByNode(pass) : new Map<string, never>()
  const keyOf = ({ backend, nodeId }: SlotNode): string => JSON.stringify([backend, nodeId])
  const joinedNodes = new Map(bounds.nodes.map((node) => [keyOf(node), node]))
  const keys = new Set(joinedNodes.keys())
  for (let node = 0; node < lanes.nodes.size; node++) {
    const key = textAt(lanes.nodes, node)
    // Closures and prompts run in the process of the session, which reports no node.
    if ((JSON.parse(key) as string[])[1] !== '') keys.add(key)
  }
  const reasons = lossReasons(moment)
  return Array.from(keys, (key) => {
    const [backend = '', nodeId = ''] = JSON.parse(key) as string[]
    const held = usedAmounts.get(key)
    const node = joinedNodes.get(key)
    const usage = [...resources.nodes.values()].filter((one) => one.nodeId === nodeId)
    const reason = reasons.get(nodeId)
    return { key, row: toNode({ backend, nodeId, node, held, usage, reason, isRunning }) }
  }).toSorted((a, b) => rankOf(a.row) - rankOf(b.row) || b.row.busySlots - a.row.busySlots)
}

const rankOf = ({ state }: NodeRow): number =>
  ['here', 'stayed', 'draining', 'left', 'lost'].indexOf(state)

interface Loss {
  readonly isLost: boolean
  readonly text: string
}

/** The latest loss or drain of each node. */
const lossReasons = ({ pass }: RunMoment): ReadonlyMap<string, Loss> =>
  new Map(
    pass.states.health.warnings.flatMap(({ type, subject, text }) =>
      type === 'tutti.NodeLost' || type === 'tutti.NodeDrained'
        ? [[subject, { isLost: type === 'tutti.NodeLost', text }]]
        : [],
    ),
  )

interface NodeFacts {
  readonly backend: string
  readonly nodeId: string
  readonly node: SlotNode | undefined
  readonly held: ReturnType<typeof usedByNode> extends Map<string, infer Held>
    ? Held | undefined
    : never
  readonly usage: readonly NodeUsage[]
  readonly reason: Loss | undefined
  readonly isRunning: boolean
}

function toNode(facts: NodeFacts): NodeRow {
  const { backend, nodeId, node, held, usage, reason, isRunning } = facts
  const isHere = node === undefined || isPresent(node)
  const tasks = held?.tasks ?? 0
  const size = node === undefined ? null : toNodeAmounts(node, Infinity)
  const isFull =
    isHere &&
    size !== null &&
    (['cores', 'workers'] as const).some(
      (kind) => size[kind] > 0 && (held?.amounts[kind] ?? 0) >= size[kind],
    )
  const stateText = reason?.isLost === true ? 'lost' : tasks > 0 ? 'draining' : 'left'
  const lastOf = (kind: 'cpu' | 'memory'): number | null =>
    usage.findLast((one) => !one.hasLeft && one[kind].last !== null)?.[kind].last ?? null
  return {
    nodeId: shownText(nodeId),
    backend: shownText(backend),
    state: !isHere ? stateText : isRunning ? 'here' : 'stayed',
    joined: node?.changes[0] ?? null,
    left: isHere ? null : (node?.changes.at(-1) ?? null),
    reason: isHere ? '' : shownText(reason?.text ?? ''),
    cores: node?.cores ?? null,
    gpus: node?.gpus ?? null,
    memoryMb: (node?.memoryMb ?? 0) || null,
    busySlots: tasks,
    cpu: lastOf('cpu'),
    memory: lastOf('memory'),
    isFull,
  }
}

interface LaneNow {
  task: number
  start: number
  firstStart: number
  lastEnd: number
  attempts: number
  failed: number
  busySeconds: number
}

/** Busy workers come first. Of these, the one with the longest running task is the first. */
function listWorkers(
  moment: RunMoment,
  filter: Filter,
  goneNodes: ReadonlySet<string>,
): WorkerRow[] {
  const { pass, now, start, isRunning } = moment
  const { lanes, health } = pass.states
  const losses = new Map(
    health.warnings.flatMap((one) => (one.type === 'tutti.WorkerLost' ? [[one.subject, one]] : [])),
  )
  const range = { from: filter.from ?? start, to: Math.min(now, filter.to ?? now) }
  const sums = sumLanes(moment, range)
  const rows = listLanes(lanes).flatMap(({ id, nodeId, backend }, lane): WorkerRow[] => {
    const laneNow = sums[lane]
    if (laneNow === undefined || (laneNow.attempts === 0 && laneNow.lastEnd === -Infinity))
      return []
    const isBusy = laneNow.task !== -1 && isRunning
    const loss = losses.get(id)
    const isGone = !isRunning || goneNodes.has(JSON.stringify([backend, nodeId]))
    const isHere = isBusy || (!isGone && loss === undefined)
    const end = isHere ? now : (loss?.time ?? laneNow.lastEnd)
    const seconds = Math.max(1e-9, range.to - range.from)
    return [
      {
        id: shownText(id),
        nodeId: shownText(nodeId),
        state: isBusy ? 'busy' : loss !== undefined ? 'lost' : isGone ? 'gone' : 'idle',
        lost: isBusy ? null : (loss?.time ?? null),
        reason: isBusy ? '' : shownText(loss?.text ?? ''),
        task: isBusy ? shownUid(moment, laneNow.task) : null,
        taskName: isBusy ? nameOfTask(moment, laneNow.task) : '',
        taskSeconds: isBusy ? Math.max(0, now - laneNow.start) : null,
        idleSeconds: isBusy || !isHere ? null : Math.max(0, now - laneNow.lastEnd),
        ageSeconds: Math.max(0, end - laneNow.firstStart),
        attempts: laneNow.attempts,
        failed: laneNow.failed,
        busyPercent: Math.min(100, (100 * laneNow.busySeconds) / seconds),
      },
    ]
  })
  return rows.toSorted(
    (a, b) =>
      (b.taskSeconds ?? -1) - (a.taskSeconds ?? -1) ||
      (b.idleSeconds ?? -1) - (a.idleSeconds ?? -1) ||
      compareWorkers(a.id, b.id),
  )
}

interface Range {
  readonly from: number
  readonly to: number
}

/**
 * Sums the attempts of each lane in the range. If a worker has several running attempts, the task
 * of the oldest one is its current task.
 */
function sumLanes({ columns, pass, now }: RunMoment, { from, to }: Range): LaneNow[] {
  const { size, start, end, lane, task, outcome } = columns.attempts
  const sums = Array.from({ length: pass.states.lanes.lanes.size }, () => ({
    task: -1,
    start: Infinity,
    firstStart: Infinity,
    lastEnd: -Infinity,
    attempts: 0,
    failed: 0,
    busySeconds: 0,
  }))
  for (let at = 0; at < size; at++) {
    const laneSum = sums[lane[at] ?? 0]
    const [began, ended] = [start[at] ?? 0, end[at] ?? 0]
    if (laneSum === undefined || outcome[at] === outcomeNumbers.repeated) continue
    laneSum.firstStart = Math.min(laneSum.firstStart, began)
    if (ended === Infinity) {
      if (began < laneSum.start) [laneSum.task, laneSum.start] = [task[at] ?? -1, began]
    } else if (ended > laneSum.lastEnd) laneSum.lastEnd = ended
    if (began > to || ended < from) continue
    laneSum.attempts++
    laneSum.busySeconds += Math.max(0, Math.min(to, now, ended) - Math.max(from, began))
    if (isFailedOutcome(outcome[at] ?? 0)) laneSum.failed++
  }
  return sums
}

const warningTypes: ReadonlySet<string> = new Set([
  'tutti.NodeLost',
  'tutti.NodeDrained',
  'tutti.WorkerLost',
  'tutti.EngineLost',
  'tutti.TaskMoved',
  'tutti.AllocationEnding',
  'tutti.BackendThrottled',
])

/** Lists the warnings about nodes and workers, latest first. */
const listWarnings = ({ pass }: RunMoment): WorkersView['warnings'] =>
  showWarnings(pass.states.health.warnings.filter(({ type }) => warningTypes.has(type)))

/** The allocations in which the sessions of the run were started, according to SessionStarted. */
async function readAllocations(
  { now, pass, isRunning }: RunMoment,
  files: readonly string[],
): Promise<WorkersView['allocations']> {
  const starts = await Promise.all(files.map((file) => readSessionStart(file).catch(() => null)))
  return starts.flatMap((start) => {
    const { job_id: job, partition, nodes, ...times } = start?.attributes ?? {}
    if (start === null || typeof job !== 'string' || start.event_time > now) return []
    const limit = times['time_limit_seconds']
    const waited = times['queue_wait_seconds']
    const isCurrent = isRunning && start.event_time === pass.states.run.sessionStart
    const secondsLeft =
      typeof limit === 'number' ? Math.max(0, start.event_time + limit - now) : null
    const facts = [
      ...(typeof partition === 'string' ? [`partition ${partition}`] : []),
      ...(Array.isArray(nodes) ? [`${countText(nodes.length, 'node')}: ${nodes.join(', ')}`] : []),
      ...(typeof waited === 'number' ? [`waited ${secondsText(waited)} in the queue`] : []),
      typeof limit === 'number' ? `time limit ${secondsText(limit)}` : 'no time limit',
      ...(isCurrent && secondsLeft !== null ? [`at most ${secondsText(secondsLeft)} left`] : []),
    ]
    return [{ title: shownText(`job ${job}`), facts: facts.map((fact) => shownText(fact, 500)) }]
  })
}
