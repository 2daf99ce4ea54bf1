/** The sections of a report about the run as a whole. Pure. */

import { countText, numberText, percentText, rateText, secondsText } from '../../views/readable.ts'
import { shortName, timeText } from '../../views/readable.ts'
import type { ReportData } from '../report-data.ts'
import { describeCost, describeRun } from '../../views/texts/run-overview.ts'
import { busyShare, classShareTexts, cpuText } from '../../views/texts/bound-measures.ts'
import { slotOwnerText, totalSlotTime } from '../../views/texts/bound-measures.ts'
import { idleTexts } from '../../views/texts/idle-texts.ts'
import { activeTime } from '../../views/bounds/bounds-state.ts'
import type { SeriesPoint } from '../../views/series.ts'
import { percentLines, legend, shareBar } from './charts.ts'
import { escape, number, paragraph, section, table, text, withCode } from './html.ts'

export function reportHead(data: ReportData): string {
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

/** Lists the problems of a record. In a comparison, `runLabel` names the run. */
export function problemBox(data: ReportData, runLabel = ''): string {
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
  const of = runLabel === '' ? '' : `${runLabel}: `
  const list = firstProblems.map((problem) => `<li>${escape(problem)}</li>`).join('')
  return (
    `<div class="box" role="note"><strong>${escape(`${of}${problems.join('; ')}`)}.</strong> ` +
    `The report shows what can be read.${list === '' ? '' : `<ul>${list}</ul>`}</div>`
  )
}

function keyNumbers(data: ReportData): string {
  const { counts, bounds, run } = data
  const seconds = data.durationSeconds
  const hasTimes = data.health.clockStep === 0
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
    (totalSlotTime(bounds) > 0 && hasTimes && data.facts.scope === null
      ? item(`slots${slotOwnerText(bounds)} in use`, percentText(busyShare(bounds)))
      : '') +
    (hasTimes
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

/** The colours of the classes of slot time, in the order in which they are shown. */
const classColours = {
  ran: 'c0',
  noTaskReady: 'idle',
  cores: 'c1',
  workers: 'c2',
  processes: 'c6',
  gpus: 'c3',
  memory: 'c4',
  labels: 'c5',
  nameLimit: 'c10',
  startingWorkers: 'c8',
  taskOverhead: 'c7',
  heldBack: 'c9',
  nodeAway: 'grey',
} as const

function slotBar(bounds: ReportData['bounds']): string {
  if (totalSlotTime(bounds) === 0) return ''
  const shares = classShareTexts(bounds)
  const parts = (Object.keys(classColours) as (keyof typeof classColours)[])
    .filter((key) => key === 'ran' || bounds.slotSeconds[key] > 0)
    .map((key) => {
      const value = bounds.slotSeconds[key]
      const label = key === 'ran' ? 'ran' : idleTexts[key].state
      return {
        label,
        value,
        colour: classColours[key],
        text: `${shares[key]} (${secondsText(value)})`,
      }
    })
  return shareBar(`the time of all slots${slotOwnerText(bounds)}`, parts)
}

export function boundsSection(data: ReportData): string {
  const { bounds, boundText, health } = data
  const [first = '', ...others] = boundText.sentences
  if (health.clockStep > 0) {
    const lead = `<p class="lead">${escape(first)}</p>`
    return section('bounds', 'What bounded this run', lead + stragglerTable(data))
  }
  const improvements = boundText.improvements.map((one) => `<li>${withCode(one)}</li>`)
  return section(
    'bounds',
    'What bounded this run',
    `<p class="lead">${withCode(first)}</p>${paragraph(others.join(' '))}` +
      slotBar(bounds) +
      (improvements.length === 0
        ? ''
        : `<h3>What would shorten it</h3><ol>${improvements.join('')}</ol>`) +
      pathTable(data) +
      stragglerTable(data),
  )
}

const maxPathRows = 20

function pathTable({ bounds, uidOf, nameOf }: ReportData): string {
  const { tasks, length, seconds: sum, share } = bounds.criticalPath
  if (length < 2) return ''
  const rows = tasks
    .slice(-maxPathRows)
    .map(({ task, start, seconds }) => [
      text(uidOf(task)),
      text(shortName(nameOf(task))),
      number(secondsText(activeTime(bounds.pauses, start) - bounds.from)),
      number(secondsText(seconds)),
    ])
  const last = length > maxPathRows ? `the last ${maxPathRows} tasks of ` : ''
  const caption =
    `${last}the critical path (${countText(length, 'task')}, ${secondsText(sum)}, ` +
    `${percentText(share)} of the run)`
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
  const isKnown = totalSlotTime(bounds) > 0 && health.clockStep === 0
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
    paragraph(efficiencyText(isKnown, data)) +
      table(
        'usage of the nodes',
        ['node', 'backend', 'CPU', 'highest', 'by this run', ...shares],
        rows,
      ) +
      (charts.length === 0 ? '' : charts.join('') + legend(lines)),
  )
}

function efficiencyText(isKnown: boolean, { bounds, ...cpu }: ReportData): string {
  const share = `${percentText(busyShare(bounds))} of the time of the slots${slotOwnerText(bounds)}`
  const slots = isKnown ? `Tasks held ${share}. ` : ''
  if (cpu.cpuPercent === null) return slots
  return `${slots}The processors of the nodes were ${cpuText(cpu)}.`
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
    ...(run.telemetryCost === null
      ? []
      : [['telemetry', describeCost(run.telemetryCost)] as const]),
    ...files.map((file) => ['record', file] as const),
  ]
  const list = rows.map(([name, one]) => `<dt>${escape(name)}</dt><dd>${escape(one)}</dd>`)
  return section('facts', 'About this run', `<dl class="facts">${list.join('')}</dl>`)
}
