/** The page that compares two runs: what became slower, and what bounded each. Pure. */

import { numberText, percentText, rateText, secondsText, shortNames } from '../views/readable.ts'
import { closePage, openPage } from './page/document.ts'
import { type Cell, escape, number, paragraph, section, table, text } from './page/html.ts'
import { problemBox } from './page/run-sections.ts'
import type { ReportData } from './report-data.ts'
import { slotTimeOf } from '../views/words/bound-measures.ts'
import { compareWords } from '../views/words/comparison-words.ts'
import type { NameReport, RunOverview } from '../views/words/run-overview.ts'
import { isComparable, noise, rateOf, RunPair } from '../views/words/run-pair.ts'
import { describeRun } from '../views/words/run-verdict.ts'

export function* renderComparison(before: ReportData, after: ReportData): Generator<string> {
  const pair = new RunPair(before, after)
  const words = compareWords(pair)
  yield openPage(titleOf(before, after))
  yield `<h1>${escape(titleOf(before, after))}</h1>`
  yield `<p class="verdict ${words.severity}">${escape(words.verdict)}</p>`
  yield problemBox(before, 'first run') + problemBox(after, 'second run')
  yield words.sentences.map(paragraph).join('')
  yield section('totals', 'The two runs', totalsTable(pair))
  yield section('names', 'Durations by name', namesTable(pair))
  yield section('bounds', 'What bounded them', boundsTable(before, after))
  yield closePage({
    before: before.run.sessionId,
    after: after.run.sessionId,
    verdict: words.verdict,
    sentences: words.sentences,
    skipped_lines: { before: before.skippedLines, after: after.skippedLines },
    names: pair.names.map(({ name, a, b }) => ({
      name,
      tasks: { before: a?.total ?? 0, after: b?.total ?? 0 },
      before: a?.done ?? null,
      after: b?.done ?? null,
      done_per_second: {
        before: a === undefined ? null : rateOf(before, a),
        after: b === undefined ? null : rateOf(after, b),
      },
    })),
  })
}

/** Adds a sign, unless the change rounds to 0. */
function signed(change: number, unit: string): string {
  const size = Math.round(100 * Math.abs(change))
  return `${size === 0 ? '' : change > 0 ? '+' : '−'}${size} ${unit}`
}

/** Changes by this factor or more are shown as a factor instead of a percentage. */
const minShownFactor = 10

/** The words for a change by a large factor. */
interface ChangeWords {
  readonly more: string
  readonly less: string
}
const ofTimes: ChangeWords = { more: 'longer', less: 'shorter' }
const ofCounts: ChangeWords = { more: 'more', less: 'fewer' }

/** Describes the change from `a`, which is not 0, to `b`. */
function changeText(a: number, b: number, { more, less }: ChangeWords): string {
  const times = (factor: number): string => `${numberText(Math.round(factor))} times`
  if (b >= minShownFactor * a) return `${times(b / a)} ${more}`
  if (b > 0 && a >= minShownFactor * b) return `${times(a / b)} ${less}`
  return signed(b / a - 1, '%')
}

/** A cell for a change that is neither good nor bad. */
const plainChange = (a: number, b: number, words: ChangeWords): Cell =>
  number(a > 0 ? changeText(a, b, words) : '-')

/** A cell for a change where an increase is worse. */
function changeCell(a: number | null = null, b: number | null = null, words = ofTimes): Cell {
  if (a === null || b === null || a <= 0) return number('-')
  const change = b / a - 1
  const shown = changeText(a, b, words)
  if (Math.abs(change) < noise) return number(shown)
  return { html: `<span class="${change > 0 ? 'up' : 'down'}">${shown}</span>`, isNumber: true }
}

interface Total {
  readonly what: string
  readonly of: (data: RunOverview) => number
  readonly show: (value: number) => string
  /** Whether a change is marked as good or bad, if both runs did the same work. Default: never. */
  readonly isJudged?: boolean
}

const used = ({ bounds }: RunOverview): number =>
  bounds.slotSeconds.ran / Math.max(1e-9, slotTimeOf(bounds))

const totals: readonly Total[] = [
  { what: 'tasks', of: ({ counts }) => counts.tasks, show: numberText },
  { what: 'done', of: ({ counts }) => counts.completed, show: numberText },
  { what: 'reused', of: ({ reused }) => reused, show: numberText },
  { what: 'failed', of: ({ counts }) => counts.failed, show: numberText, isJudged: true },
  {
    what: 'duration',
    of: ({ durationSeconds }) => durationSeconds,
    show: secondsText,
    isJudged: true,
  },
  { what: 'done per second', of: rateOf, show: rateText },
  { what: 'further attempts', of: ({ run }) => run.retries, show: numberText, isJudged: true },
  { what: 'slots', of: ({ bounds }) => bounds.slots, show: numberText },
  { what: 'slots in use', of: used, show: percentText },
  {
    what: 'critical path',
    of: ({ bounds }) => bounds.criticalPath.seconds,
    show: secondsText,
    isJudged: true,
  },
]

function totalsTable({ before, after, common }: RunPair): string {
  const isSame = common === 'work'
  const hasReused = before.reused + after.reused > 0
  const shown = totals.filter(({ what }) => what !== 'reused' || hasReused)
  const rows = shown.map(({ what, of, show, isJudged = false }) => {
    const [a, b] = [of(before), of(after)]
    const words = show === secondsText ? ofTimes : ofCounts
    const judged = isJudged && isSame ? changeCell(a, b, words) : plainChange(a, b, words)
    const change = of === used ? number(signed(b - a, 'points')) : judged
    // Reused results do not count as done in the rate.
    const label = of === rateOf && hasReused ? `${what}, not reused` : what
    return [text(label), number(show(a)), number(show(b)), change]
  })
  const heads = ['what', ...runNames, 'change']
  return (
    paragraph(`First: ${describeRun(before).sentence}`) +
    paragraph(`Second: ${describeRun(after).sentence}`) +
    table('totals of the runs', heads, rows)
  )
}

/** Shows which run is first, unless both have the same id, as two files of one session do. */
function titleOf({ run: a }: ReportData, { run: b }: ReportData): string {
  if (a.sessionId === b.sessionId) return `Comparison: two records of session ${a.sessionId}`
  return `Comparison: first run ${a.sessionId}, second run ${b.sessionId}`
}

const runNames = ['first run', 'second run'] as const

function namesTable({ before, after, names: pairs }: RunPair): string {
  const shortOf = shortNames(pairs.map(({ name }) => name))
  const rows = pairs.map((pair) => {
    const { name, a, b } = pair
    const change = (of: (name: NameReport) => number | null | undefined): Cell =>
      isComparable(pair) ? changeCell(a && of(a), b && of(b)) : number('-')
    return [
      text(shortOf(name)),
      number(a?.total ?? 0),
      number(b?.total ?? 0),
      number(secondsText(a?.done?.p50 ?? null)),
      number(secondsText(b?.done?.p50 ?? null)),
      change(({ done }) => done?.p50),
      number(secondsText(a?.done?.p95 ?? null)),
      number(secondsText(b?.done?.p95 ?? null)),
      change(({ done }) => done?.p95),
      number(a === undefined ? '-' : rateText(rateOf(before, a))),
      number(b === undefined ? '-' : rateText(rateOf(after, b))),
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
  const rows = [before, after].map(({ words }, at) => [
    text(runNames[at] ?? ''),
    text(words.sentences[0] ?? ''),
  ])
  return table('what bounded the two runs', ['run', 'bound'], rows)
}
