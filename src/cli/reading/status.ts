/** `tutti status`: shows the state or result of a run on one screen. */

import { countText, listCounts, numberText, secondsText } from '../../views/readable.ts'
import { countOtherOpen, counts, countSubmitted } from '../../views/panels/counts.ts'
import { causeLines } from '../../views/panels/failures.ts'
import { health } from '../../views/panels/health.ts'
import { allDurations, countReused, names, type NameView } from '../../views/panels/names.ts'
import { type NameSeconds, noSeconds, sumSecondsByName } from '../../views/bounds/name-times.ts'
import { findText } from '../../views/columns.ts'
import { type NodeSummary, resources, showNodes } from '../../views/panels/resources.ts'
import { run, runSeconds } from '../../views/panels/run.ts'
import { statsInPlace } from '../../views/stats.ts'
import type { Output } from '../output.ts'
import { type OpenRecord, recordFields, recordNotes } from './open-record.ts'
import { recordArgument, showRecord } from './open-record.ts'
import { type ResumeHint, findResumeHint } from './resume-hint.ts'
import { type Column, nameColumn, tableLines } from './text.ts'

export const maxNames = 20
const maxNodes = 8

export async function showStatus(source: string, output: Output): Promise<number> {
  return await showRecord(source, output, async (record) => {
    const hint = await findResumeHint(record)
    // Each form takes time for a large run, so only the requested one is computed.
    if (output.form === 'json') output.result(statusFields(record, hint), [])
    else output.result({}, statusLines(record, hint, output.width))
  })
}

export function statusFields(record: OpenRecord, hint: ResumeHint | null): object {
  const { states } = record.pass
  const { submitted, completed, failed, canceled, running, queued, tasks } = readTotals(record)
  const { startTime, endTime, lastTime, sessions, retries, workersLost } = run.show(states.run)
  const { nodesLost, lostLines } = health.show(states.health)
  const durations = allDurations(states.names)
  return {
    ...recordFields(record),
    start_time: startTime,
    end_time: endTime,
    last_event_time: record.lines === 0 ? null : lastTime,
    duration_seconds: runDuration(record),
    sessions,
    tasks: { submitted, completed, failed, canceled, running },
    created: tasks,
    reused: countReused(record.pass.states.names),
    queued,
    between_attempts: countWaiting(record),
    duration: durations.length === 0 ? null : statsInPlace(durations),
    names: nameRows(record).map((name) => ({
      name: name.name,
      task_type: name.taskType,
      total: name.total,
      running: name.running,
      between_attempts: name.waiting,
      completed: name.completed,
      reused: name.reused,
      failed: name.failed,
      canceled: name.canceled,
      duration: name.duration ?? null,
      ran_seconds: name.ranSeconds,
      longest_running_seconds: name.maxRunningSeconds,
    })),
    further_attempts: retries,
    workers_lost: workersLost,
    nodes_lost: nodesLost,
    lost_lines: lostLines,
    resources: resources.show(states.resources),
    resume: hint === null ? null : { record: hint.record, command: hint.command },
  }
}

type NameRow = NameView & NameSeconds

/** Returns the rows of the table of names. After a session has ended, no task counts as running. */
function nameRows({ pass, now, state }: OpenRecord): NameRow[] {
  const times = sumSecondsByName({ counts: pass.counts, ...pass.states }, now)
  return names.show(pass.states.names, { durations: true }).map((view) => {
    const nameSeconds = times[findText(pass.states.names.names, view.name)] ?? noSeconds
    return {
      ...view,
      ...nameSeconds,
      maxRunningSeconds: state === 'running' ? nameSeconds.maxRunningSeconds : null,
    }
  })
}

const countWaiting = ({ pass: { states } }: OpenRecord): number =>
  names.show(states.names, { durations: false }).reduce((sum, { waiting }) => sum + waiting, 0)

function readTotals({ pass }: OpenRecord): ReturnType<typeof counts.show> {
  const totals = counts.show(pass.counts)
  return { ...totals, submitted: countSubmitted(totals) }
}

const runDuration = ({ pass: { states }, now }: OpenRecord): number =>
  runSeconds(states.run, states.bounds.attended, now)

interface NameListOptions {
  readonly max: number
  readonly isRunningFirst: boolean
}

/** Returns the lines of `tutti status`. `tutti top` shows them as well. */
export function statusLines(
  record: OpenRecord,
  hint: ResumeHint | null,
  width: number,
  { max, isRunningFirst }: NameListOptions = { max: maxNames, isRunningFirst: false },
): string[] {
  const { states } = record.pass
  const byTotal = nameRows(record).toSorted((a, b) => b.total - a.total)
  const isFirst = ({ running }: NameRow): number => (isRunningFirst && running > 0 ? 1 : 0)
  const shown = byTotal.toSorted((a, b) => isFirst(b) - isFirst(a))
  const nodes = showNodes(states.resources)
  return [
    headLine(record),
    taskLine(record),
    ...(shown.length === 0
      ? []
      : tableLines(columnsFor(record, shown), shown.slice(0, max), width)),
    ...(shown.length > max ? [`and ${countText(shown.length - max, 'other name')}`] : []),
    ...failureLines(record),
    ...(nodes.length === 0 ? [] : tableLines(nodeColumns, nodes.slice(0, maxNodes), width)),
    ...(nodes.length > maxNodes ? [`and ${countText(nodes.length - maxNodes, 'other node')}`] : []),
    ...recordNotes(record),
    ...(hint === null ? [] : [hint.line]),
  ]
}

function headLine(record: OpenRecord): string {
  const { sessionId, state, files, lines, bad } = record
  const isEmpty = lines === 0 && bad === 0 && state !== 'running'
  if (isEmpty) return 'the record is empty: nothing is known about its session'
  const seconds = secondsText(runDuration(record))
  const durationLabels = {
    running: 'running for',
    ended: 'ended after',
    interrupted: 'interrupted after',
  }
  const resumed = files.length > 1 ? `, ${files.length} files of one run` : ''
  return `session ${sessionId}  ${durationLabels[state]} ${seconds}${resumed}`
}

function taskLine(record: OpenRecord): string {
  const { tasks, completed, failed, canceled, running, queued } = readTotals(record)
  const { unsubmitted, submitted, left } = countOtherOpen(record.pass.counts)
  const waiting = countWaiting(record)
  const isOver = record.state === 'interrupted'
  const reused = countReused(record.pass.states.names)
  const ofThem = reused === 0 ? '' : ` (${numberText(reused)} of them reused)`
  const parts = [
    `${countText(tasks, 'task')}: ${numberText(completed)} done${ofThem}`,
    `${numberText(failed)} failed`,
    `${numberText(canceled)} canceled`,
    isOver
      ? `${numberText(running + left)} interrupted`
      : `${numberText(running - waiting)} running`,
  ]
  const { retries, workersLost } = run.show(record.pass.states.run)
  const { nodesLost } = health.show(record.pass.states.health)
  const otherCounts = listCounts([
    [isOver ? queued + submitted : 0, 'did not begin'],
    [isOver ? 0 : left, 'interrupted'],
    [isOver ? 0 : waiting, 'between attempts'],
    [isOver ? 0 : queued, 'queued'],
    [isOver ? 0 : submitted, 'submitted'],
    [unsubmitted, 'not submitted'],
    [retries, 'further attempt', 'further attempts'],
    [workersLost, 'worker lost', 'workers lost'],
    [nodesLost, 'node lost', 'nodes lost'],
  ])
  return [...parts, ...otherCounts].join(', ')
}

function failureLines(record: OpenRecord): string[] {
  const lines = causeLines(record.pass.states.failures, 3)
  if (lines.length === 0) return []
  return [...lines, `show them with: npx tutti failures ${recordArgument(record)}`]
}

const numberColumn = (
  head: string,
  cell: (name: NameRow) => string,
  dropOrder: number,
): Column<NameRow> => ({ head, cell, isNumber: true, dropOrder })

/** If the session was killed, shows its running tasks as interrupted. */
const columnsFor = (
  { state }: OpenRecord,
  shown: readonly NameRow[],
): readonly Column<NameRow>[] => [
  nameColumn(shown, { minWidth: 8 }),
  numberColumn('tasks', ({ total }) => numberText(total), 5),
  numberColumn('done', ({ completed }) => numberText(completed), 2),
  numberColumn('failed', ({ failed }) => numberText(failed), 1),
  numberColumn('canceled', ({ canceled }) => numberText(canceled), 8),
  state === 'interrupted'
    ? numberColumn('interrupted', ({ running }) => numberText(running), 3)
    : numberColumn('running', ({ running, waiting }) => numberText(running - waiting), 3),
  numberColumn('p50', (name) => secondsText(name.duration?.p50 ?? null), 6),
  numberColumn('p95', (name) => secondsText(name.duration?.p95 ?? null), 7),
  numberColumn('max', maxText, 9),
  numberColumn('total', ({ ranSeconds }) => secondsText(ranSeconds || null), 4),
]

const maxText = ({ duration, maxRunningSeconds }: NameRow): string =>
  secondsText(
    duration || maxRunningSeconds !== null
      ? Math.max(duration?.max ?? 0, maxRunningSeconds ?? 0)
      : null,
  )

const percentText = (value: number | null): string =>
  value === null ? '-' : `${Math.round(value)} %`

const nodeColumns: readonly Column<NodeSummary>[] = [
  { head: 'node', cell: ({ node_id }) => node_id, minWidth: 8 },
  ...(['cpu', 'memory', 'gpu'] as const).map((kind, at) => ({
    head: kind,
    cell: (node: NodeSummary) => percentText(node[`${kind}_percent`].mean),
    isNumber: true,
    dropOrder: at + 1,
  })),
  {
    head: 'highest cpu',
    cell: ({ cpu_percent }) => percentText(cpu_percent.max),
    isNumber: true,
    dropOrder: 4,
  },
]
