/** The sections of a report about the run as a whole. Pure. */

import { countText, numberText, percentText, rateText, secondsText } from '../../views/readable.ts'
import { shortName, timeText } from '../../views/readable.ts'
import type { ReportData } from '../report-data.ts'
import { describeRun } from '../../views/words/run-verdict.ts'
import {
  classSharesOf,
  cpuText,
  sizedBackends,
  slotTimeOf,
} from '../../views/words/bound-measures.ts'
import { activeTime } from '../../views/bounds/bounds-state.ts'
import type { SeriesPoint } from '../../views/series.ts'
import { percentLines, legend, shareBar } from './charts.ts'
import { escape, number, paragraph, section, table, text, withCode } from './html.ts'

export function headOf(data: ReportData): string {
  const { severity, sentence } = describeRun(data)
  const { scope } = data.facts
  const id = data.run.sessionId === '' ? 'of a run' : data.run.sessionId
  return (
    `<h1>Report: session ${escape(id)}</h1>` +
    (scope === null ? '' : paragraph(`Only the tasks of scope ${scope}.`)) +
    `<p class="verdict ${severity}">${escape(sentence)}</p>` +
    problemBox(data) +
    keyNumbers(data)
  )
}

/** Lists the problems of a record; in a comparison, `whose` names the run. */
export function problemBox(data: ReportData, whose = ''): string {
  const { skippedLines, firstProblems, isTorn, missing, health } = data
  const problems: string[] = []
  if (skippedLines > 0) problems.push(`${countText(skippedLines, 'line')} skipped`)
  if (isTorn) problems.push('the last line is incomplete')
  if (missing !== null) problems.push(`the earlier file ${missing} of the run is missing`)
  if (health.lostLines > 0)
    problems.push(`${countText(health.lostLines, 'line')} could not be written to the disk`)
  if (health.clockStep > 0) {
    problems.push(`the clock was changed by ${secondsText(health.clockStep)}`)
  }
  if (health.gapCount > 0) {
    const gaps = countText(health.gapCount, 'gap')
    problems.push(`${gaps} of together ${secondsText(health.gapSeconds)} without any event`)
  }
  if (problems.length === 0) return ''
  const of = whose === '' ? '' : `${whose}: `
  const list = firstProblems.map((problem) => `<li>${escape(problem)}</li>`).join('')
  return (
    `<div class="box" role="note"><strong>${escape(`${of}${problems.join('; ')}`)}.</strong> ` +
    `The report shows what can be read.${list === '' ? '' : `<ul>${list}</ul>`}</div>`
  )
}

function keyNumbers(data: ReportData): string {
  const { counts, bounds, run } = data
  const total = slotTimeOf(bounds)
  const seconds = data.durationSeconds
  const item = (label: string, value: string, isBad = false): string =>
    `<li><strong${isBad ? ' class="bad"' : ''}>${escape(value)}</strong>${escape(label)}</li>`
  return (
    `<ul class="numbers">${item('duration', secondsText(seconds))}` +
    item('tasks', numberText(counts.tasks)) +
    item('done', numberText(counts.completed)) +
    (data.reused > 0 ? item('reused', numberText(data.reused)) : '') +
    item('failed', numberText(counts.failed), counts.failed > 0) +
    (counts.canceled > 0 ? item('canceled', numberText(counts.canceled)) : '') +
    (seconds > 0 ? item('tasks per second', rateText(counts.completed / seconds)) : '') +
    (total > 0 && data.health.clockStep === 0 && data.facts.scope === null
      ? item(`slots${whoseSlots(bounds)} in use`, percentText(bounds.slotSeconds.ran / total))
      : '') +
    (data.health.clockStep === 0
      ? bounds.unsized
          .filter(({ isModel }) => isModel)
          .slice(0, 3)
          .map((one) => item(`${one.backend} busy`, percentText(one.busySeconds / bounds.seconds)))
          .join('')
      : '') +
    (run.retries > 0 ? item('further attempts', numberText(run.retries)) : '') +
    '</ul>'
  )
}

/** If the slots of some backends are unknown, names the backends that the share refers to. */
const whoseSlots = (bounds: ReportData['bounds']): string =>
  bounds.unsized.length === 0 ? '' : ` of ${sizedBackends(bounds)}`

const classLabels = [
  ['ran', 'ran', 'c0'],
  ['noTaskReady', 'no task was ready', 'idle'],
  ['cores', 'ready, but no slot had the cores', 'c1'],
  ['workers', 'ready, but all workers were busy', 'c2'],
  ['processes', 'ready, but as many programs ran as `maxProcesses` allows', 'c6'],
  ['gpus', 'ready, but gpus were short', 'c3'],
  ['memory', 'ready, but memory was short', 'c4'],
  ['labels', 'ready, but no free slot had the labels', 'c5'],
  ['nameLimit', 'ready, and waiting for the limit of its name', 'c10'],
  ['startingWorkers', 'ready, while its worker started', 'c8'],
  ['taskOverhead', 'ready, and just being started', 'c7'],
  ['heldBack', 'ready, and waiting for the scheduler', 'c9'],
  ['nodeAway', 'node away', 'grey'],
] as const

export function boundsSection(data: ReportData): string {
  const { bounds, words, health } = data
  const { criticalPath } = bounds
  const total = slotTimeOf(bounds)
  const [first = '', ...others] = words.sentences
  if (health.clockStep > 0) {
    const lead = `<p class="lead">${escape(first)}</p>`
    return section('bounds', 'What bounded this run', lead + stragglerTable(data))
  }
  const parts = total > 0 ? classSharesOf(bounds) : null
  const shares = classLabels
    .map(([key, label, colour]) => {
      const { seconds: value, text: share } = parts?.[key] ?? { seconds: 0, text: '' }
      return { label, value, colour, text: share && `${share} (${secondsText(value)})` }
    })
    .filter(({ label, value }) => value > 0 || label === 'ran')
  return section(
    'bounds',
    'What bounded this run',
    `<p class="lead">${withCode(first)}</p>${paragraph(others.join(' '))}` +
      (parts === null ? '' : shareBar(`the time of all slots${whoseSlots(bounds)}`, shares)) +
      (words.improvements.length === 0
        ? ''
        : `<h3>What would shorten it</h3><ol>${words.improvements
            .map((one) => `<li>${withCode(one)}</li>`)
            .join('')}</ol>`) +
      (criticalPath.length > 0
        ? paragraph(
            `The critical path has ${countText(criticalPath.length, 'task')} and takes ` +
              `${secondsText(criticalPath.seconds)}, ` +
              `${percentText(criticalPath.share)} of the run.`,
          )
        : '') +
      pathTable(data) +
      stragglerTable(data),
  )
}

const maxPathRows = 20

function pathTable({ bounds, uidOf, nameOf }: ReportData): string {
  const { tasks, length } = bounds.criticalPath
  if (length < 2) return ''
  const rows = tasks
    .slice(-maxPathRows)
    .map(({ task, start, seconds }) => [
      text(uidOf(task)),
      text(shortName(nameOf(task))),
      number(secondsText(activeTime(bounds.pauses, start) - bounds.from)),
      number(secondsText(seconds)),
    ])
  const caption =
    length > maxPathRows
      ? `the last ${maxPathRows} of ${length} tasks of the critical path`
      : 'the critical path'
  return table(caption, ['task', 'name', 'began after', 'ran'], rows)
}

function stragglerTable({ bounds, uidOf, nameOf }: ReportData): string {
  if (bounds.stragglers.length === 0) return ''
  const rows = bounds.stragglers.map(({ task, seconds, median, isRetried }) => [
    text(uidOf(task)),
    text(shortName(nameOf(task))),
    number(`${secondsText(seconds)}${isRetried ? ', in several attempts' : ''}`),
    number(secondsText(median)),
    number(median > 0 ? `${(seconds / median).toFixed(1)} x` : '-'),
  ])
  return table(
    'stragglers: tasks that ran more than twice as long as the median of their name',
    ['task', 'name', 'ran', 'median', 'ratio'],
    rows,
  )
}

export function resourcesSection(data: ReportData): string {
  const { nodes, series, bounds, health } = data
  if (nodes.length === 0) return ''
  const total = slotTimeOf(bounds)
  const isKnown = total > 0 && health.clockStep === 0
  const used = isKnown ? bounds.slotSeconds.ran / total : null
  const value = (one: number | null): string => (one === null ? '-' : `${Math.round(one)} %`)
  const rows = nodes
    .slice(0, 40)
    .map(({ node_id, backend, ...usage }) => [
      text(node_id),
      text(backend),
      number(value(usage.cpu_percent.mean)),
      number(value(usage.cpu_percent.max)),
      number(value(usage.run_cpu_percent.mean)),
      number(value(usage.memory_percent.mean)),
      number(value(usage.memory_percent.max)),
      number(value(usage.gpu_percent.mean)),
      number(value(usage.gpu_percent.max)),
    ])
  /** Converts to the time axis of the timeline. */
  const withoutPauses = (points: readonly SeriesPoint[]): SeriesPoint[] =>
    points.map(({ time, values }) => ({ time: activeTime(bounds.pauses, time), values }))
  const charts = series
    .filter(({ points }) => points.length > 1)
    .slice(0, 12)
    .map(
      ({ node_id, points }) =>
        `<h3>${escape(node_id)}</h3>` +
        percentLines(`usage of ${node_id} over time`, withoutPauses(points), 3),
    )
  const drawn = (line: number): boolean =>
    series.some(({ points }) => points.some(({ values }) => (values[line] ?? null) !== null))
  const lines = [
    { label: 'CPU', colour: 'c0', text: '' },
    { label: 'memory', colour: 'c2', text: '' },
    { label: 'GPU', colour: 'c1', text: '' },
  ].filter((_, line) => drawn(line))
  const shares = ['memory', 'highest', 'GPU', 'highest']
  return section(
    'resources',
    'Resources and efficiency',
    paragraph(efficiencyText(used, data)) +
      table(
        'usage of the nodes',
        ['node', 'backend', 'CPU', 'highest', 'by this run', ...shares],
        rows,
      ) +
      (charts.length === 0 ? '' : charts.join('') + legend(lines)),
  )
}

function efficiencyText(used: number | null, data: ReportData): string {
  const mean = data.cpuPercent
  const whose = whoseSlots(data.bounds)
  const slots =
    used === null ? '' : `Tasks held ${percentText(used)} of the time of the slots${whose}. `
  if (mean === null) return slots
  return `${slots}The processors of the nodes were ${cpuText(mean, data.runCpuPercent)}.`
}

export function factsSection(data: ReportData): string {
  const { facts, run, files } = data
  const value = (one: unknown): string => (typeof one === 'string' ? one : JSON.stringify(one))
  const rows: (readonly [string, string])[] = [
    ...(run.startTime === null ? [] : [['started', timeText(run.startTime)] as const]),
    ...(run.endTime === null ? [] : [['ended', timeText(run.endTime)] as const]),
    ...(facts.command === null ? [] : [['command', facts.command] as const]),
    ...Object.entries(facts.attributes).map(([name, one]) => [name, value(one)] as const),
    ['sessions', String(run.sessions)],
    ...files.map((file) => ['record', file] as const),
  ]
  const list = rows.map(([name, one]) => `<dt>${escape(name)}</dt><dd>${escape(one)}</dd>`)
  return section('facts', 'About this run', `<dl class="facts">${list.join('')}</dl>`)
}
