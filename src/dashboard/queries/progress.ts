/** The progress of tasks by name: counts, durations and the time left. */

import { textAt, valueAt } from '../../views/columns.ts'
import { stages } from '../../views/lifecycle.ts'
import { durationsByName, names, type NameView } from '../../views/panels/names.ts'
import { sumSecondsByName } from '../../views/bounds/name-times.ts'
import { progressText } from '../../views/readable.ts'
import { computeSpeed } from '../../views/panels/pace.ts'
import { statsInPlace } from '../../views/stats.ts'
import type { Filter, ProgressView } from '../protocol.ts'
import { createTaskFilter, type TaskFilter } from './selection.ts'
import { describeNotShown, shownText } from './shown-texts.ts'
import type { RunMoment } from './run-moment.ts'
import { valuesByGroup as found } from './values-by-group.ts'

type NameRow = ProgressView['names'][number]

const maxNames = 500

/** Names with the most tasks come first. */
export function showProgress(moment: RunMoment, filter: Filter): ProgressView {
  const selected = selectTasks(moment, createTaskFilter(moment, filter))
  const all = names.show(moment.names, { durations: false })
  const numbers = numbersByName(moment)
  const rows = all
    .map((view) => ({ view, name: numbers.get(view.name) ?? 0 }))
    .filter(({ name }) => selected === null || (selected.counts[name]?.total ?? 0) > 0)
    .toSorted((a, b) => b.view.total - a.view.total)
  const shown = rows.slice(0, maxNames)
  const durations = selected?.durations() ?? durationsByName(moment.names)
  const { counts, states } = moment.pass
  const seconds = selected === null ? sumSecondsByName({ counts, ...states }, moment.now) : null
  return {
    names: shown.map(({ view, name }) => {
      const nameDurations = durations[name]
      const stats =
        nameDurations === undefined || nameDurations.length === 0
          ? null
          : statsInPlace(nameDurations)
      return {
        ...toRow(moment, view, name),
        ...selected?.counts[name],
        p50: stats?.p50 ?? null,
        p95: stats?.p95 ?? null,
        max: stats?.max ?? null,
        totalSeconds:
          seconds?.[name]?.ranSeconds ?? (stats?.mean ?? 0) * (nameDurations?.length ?? 0),
      }
    }),
    notShown: describeNotShown([rows.length - shown.length, 'name']),
  }
}

function numbersByName({ names: { names: texts } }: RunMoment): ReadonlyMap<string, number> {
  const numbers = new Map<string, number>()
  for (let name = 0; name < texts.size; name++) numbers.set(textAt(texts, name), name)
  return numbers
}

function toRow(
  moment: RunMoment,
  view: NameView,
  name: number,
): Omit<NameRow, 'p50' | 'p95' | 'max' | 'totalSeconds'> {
  const { total, completed, failed, canceled, running, waiting, progress } = view
  const { isRunning, start, now } = moment
  const pace = isRunning ? moment.paces[name] : undefined
  const eta = pace === undefined ? null : computeSpeed(view, pace, start, now)
  return {
    name: shownText(view.name),
    total,
    done: completed,
    failed,
    canceled,
    running: isRunning ? running - waiting : 0,
    waiting: isRunning ? waiting : 0,
    text:
      progress === null || !isRunning ? '' : shownText(progressText(progress.mean, progress.text)),
    etaSeconds: eta?.secondsLeft ?? null,
  }
}

type Counted = Pick<NameRow, 'total' | 'done' | 'failed' | 'canceled' | 'running' | 'waiting'>

interface SelectedTasks {
  /** Indexed by the number of the name. */
  readonly counts: readonly Counted[]
  readonly durations: () => readonly Float64Array[]
}

/** Applies the filter once to each task. Returns `null` if there is no filter. */
function selectTasks(moment: RunMoment, filter: TaskFilter | null): SelectedTasks | null {
  if (filter === null) return null
  const { columns, isRunning, names: state } = moment
  const none = { total: 0, done: 0, failed: 0, canceled: 0, running: 0, waiting: 0 }
  const counts = Array.from({ length: state.names.size }, () => ({ ...none }))
  found.start(columns.tasks, state.names.size)
  for (let task = 0; task < columns.tasks; task++) {
    const passed = columns.passed[task] ?? 0
    const name = columns.name[task] ?? 0
    const nameCounts = counts[name]
    if (passed === 0 || nameCounts === undefined || !filter(task)) continue
    if (!Number.isNaN(valueAt(state.durations, task))) found.add(task, name)
    nameCounts.total++
    if ((passed & stages.completed) !== 0) nameCounts.done++
    else if ((passed & stages.failed) !== 0) nameCounts.failed++
    else if ((passed & stages.canceled) !== 0) nameCounts.canceled++
    else if (!isRunning || columns.isLeft[task] === 1) continue
    else if ((passed & stages.started) === 0) continue
    else if (!state.waitsSince.has(task)) nameCounts.running++
    else nameCounts.waiting++
  }
  const durations = (): readonly Float64Array[] =>
    found.collect(
      (task) => columns.name[task] ?? 0,
      (task) => valueAt(state.durations, task),
    )
  return { counts, durations }
}
