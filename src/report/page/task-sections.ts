/** The sections of a report about its tasks, workers and models. Pure. */

import {
  commandText,
  countText,
  listCounts,
  numberText,
  userFrames,
  secondsText,
} from '../../views/readable.ts'
import {
  nameAndProgram,
  shortName,
  shortNames,
  timeRangeText,
  timeText,
} from '../../views/readable.ts'
import { exitText, type FailureCause, errorTypeText } from '../../views/panels/failures.ts'
import type { FailureExample } from '../../views/panels/failures.ts'
import type { ReportData } from '../report-data.ts'
import { graphDrawing, histogram } from './charts.ts'
import { type Cell, escape, number, paragraph, section, table, text } from './html.ts'
import { withCode } from './html.ts'
import { activeTime } from '../../views/bounds/bounds-state.ts'
import type { TaskView } from '../../views/tasks.ts'

export function namesSection({ names, otherNames }: ReportData): string {
  if (names.length === 0) return ''
  const shortOf = shortNames(names.map(({ name }) => name))
  const rows = names.map((name) => [
    text(shortOf(name.name)),
    number(name.total),
    number(name.failed),
    number(secondsText(name.ranSeconds || null)),
    number(secondsText(name.duration?.p50 ?? null)),
    number(secondsText(name.duration?.p95 ?? null)),
    number(secondsText(name.duration?.p99 ?? null)),
    number(secondsText(name.duration?.max ?? null)),
    { html: histogram(name.histogram, name.shortest) },
  ])
  const more = otherNames > 0 ? paragraph(`${countText(otherNames, 'other name')} left out.`) : ''
  return section(
    'names',
    'Durations by name',
    table(
      'how long tasks ran, in total and each; bars by doubling durations',
      ['name', 'tasks', 'failed', 'total', 'p50', 'p95', 'p99', 'longest', 'durations'],
      rows,
    ) + more,
  )
}

export function waitsSection({ names }: ReportData): string {
  const startedNames = names.filter(
    ({ meanRun, meanWait }) => meanRun !== null || meanWait !== null,
  )
  if (startedNames.length === 0) return ''
  const shortOf = shortNames(names.map(({ name }) => name))
  const rows = startedNames.map(({ name, meanWait, meanRun }) => {
    const [waited, ran] = [meanWait ?? 0, meanRun ?? 0]
    const share = waited / Math.max(1e-9, waited + ran)
    const bar =
      `<svg viewBox="0 0 100 10" style="width:160px" height="10" preserveAspectRatio="none" ` +
      `role="img" aria-label="waited ${Math.round(100 * share)} %">` +
      `<rect class="idle" width="${(100 * share).toFixed(1)}" height="10"/>` +
      `<rect class="c0" x="${(100 * share).toFixed(1)}" ` +
      `width="${(100 - 100 * share).toFixed(1)}" height="10"/></svg>`
    return [
      text(shortOf(name)),
      number(secondsText(meanWait)),
      number(secondsText(meanRun)),
      { html: bar },
    ]
  })
  return section(
    'waits',
    'Waiting against running',
    table(
      'mean times; a task waits from the end of its dependencies to its start',
      ['name', 'waited', 'ran', 'share of waiting (grey) and running'],
      rows,
    ),
  )
}

export function failuresSection({ failures, counts, run }: ReportData): string {
  if (counts.failed === 0) return ''
  const groups = failures.groups.map(
    ({ count, name, errorType, message, firstTime, lastTime, example }) => {
      const place = example.workerId || example.nodeId
      const details = [place === '' ? '' : `on ${place}`, exitText(example)].filter(
        (one) => one !== '',
      )
      const timesText = timeRangeText(firstTime, lastTime, run.startTime ?? firstTime)
      return (
        `<h3>${numberText(count)} x ${escape(nameAndProgram(name, example.program))}: ` +
        `${causeText(errorTypeText(errorType, example), message)}</h3>` +
        `<p class="muted">${escape(timesText)}; example: <code>${escape(example.task)}</code>` +
        (example.scope === '' ? '' : ` in scope ${escape(example.scope)}`) +
        `${details.length === 0 ? '' : ` ${escape(details.join(', '))}`}</p>` +
        (example.arguments.length === 0
          ? ''
          : `<p><code>${escape(commandText(example.program, example.arguments))}</code></p>`) +
        (example.hint === '' ? '' : `<p>${withCode(example.hint)}</p>`) +
        preformatted(
          example.isFromTutti ? '' : userFrames(example.stack) || example.message,
          `stack of ${example.task}`,
        ) +
        example.causes.map((cause) => nestedCause(cause, example)).join('') +
        outputBlock('stderr', example) +
        outputBlock('stdout', example)
      )
    },
  )
  const { otherGroups } = failures
  const more =
    otherGroups > 0 ? paragraph(`${countText(otherGroups, 'other cause')} left out.`) : ''
  return section('failures', 'Failures', groups.join('') + more)
}

function nestedCause({ path, errorType, message, stack }: FailureCause, example: FailureExample) {
  const frames = preformatted(userFrames(stack), `stack of ${path} of ${example.task}`)
  return `<p><code>${escape(path)}</code>: ${causeText(errorType, message)}</p>${frames}`
}

function outputBlock(stream: 'stderr' | 'stdout', example: FailureExample): string {
  const content = preformatted(example[`${stream}Tail`], `${stream} of ${example.task}`)
  return content === '' ? '' : `<p class="caption">the end of its ${stream}</p>${content}`
}

const preformatted = (content: string, label: string): string =>
  content.trim() === ''
    ? ''
    : `<pre tabindex="0" role="region" aria-label="${escape(label)}">${escape(content)}</pre>`

export function lossesSection({ run, health, lanes }: ReportData): string {
  const { retries, workersLost } = run
  const { nodesLost, nodesDrained, tasksMoved, warnings, warningCounts } = health
  const lossCounts = [
    ['further attempts', retries],
    ['workers lost', workersLost],
    ['model servers lost', health.enginesLost],
    ['nodes lost', nodesLost],
    ['nodes drained', nodesDrained],
    ['tasks that moved', tasksMoved],
    ['late results that were dropped', health.staleResults],
    ['times that a backend was throttled', health.throttled],
    ['errors of subscribers', health.subscriberErrors],
  ] as const
  const rows = lossCounts
    .filter(([, count]) => count > 0)
    .map(([what, count]) => [text(what), number(count)])
  if (rows.length === 0) return ''
  const failing = lanes.lanes.filter(({ failed }) => failed > 0)
  const workers = failing
    .toSorted((a, b) => b.failed - a.failed)
    .slice(0, 10)
    .map(({ id, segments, failed }) => [text(id), number(segments), number(failed)])
  const latest = warnings
    .slice(-20)
    .map(({ time, type, subject, text: words }) => [
      text(timeText(time, run.startTime ?? time)),
      text(type),
      text(subject),
      text(words),
    ])
  const total = Object.values(warningCounts).reduce((sum, one) => sum + one, 0)
  return section(
    'losses',
    'Attempts, lost workers and nodes',
    table('what happened how often', ['what', 'times'], rows) +
      (workers.length === 0
        ? ''
        : table('workers with failed attempts', ['worker', 'attempts', 'failed'], workers)) +
      (latest.length === 0
        ? ''
        : table(
            `${latest.length < total ? 'the latest of ' : ''}${countText(total, 'warning')}`,
            ['time', 'event', 'about', 'reason'],
            latest,
          )),
  )
}

/** Describes a cause. In a damaged record, both parameters may be empty. */
function causeText(errorType: string, message: string): string {
  const first = message.split('\n', 1)[0] ?? ''
  const quoted = first === '' ? '' : `“${escape(first)}”`
  return `${escape(errorType)} ${quoted}`.trim() || 'the record does not say why'
}

export function graphSection({ graph }: ReportData): string {
  const drawing = graphDrawing(graph)
  const { otherNodes, otherEdges, dropped } = graph
  const notShown = listCounts([
    [otherNodes, 'name', 'names'],
    [otherEdges, 'pair of names', 'pairs of names'],
    [dropped, 'dependency', 'dependencies'],
  ])
  const note = notShown.length === 0 ? '' : paragraph(`Left out: ${notShown.join(', ')}.`)
  return drawing === '' ? '' : section('graph', 'Graph', drawing + note)
}

export function batchesSection({ inference }: ReportData): string {
  const { batches, requests, sizes, engines, largestBatch, waitSeconds, computeSeconds } = inference
  if (batches === 0) return ''
  const bars = sizes
    .map(({ upTo, batches: count }, at) => [
      text(at < 2 ? String(upTo) : `${upTo / 2 + 1} to ${upTo}`),
      number(count),
    ])
    .filter(([, count]) => count?.html !== '0')
  const servers = engines.map((engine) => [
    text(engine.workerId || engine.backend),
    number(engine.batches),
    number(engine.requests),
    number(secondsText(engine.waitSeconds / Math.max(1, engine.batches))),
    number(secondsText(engine.computeSeconds / Math.max(1, engine.batches))),
    number(engine.failed),
    number(engine.lost),
  ])
  const fill = Math.round((100 * requests) / (batches * Math.max(1, largestBatch)))
  return section(
    'batches',
    'Batches of prompts',
    paragraph(
      `${countText(requests, 'prompt')} in ${countText(batches, 'batch', 'batches')}: ` +
        `${(requests / batches).toFixed(1)} each, ${fill} % of the largest. A batch waited ` +
        `${secondsText(waitSeconds / batches)} and took ${secondsText(computeSeconds / batches)}.`,
    ) +
      table('batches by size', ['prompts', 'batches'], bars) +
      table(
        'model servers',
        ['server', 'batches', 'prompts', 'waited', 'took', 'failed', 'lost'],
        servers,
      ),
  )
}

const states = ['DONE', 'FAILED', 'CANCELED', 'RUNNING', 'QUEUED', 'SUBMITTED', 'CREATED']

/**
 * Lists tasks for printing. Only failed tasks and the slowest tasks are included, because paper
 * cannot be filtered.
 */
function printedTasks({ failedTasks, slowestTasks, counts, bounds }: ReportData): string {
  const paperTable = (caption: string, tasks: readonly TaskView[]): string =>
    tasks.length === 0 ? '' : table(caption, [...taskHeads, ...timeHeads], tasks.map(rowOf))
  const rowOf = ({ uid, name, state, workerId, story, waited, ran }: TaskView): Cell[] => [
    text(uid),
    text(shortName(name)),
    text(state),
    text(workerId),
    number(secondsText(activeTime(bounds.pauses, story.created) - bounds.from)),
    number(secondsText(waited)),
    number(secondsText(ran)),
  ]
  const shown = failedTasks.length
  const part = shown < counts.failed ? `, the first ${shown} of ${numberText(counts.failed)}` : ''
  return (
    `<div class="paper">${paperTable(`failed tasks${part}`, failedTasks)}` +
    `${paperTable('slowest tasks', slowestTasks)}</div>`
  )
}

const taskHeads = ['task', 'name', 'state', 'worker']
const timeHeads = ['created after', 'waited', 'ran']

/** Creates the section of tasks. On screen, the page's script creates the rows from its data. */
export function tasksSection(data: ReportData): string {
  const { tasks, totalTasks, run } = data
  if (tasks.length === 0) return ''
  const options = states.map((state) => `<option>${state}</option>`).join('')
  const hasScopes = tasks.some(({ scope }) => scope !== '')
  const heads = [...taskHeads, ...timeHeads, ...(hasScopes ? ['scope'] : [])]
  const head = heads
    .map((one) => `<th scope="col"${timeHeads.includes(one) ? ' class="n"' : ''}>${one}</th>`)
    .join('')
  const note =
    totalTasks > tasks.length
      ? `The first ${numberText(tasks.length)} of ${numberText(totalTasks)} ` +
        `tasks; npx tutti tasks ${run.sessionId} --limit ${totalTasks} lists all of them.`
      : countText(totalTasks, 'task')
  return section(
    'tasks',
    'Tasks',
    `<p class="muted">${escape(note)}</p><div class="controls">` +
      '<input id="task-filter" type="search" placeholder="task, name, worker or scope" ' +
      'aria-label="task, name, worker or scope">' +
      `<select id="task-state" aria-label="state"><option value="">any state</option>${options}` +
      '</select><button type="button" id="save">save the data as JSON</button></div>' +
      '<p class="muted screen" id="task-count" aria-live="polite"></p>' +
      printedTasks(data) +
      '<div class="scroll screen" tabindex="0" role="region" aria-label="table of tasks"><table>' +
      `<thead><tr>${head}</tr></thead><tbody id="task-rows"></tbody></table></div>`,
  )
}
