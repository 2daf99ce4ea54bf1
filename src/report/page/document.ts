/** The HTML page of a report: a single file without external resources. Pure. */

import { hash } from 'node:crypto'
import { version } from '../../foundation/version.ts'
import type { ReportData } from '../report-data.ts'
import { describeRun } from '../../views/texts/run-overview.ts'
import { activeTime } from '../../views/bounds/bounds-state.ts'
import { embedJson, escape, section } from './html.ts'
import { boundsSection, factsSection, reportHead, resourcesSection } from './run-sections.ts'
import { script } from './script.ts'
import { style } from './style.ts'
import { batchesSection, failuresSection, graphSection, lossesSection } from './task-sections.ts'
import { namesSection, tasksSection, waitsSection } from './task-sections.ts'
import { timeline } from './charts.ts'

/** Yields the page in pieces, so that long strings are not copied. */
export function* renderReport(data: ReportData): Generator<string> {
  yield openPage(`Report: ${data.run.sessionId}`)
  yield reportHead(data)
  // The bounds of a single scope are unknown, because tasks of other scopes used slots too.
  if (data.facts.scope === null) yield boundsSection(data)
  yield section('timeline', 'Timeline', timeline(data))
  yield namesSection(data)
  yield waitsSection(data)
  yield resourcesSection(data)
  yield failuresSection(data)
  yield lossesSection(data)
  yield graphSection(data)
  yield batchesSection(data)
  yield factsSection(data)
  yield tasksSection(data)
  yield closePage(toPageData(data))
}

const scriptHash = hash('sha256', script, 'base64')
/**
 * Blocks external resources, and all scripts except the one of the page. Protects against a record
 * that injects HTML.
 */
const securityPolicy = [
  "default-src 'none'",
  "style-src 'unsafe-inline'",
  `script-src 'sha256-${scriptHash}'`,
].join('; ')

export const openPage = (title: string): string =>
  '<!doctype html><html lang="en"><head><meta charset="utf-8">' +
  '<meta name="viewport" content="width=device-width, initial-scale=1">' +
  `<meta http-equiv="Content-Security-Policy" content="${securityPolicy}">` +
  `<title>${escape(title)}</title><style>${style}</style></head><body><main>`

export const closePage = (data: object): string =>
  `<p class="muted">Made by tutti ${escape(version)}.</p></main>` +
  `<script type="application/json" id="data">${embedJson(data)}</script>` +
  `<script>${script}</script></body></html>\n`

function toPageData(data: ReportData): object {
  const { run, counts, boundText, bounds, names, tasks, totalTasks, failures, skippedLines } = data
  const { cores, gpus, memory, workers, processes, labels, ...otherClasses } = bounds.slotSeconds
  const noSlotFitted = { cores, gpus, memory, workers, processes, labels }
  const hasTimes = data.health.clockStep === 0
  const from = run.startTime ?? bounds.from
  return {
    session_id: run.sessionId,
    state: data.facts.state,
    verdict: describeRun(data).sentence,
    duration_seconds: data.durationSeconds,
    counts,
    bound: boundText.bound,
    sentences: boundText.sentences,
    improvements: boundText.improvements,
    slots: bounds.slots,
    slot_seconds: hasTimes ? { ...otherClasses, noSlotFitted } : null,
    critical_path: { length: bounds.criticalPath.length, seconds: bounds.criticalPath.seconds },
    names: names.map(({ histogram: _bars, ...name }) => name),
    failures: failures.groups,
    skipped_lines: skippedLines,
    total_tasks: totalTasks,
    scope: data.facts.scope,
    task_columns: ['uid', 'name', 'state', 'worker', 'created_after', 'waited', 'ran', 'scope'],
    tasks: tasks.map(({ uid, name, state, workerId, story, ran, waited, scope }) => [
      uid,
      name,
      state,
      workerId,
      rounded(activeTime(bounds.pauses, story.created) - from),
      waited === null ? null : rounded(waited),
      ran === null ? null : rounded(ran),
      scope,
    ]),
  }
}

const rounded = (seconds: number): number => Math.round(seconds * 1e6) / 1e6
