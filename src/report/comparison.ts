/** Two runs side by side: what became slower, and what bounded each. Pure. */

import { countText, secondsText, shortName } from '../views/readable.ts'
import { closePage, openPage } from './page/document.ts'
import { type Cell, escape, number, paragraph, section, table, text } from './page/html.ts'
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
  yield words.sentences.map(paragraph).join('')
  yield section('totals', 'The two runs', totalsTable(before, after))
  yield section('names', 'Durations by name', namesTable(before, after))
  yield section('bounds', 'What bounded them', boundsTable(before, after))
  yield closePage({
    before: before.run.sessionId,
    after: after.run.sessionId,
    verdict: words.verdict,
    sentences: words.sentences,
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
  const verdict = isSame
    ? `The second run took as long as the first: ${secondsText(b)} after ${secondsText(a)}.`
    : `The second run was ${percent(Math.abs(change))} ${change > 0 ? 'slower' : 'faster'}: ` +
      `${secondsText(b)} after ${secondsText(a)}.`
  const moved = pairsOf(before, after)
    .flatMap(({ name, a: old, b: now }) => {
      const [p, q] = [old?.duration?.p50 ?? 0, now?.duration?.p50 ?? 0]
      return p > 0 && q > 0 ? [{ name, p, q, lost: (q - p) * (now?.total ?? 0) }] : []
    })
    .filter(({ p, q }) => Math.abs(q / p - 1) >= noise)
  const slower = moved.filter(({ lost }) => lost > 0).toSorted((x, y) => y.lost - x.lost)
  const faster = moved.filter(({ lost }) => lost < 0).toSorted((x, y) => x.lost - y.lost)
  const tell = (how: string, all: typeof moved): string[] =>
    all.length === 0
      ? []
      : [
          `${all.length === 1 ? 'One name' : countText(all.length, 'name')} became ${how}: ` +
            `${all
              .slice(0, mostNamed)
              .map(
                ({ name, p, q }) =>
                  `${shortName(name)} (median ${secondsText(p)} before, ${secondsText(q)} now)`,
              )
              .join(', ')}${all.length > mostNamed ? ', …' : ''}.`,
        ]
  const failed = after.counts.failed - before.counts.failed
  return {
    mood: change >= noise ? 'bad' : 'good',
    verdict,
    sentences: [
      ...tell('slower', slower),
      ...tell('faster', faster),
      ...(moved.length === 0 ? ['No name became slower or faster by 5 % or more.'] : []),
      ...(failed > 0 ? [`${countText(failed, 'more task')} failed than before.`] : []),
      ...(failed < 0 ? [`${countText(-failed, 'task')} fewer failed than before.`] : []),
    ],
  }
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

/** A cell with a change; more is worse. */
function changeCell(a: number | undefined, b: number | undefined): Cell {
  if (a === undefined || b === undefined || a <= 0) return number('-')
  const change = b / a - 1
  const size = percent(Math.abs(change))
  const shown = size === percent(0) ? size : `${change > 0 ? '+' : '−'}${size}`
  if (Math.abs(change) < noise) return number(shown)
  return { html: `<span class="${change > 0 ? 'up' : 'down'}">${shown}</span>`, isNumber: true }
}

function totalsTable(before: ReportData, after: ReportData): string {
  const used = ({ bounds }: ReportData): number =>
    bounds.slotSeconds.ran / Math.max(1e-9, bounds.slots * bounds.seconds)
  const row = (what: string, a: number, b: number, show: (value: number) => string): Cell[] => [
    text(what),
    number(show(a)),
    number(show(b)),
    changeCell(a, b),
  ]
  const plain = (value: number): string => value.toLocaleString('en')
  const counted = (pick: (data: ReportData) => number): [number, number] => [
    pick(before),
    pick(after),
  ]
  const rows = [
    row('duration', durationOf(before), durationOf(after), secondsText),
    row('tasks', ...counted(({ counts }) => counts.tasks), plain),
    row('failed', ...counted(({ counts }) => counts.failed), plain),
    row('further attempts', ...counted(({ run }) => run.retries), plain),
    row('slots', ...counted(({ bounds }) => bounds.slots), plain),
    row('slots in use', used(before), used(after), percent),
    row('critical path', ...counted(({ bounds }) => bounds.criticalPath.seconds), secondsText),
  ]
  const heads = ['what', before.run.sessionId, after.run.sessionId, 'change']
  return (
    paragraph(`First: ${describeRun(before).sentence}`) +
    paragraph(`Second: ${describeRun(after).sentence}`) +
    table('totals of the runs', heads, rows)
  )
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
  const rows = [before, after].map(({ run, words }) => [
    text(run.sessionId),
    text(words.sentences[0] ?? ''),
  ])
  return table('what bounded the two runs', ['session', 'bound'], rows)
}
