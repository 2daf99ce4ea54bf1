/** Two runs side by side: what became slower, and what bounded each. Pure. */

import { countText, secondsText, shortName } from '../views/readable.ts'
import { closePage, openPage } from './page/document.ts'
import { type Cell, escape, number, paragraph, section, table, text } from './page/html.ts'
import { problemBox } from './page/run-sections.ts'
import type { NameReport, ReportData } from './report-data.ts'
import { describeRun, durationOf } from './verdict.ts'

/** A smaller change of a median is noise. */
const noise = 0.05
const mostNamed = 3

export function* renderComparison(before: ReportData, after: ReportData): Generator<string> {
  const words = compareWords(before, after)
  yield openPage(`Comparison: ${before.run.sessionId} and ${after.run.sessionId}`)
  yield `<h1>${escape(before.run.sessionId)} compared with ${escape(after.run.sessionId)}</h1>`
  yield `<p class="verdict ${words.mood}">${escape(words.verdict)}</p>`
  yield problemBox(before, 'first run') + problemBox(after, 'second run')
  yield words.sentences.map(paragraph).join('')
  yield section('totals', 'The two runs', totalsTable(before, after))
  yield section('names', 'Durations by name', namesTable(before, after))
  yield section('bounds', 'What bounded them', boundsTable(before, after))
  yield closePage({
    before: before.run.sessionId,
    after: after.run.sessionId,
    verdict: words.verdict,
    sentences: words.sentences,
    skipped_lines: { before: before.skippedLines, after: after.skippedLines },
    names: pairsOf(before, after).map(({ name, a, b }) => ({
      name,
      before: a?.duration ?? null,
      after: b?.duration ?? null,
    })),
  })
}

interface ComparisonWords {
  readonly mood: 'good' | 'warning' | 'bad'
  readonly verdict: string
  readonly sentences: readonly string[]
}

/** What became slower comes first. */
export function compareWords(before: ReportData, after: ReportData): ComparisonWords {
  const [a, b] = [durationOf(before), durationOf(after)]
  const change = a > 0 ? b / a - 1 : 0
  const isSame = Math.abs(change) < noise
  const openEnds = [...openEnd('first', before), ...openEnd('second', after)]
  const lengths = isSame
    ? `The second run took as long as the first: ${secondsText(b)} after ${secondsText(a)}.`
    : `The second run was ${percent(Math.abs(change))} ${change > 0 ? 'slower' : 'faster'}: ` +
      `${secondsText(b)} after ${secondsText(a)}.`
  const medians = movesOf(before, after, 'p50')
  const named = new Set(medians.map(({ name }) => name))
  // Of a name with another median the slowest tasks differ as well.
  const slowest = movesOf(before, after, 'p95').filter(({ name }) => !named.has(name))
  const told = [
    ...tell('slower', medians, 'median'),
    ...tell('slower', slowest, 'p95'),
    ...tell('faster', medians, 'median'),
    ...tell('faster', slowest, 'p95'),
  ]
  const failed = after.counts.failed - before.counts.failed
  return {
    mood: openEnds.length > 0 ? 'warning' : change >= noise ? 'bad' : 'good',
    verdict: openEnds.length > 0 ? openEnds.join(' ') : lengths,
    sentences: [
      ...told,
      ...(told.length === 0 ? ['No name became slower or faster by 5 % or more.'] : []),
      ...(failed > 0 ? [`${countText(failed, 'more task')} failed than before.`] : []),
      ...(failed < 0 ? [`${countText(-failed, 'task')} fewer failed than before.`] : []),
    ],
  }
}

/** The length of such a run is not known. */
function openEnd(which: string, { facts, run }: ReportData): string[] {
  if (facts.state === 'running') return [`The ${which} run goes on: its numbers are those so far.`]
  if (run.endTime !== null) return []
  return [`The ${which} run has no end: its numbers are those up to its last event.`]
}

/** A name whose tasks took longer or shorter than before. */
interface Move {
  readonly name: string
  readonly before: number
  readonly now: number
  /** Seconds of all its tasks together; negative where they are won. */
  readonly lost: number
}

function movesOf(before: ReportData, after: ReportData, rank: 'p50' | 'p95'): Move[] {
  return pairsOf(before, after)
    .flatMap(({ name, a, b }) => {
      const [old, now] = [a?.duration?.[rank] ?? 0, b?.duration?.[rank] ?? 0]
      const lost = (now - old) * (b?.total ?? 0)
      return old > 0 && now > 0 ? [{ name, before: old, now, lost }] : []
    })
    .filter(({ before: old, now }) => Math.abs(now / old - 1) >= noise)
}

function tell(how: 'slower' | 'faster', moves: readonly Move[], rank: 'median' | 'p95'): string[] {
  const sign = how === 'slower' ? 1 : -1
  const all = moves
    .filter(({ lost }) => sign * lost > 0)
    .toSorted((a, b) => sign * (b.lost - a.lost))
  if (all.length === 0) return []
  const names = all
    .slice(0, mostNamed)
    .map(
      ({ name, before, now }) =>
        `${shortName(name)} (${rank} ${secondsText(before)} before, ${secondsText(now)} now)`,
    )
  const count = all.length === 1 ? 'One name' : countText(all.length, 'name')
  const what = rank === 'median' ? how : `${how} in its slowest tasks`
  const more = all.length > mostNamed ? ', …' : ''
  return [`${count} became ${what}: ${names.join(', ')}${more}.`]
}

const percent = (share: number): string => `${Math.round(100 * share)} %`

interface NamePair {
  readonly name: string
  readonly a: NameReport | undefined
  readonly b: NameReport | undefined
}

function pairsOf(before: ReportData, after: ReportData): NamePair[] {
  const [first, second] = [before, after].map(
    (data) => new Map(data.names.map((name) => [name.name, name])),
  )
  const all = new Set([...(second?.keys() ?? []), ...(first?.keys() ?? [])])
  return Array.from(all, (name) => ({ name, a: first?.get(name), b: second?.get(name) }))
}

/** With its sign; nothing before what rounds to 0. */
function signed(change: number, unit: string): string {
  const size = Math.round(100 * Math.abs(change))
  return `${size === 0 ? '' : change > 0 ? '+' : '−'}${size} ${unit}`
}

/** A cell with a change of which nobody can say whether it is good. */
const plainChange = (a: number, b: number): Cell => number(a > 0 ? signed(b / a - 1, '%') : '-')

/** A cell with a change; more is worse. */
function changeCell(a: number | null = null, b: number | null = null): Cell {
  if (a === null || b === null || a <= 0) return number('-')
  const change = b / a - 1
  const shown = signed(change, '%')
  if (Math.abs(change) < noise) return number(shown)
  return { html: `<span class="${change > 0 ? 'up' : 'down'}">${shown}</span>`, isNumber: true }
}

function totalsTable(before: ReportData, after: ReportData): string {
  const used = ({ bounds }: ReportData): number =>
    bounds.slotSeconds.ran / Math.max(1e-9, bounds.slots * bounds.seconds)
  const row = (
    what: string,
    [a, b]: readonly [number, number],
    show: (value: number) => string,
    change: (a: number, b: number) => Cell = changeCell,
  ): Cell[] => [text(what), number(show(a)), number(show(b)), change(a, b)]
  const pointsChange = (a: number, b: number): Cell => number(signed(b - a, 'points'))
  const plain = (value: number): string => value.toLocaleString('en')
  const counted = (pick: (data: ReportData) => number): [number, number] => [
    pick(before),
    pick(after),
  ]
  const rows = [
    row('duration', counted(durationOf), secondsText),
    row(
      'tasks',
      counted(({ counts }) => counts.tasks),
      plain,
      plainChange,
    ),
    row(
      'failed',
      counted(({ counts }) => counts.failed),
      plain,
    ),
    row(
      'further attempts',
      counted(({ run }) => run.retries),
      plain,
    ),
    row(
      'slots',
      counted(({ bounds }) => bounds.slots),
      plain,
      plainChange,
    ),
    row('slots in use', counted(used), percent, pointsChange),
    row(
      'critical path',
      counted(({ bounds }) => bounds.criticalPath.seconds),
      secondsText,
    ),
  ]
  const heads = ['what', ...sessionNames(before, after), 'change']
  return (
    paragraph(`First: ${describeRun(before).sentence}`) +
    paragraph(`Second: ${describeRun(after).sentence}`) +
    table('totals of the runs', heads, rows)
  )
}

/** Runs of one id are told apart by their order. */
function sessionNames(before: ReportData, after: ReportData): readonly [string, string] {
  const [first, second] = [before.run.sessionId, after.run.sessionId]
  return first === second ? ['first run', 'second run'] : [first, second]
}

function namesTable(before: ReportData, after: ReportData): string {
  const rows = pairsOf(before, after).map(({ name, a, b }) => [
    text(shortName(name)),
    number(a?.total ?? 0),
    number(b?.total ?? 0),
    number(secondsText(a?.duration?.p50 ?? null)),
    number(secondsText(b?.duration?.p50 ?? null)),
    changeCell(a?.duration?.p50, b?.duration?.p50),
    number(secondsText(a?.duration?.p95 ?? null)),
    number(secondsText(b?.duration?.p95 ?? null)),
    changeCell(a?.duration?.p95, b?.duration?.p95),
    changeCell(a?.meanWait, b?.meanWait),
  ])
  const heads = ['name', 'tasks', 'now', 'p50', 'now', 'change', 'p95', 'now', 'change', 'waiting']
  return rows.length === 0 ? '' : table('durations before and now', heads, rows)
}

function boundsTable(before: ReportData, after: ReportData): string {
  const names = sessionNames(before, after)
  const rows = [before, after].map(({ words }, at) => [
    text(names[at] ?? ''),
    text(words.sentences[0] ?? ''),
  ])
  return table('what bounded the two runs', ['session', 'bound'], rows)
}
