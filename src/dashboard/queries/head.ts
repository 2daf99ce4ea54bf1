/** The header: state, counts, rate, time left, and the sentences of the report. */

import { countOtherOpen, counts } from '../../views/panels/counts.ts'
import { health } from '../../views/panels/health.ts'
import { inference } from '../../views/panels/inference.ts'
import { names, type NameView } from '../../views/panels/names.ts'
import { runSeconds } from '../../views/panels/run.ts'
import { textAt, valueAt } from '../../views/columns.ts'
import { stages } from '../../views/lifecycle.ts'
import { joinPaces } from '../../views/moments/paces.ts'
import { computeSpeed, recentSeconds, sumNames } from '../../views/panels/pace.ts'
import { countText, numberText, percentText } from '../../views/readable.ts'
import type { HeadView, ServingView } from '../protocol.ts'
import type { RunSummary } from './sentences/run-texts.ts'
import { shownText } from './shown-texts.ts'
import type { QuerySource } from './query-source.ts'
import { type RunMoment, startOf } from './run-moment.ts'
import { findFolds } from './stream/folds.ts'

const rateBuckets = 60
const maxColours = 1000
const countedEnds = stages.completed | stages.failed

/** In a replay, `source` is the run until the replayed time, and `whole` is the whole run. */
export function showHead(
  moment: RunMoment,
  source: QuerySource,
  whole: QuerySource,
  { verdict, sentences }: RunSummary,
): HeadView {
  const { now } = moment
  const { states } = moment.pass
  const state = isMissing(source) ? 'no record' : moment.state
  const all = names.show(states.names, { durations: false })
  const serving = showServing(moment, source)
  const since = source.serving?.since ?? null
  const start = whole.pass.counts.events === 0 ? null : startOf(whole.pass, whole.now)
  return {
    sessionId: shownText(source.sessionId),
    record: source.files.at(-1) ?? null,
    state,
    reading: source.reading,
    beginsAt: source.beginsAt,
    startTime: since ?? start,
    endTime: whole.now,
    durationSeconds:
      since === null ? runSeconds(states.run, states.bounds.attended, now) : now - since,
    etaSeconds: timeLeft(moment, all),
    counts: countStates(moment, all),
    serving,
    rate: measureRate(moment),
    verdict: describeSpecial(source, serving) ?? verdict,
    sentences: serving === null ? sentences : [],
    missing: [...source.missing, ...listDropped(moment, whole)],
    folds: findFolds(moment),
    colours: listColours(moment),
  }
}

/**
 * Returns the sentence that the page shows instead of the verdict; `null` if it shows the verdict.
 */
function describeSpecial(source: QuerySource, serving: ServingView | null): string | null {
  if (serving !== null) return describeServing(serving)
  if (isMissing(source)) return 'There is no record to show.'
  return source.reading === null ? null : describeReading(source.reading)
}

const isMissing = ({ files, missing }: QuerySource): boolean =>
  files.length === 0 && missing.length > 0

function showServing({ pass }: RunMoment, { serving }: QuerySource): ServingView | null {
  if (serving === null) return null
  const { models, batches } = inference.show(pass.states.inference)
  const { model, workers, running, queued: waiting } = serving
  const sumOf = (key: 'done' | 'failed'): number => models.reduce((sum, one) => sum + one[key], 0)
  const [done, failed] = [sumOf('done'), sumOf('failed')]
  return { model: shownText(model), workers, running, waiting, done, failed, batches }
}

function describeServing({ model, workers, running, waiting }: ServingView): string {
  const requests = countText(running, 'request')
  return `${countText(workers, 'worker')} of ${model}: ${requests} running, ${waiting} waiting.`
}

function describeReading({ bytes, total }: NonNullable<HeadView['reading']>): string {
  const share = percentText(total === 0 ? 0 : bytes / total)
  return `The record is being read. The numbers are those of its first ${share}.`
}

function timeLeft(moment: RunMoment, all: readonly NameView[]): number | null {
  if (!moment.isRunning) return null
  const pace = joinPaces(moment.paces, Math.floor(moment.now) - recentSeconds + 1)
  return computeSpeed(sumNames(all), pace, moment.start, moment.now).secondsLeft
}

/** Counts tasks by state. The numbers are those of `tutti status`, and their sum is `total`. */
function countStates({ pass, isRunning }: RunMoment, all: readonly NameView[]): HeadView['counts'] {
  const { tasks, completed, failed, canceled, running, queued } = counts.show(pass.counts)
  const { unsubmitted, submitted, left } = countOtherOpen(pass.counts)
  const between = all.reduce((sum, { waiting }) => sum + waiting, 0)
  const endedCounts = { done: completed, failed, canceled, total: tasks }
  if (isRunning) {
    const waiting = between + submitted + unsubmitted
    return { ...endedCounts, running: running - between, queued, waiting, interrupted: left }
  }
  const notBegun = queued + submitted + unsubmitted
  return { ...endedCounts, running: 0, queued: 0, waiting: notBegun, interrupted: running + left }
}

/** Tasks that ran and ended, over the whole run. Canceled and interrupted tasks do not count. */
function measureRate({ columns, names: { isReused }, now, start }: RunMoment): HeadView['rate'] {
  const bucketSeconds = Math.max(1e-3, (now - start) / rateBuckets)
  const values = Array.from({ length: rateBuckets }, () => 0)
  for (let task = 0; task < columns.tasks; task++) {
    if (((columns.passed[task] ?? 0) & countedEnds) === 0) continue
    if (valueAt(isReused, task) !== 0) continue
    const at = Math.floor(((columns.ended[task] ?? 0) - start) / bucketSeconds)
    const bucket = Math.min(rateBuckets - 1, Math.max(0, at))
    values[bucket] = (values[bucket] ?? 0) + 1 / bucketSeconds
  }
  return { bucketSeconds, values }
}

function listDropped({ pass: { states } }: RunMoment, { telemetry }: QuerySource): string[] {
  const { graph, failures } = states
  const { lostLines: recordedLosses, isDegraded } = health.show(states.health)
  const lostLines = Math.max(recordedLosses, telemetry?.lostLines ?? 0)
  const droppedEvents = telemetry?.droppedEvents ?? 0
  return [
    ...(droppedEvents > 0 ? [`${countText(droppedEvents, 'event')} dropped by telemetry`] : []),
    ...(lostLines > 0 ? [`${countText(lostLines, 'line')} of the record lost`] : []),
    ...(isDegraded ? ['the record cannot be written at the moment'] : []),
    ...(graph.dropped > 0
      ? [`${countText(graph.dropped, 'dependency', 'dependencies')} not kept`]
      : []),
    ...(failures.ungrouped > 0
      ? [`${numberText(failures.ungrouped)} failed tasks without a group`]
      : []),
  ]
}

function listColours({ names: { names: texts, total } }: RunMoment): Record<string, number> {
  const colours: Record<string, number> = {}
  let colour = 0
  for (let name = 0; name < texts.size && colour < maxColours; name++) {
    if (valueAt(total, name) === 0) continue
    colours[shownText(textAt(texts, name))] = colour++
  }
  return colours
}
