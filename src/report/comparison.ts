/** The page that compares two runs: what became slower, and the bounds of each run. Pure. */

import { numberText, percentText, rateText, secondsText, shortNames } from '../views/readable.ts'
import { closePage, openPage } from './page/document.ts'
import { type Cell, escape, number, paragraph, section, table, text } from './page/html.ts'
import { problemBox } from './page/run-sections.ts'
import type { ReportData } from './report-data.ts'
import { busyShare } from '../views/texts/bound-measures.ts'
import { describeComparison, doneRate, isComparable } from '../views/texts/comparison-text.ts'
import { minChange, pairRuns, type RunPair } from '../views/texts/comparison-text.ts'
import { describeRun, type NameReport, type RunOverview } from '../views/texts/run-overview.ts'

export function* renderComparison(before: ReportData, after: ReportData): Generator<string> {
  const pair = pairRuns(before, after)
  const { severity, verdict, sentences } = describeComparison(pair)
  yield openPage(pageTitle(before, after))
  yield `<h1>${escape(pageTitle(before, after))}</h1>`
  yield `<p class="verdict ${severity}">${escape(verdict)}</p>`
  yield problemBox(before, 'first run') + problemBox(after, 'second run')
  yield sentences.map(paragraph).join('')
  yield section('totals', 'The two runs', totalsTable(pair))
  yield section('names', 'Durations by name', namesTable(pair))
  yield section('bounds', 'What bounded them', boundsTable(before, after))
  yield closePage({
    before: before.run.sessionId,
    after: after.run.sessionId,
    verdict,
    sentences,
    skipped_lines: { before: before.skippedLines, after: after.skippedLines },
    names: pair.names.map(({ name, a, b }) => ({
      name,
      tasks: { before: a?.total ?? 0, after: b?.total ?? 0 },
      before: a?.done ?? null,
      after: b?.done ?? null,
      done_per_second: {
        before: a === undefined ? null : doneRate(before, a),
        after: b === undefined ? null : doneRate(after, b),
      },
    })),
  })
}

function signedPercent(change: number, unit: string): string {
  const size = Math.round(100 * Math.abs(change))
  return `${size === 0 ? '' : change > 0 ? '+' : '−'}${size} ${unit}`
}

const minShownFactor = 10

/** Describes the change from `a` to `b`. `a` must not be 0. */
function changeText(a: number, b: number, isTime: boolean): string {
  const times = (factor: number): string => `${numberText(Math.round(factor))} times`
  if (b >= minShownFactor * a) return `${times(b / a)} as ${isTime ? 'long' : 'many'}`
  if (b > 0 && a >= minShownFactor * b) return `${times(a / b)} ${isTime ? 'shorter' : 'fewer'}`
  return signedPercent(b / a - 1, '%')
}

function changeCell(
  a: number | null | undefined,
  b: number | null | undefined,
  { isTime = true, isJudged = true } = {},
): Cell {
  if (typeof a !== 'number' || typeof b !== 'number' || a <= 0) return number('-')
  const change = b / a - 1
  const shown = changeText(a, b, isTime)
  if (!isJudged || Math.abs(change) < minChange) return number(shown)
  return { html: `<span class="${change > 0 ? 'up' : 'down'}">${shown}</span>`, isNumber: true }
}

interface Total {
  readonly what: string
  readonly read: (data: RunOverview) => number
  readonly show: (value: number) => string
  /** Whether to mark a change as good or bad if both runs did the same work. Default `false`. */
  readonly isJudged?: boolean
}

const readBusyShare = ({ bounds }: RunOverview): number => busyShare(bounds)

const totals: readonly Total[] = [
  { what: 'tasks', read: ({ counts }) => counts.tasks, show: numberText },
  { what: 'done', read: ({ counts }) => counts.completed, show: numberText },
  { what: 'reused', read: ({ reused }) => reused, show: numberText },
  { what: 'failed', read: ({ counts }) => counts.failed, show: numberText, isJudged: true },
  { what: 'duration', read: (run) => run.durationSeconds, show: secondsText, isJudged: true },
  { what: 'done per second', read: doneRate, show: rateText },
  { what: 'further attempts', read: ({ run }) => run.retries, show: numberText, isJudged: true },
  { what: 'slots', read: ({ bounds }) => bounds.slots, show: numberText },
  { what: 'slots in use', read: readBusyShare, show: percentText },
  {
    what: 'critical path',
    read: ({ bounds }) => bounds.criticalPath.seconds,
    show: secondsText,
    isJudged: true,
  },
]

function totalsTable({ before, after, common }: RunPair): string {
  const isSameWork = common === 'work'
  const hasReused = before.reused + after.reused > 0
  const shown = totals.filter(({ what }) => what !== 'reused' || hasReused)
  const rows = shown.map(({ what, read, show, isJudged = false }) => {
    const [a, b] = [read(before), read(after)]
    const options = { isTime: show === secondsText, isJudged: isJudged && isSameWork }
    const change =
      read === readBusyShare ? number(signedPercent(b - a, 'points')) : changeCell(a, b, options)
    const label = read === doneRate && hasReused ? `${what}, not reused` : what
    return [text(label), number(show(a)), number(show(b)), change]
  })
  const heads = ['what', ...runNames, 'change']
  return (
    paragraph(`First: ${describeRun(before).sentence}`) +
    paragraph(`Second: ${describeRun(after).sentence}`) +
    table('totals of the runs', heads, rows)
  )
}

function pageTitle({ run: a }: ReportData, { run: b }: ReportData): string {
  if (a.sessionId === b.sessionId) return `Comparison: two records of session ${a.sessionId}`
  return `Comparison: first run ${a.sessionId}, second run ${b.sessionId}`
}

const runNames = ['first run', 'second run'] as const

function namesTable({ before, after, names: pairs }: RunPair): string {
  const shortOf = shortNames(pairs.map(({ name }) => name))
  const rows = pairs.map((pair) => {
    const { name, a, b } = pair
    const change = (read: (name: NameReport) => number | null | undefined): Cell =>
      isComparable(pair) ? changeCell(a && read(a), b && read(b)) : number('-')
    const percentile = (rank: 'p50' | 'p95'): Cell[] => [
      number(secondsText(a?.done?.[rank] ?? null)),
      number(secondsText(b?.done?.[rank] ?? null)),
      change(({ done }) => done?.[rank]),
    ]
    return [
      text(shortOf(name)),
      number(a?.total ?? 0),
      number(b?.total ?? 0),
      ...percentile('p50'),
      ...percentile('p95'),
      number(a === undefined ? '-' : rateText(doneRate(before, a))),
      number(b === undefined ? '-' : rateText(doneRate(after, b))),
      change(({ meanWait }) => meanWait),
    ]
  })
  const percentiles = ['p50', 'now', 'change', 'p95', 'now', 'change']
  const heads = ['name', 'tasks', 'now', ...percentiles, 'done/s', 'now', 'wait change']
  return rows.length === 0
    ? ''
    : table('durations of tasks that are done, before and now', heads, rows)
}

function boundsTable(before: ReportData, after: ReportData): string {
  const rows = [before, after].map(({ boundText }, at) => [
    text(runNames[at] ?? ''),
    text(boundText.sentences[0] ?? ''),
  ])
  return table('what bounded the two runs', ['run', 'bound'], rows)
}
