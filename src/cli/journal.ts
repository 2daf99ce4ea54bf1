/** `tutti journal verify`: checks whether a checkpoint file is a sound record of a run. */

import type { MetricLine } from '../checkpoint/format.ts'
import { type BadLine, readBatches, type ReadSummary } from '../checkpoint/reader.ts'
import { counts } from '../views/panels/counts.ts'
import { Pass } from '../views/pass.ts'
import { type Verdict, verify } from '../views/panels/verify.ts'
import { exitCodes } from './exit.ts'
import type { Output } from './output.ts'

const mostShown = 10
/** As many as `verify` keeps: a file of garbage must not fill the memory. */
const mostBadLines = 100

/**
 * Exit code 0 when the record is sound, 1 when it is not. A torn last line alone is sound: a crash
 * leaves one.
 */
export async function verifyJournal(path: string, output: Output): Promise<number> {
  const pass = new Pass({ verify })
  let metrics: MetricLine | null = null
  const badLines: string[] = []
  const onBadLine = (bad: BadLine): void => {
    if (badLines.length < mostBadLines) badLines.push(describeBadLine(bad))
  }
  const batches = readBatches(path, { onBadLine })
  let batch = await batches.next()
  let lines = 0
  while (batch.done !== true) {
    lines += batch.value.length
    for (const line of batch.value) {
      if (line.section === 'event') pass.take(line)
      else if (line.section === 'metric') metrics = line
    }
    batch = await batches.next()
  }
  const summary = batch.value
  const verdict = verify.show(pass.states.verify, { counts: counts.show(pass.counts), metrics })
  if (lines === 0 && summary.bad > 0) return refuseForeign(path, { verdict, summary }, output)
  const problems = [...badLines, ...verdict.problems]
  const problemCount = summary.bad + verdict.problemCount
  output.result(toJson({ verdict, summary, problems, problemCount }), [
    factsOf(verdict, summary, problemCount).join(', '),
    ...problems.slice(0, mostShown).map((problem) => `  ${problem}`),
    ...(problemCount > mostShown ? [`  and ${problemCount - mostShown} more`] : []),
  ])
  return problemCount === 0 ? exitCodes.ok : exitCodes.unsound
}

/** A file of another kind has one problem, not one a line. */
function refuseForeign(
  path: string,
  found: Pick<Judgement, 'verdict' | 'summary'>,
  output: Output,
): number {
  const problem = `${path} is not a record of tutti`
  output.result(toJson({ ...found, problems: [problem], problemCount: 1 }), [problem])
  return exitCodes.unsound
}

const describeBadLine = ({ line, offset, reason }: BadLine): string =>
  `line ${line}, byte ${offset}: ${reason}`

/** Claims only what was checked: ends and counters only when the session has ended. */
function factsOf(verdict: Verdict, { torn, unknown }: ReadSummary, problemCount: number): string[] {
  const { tasks, events, unfinished, hasEnded } = verdict
  const facts = [`${tasks} tasks, ${events} events`]
  if (problemCount > 0) facts.push(`${problemCount} problem${problemCount === 1 ? '' : 's'}`)
  else facts.push(hasEnded ? 'order ok, 1 terminal each, counters agree' : 'order ok')
  if (events > 0 && !hasEnded) {
    facts.push(`the session has not ended, ${unfinished} tasks unfinished`)
  }
  if (torn !== null) facts.push(`torn tail at line ${torn.line}, byte ${torn.offset}`)
  if (unknown > 0) facts.push(`${unknown} lines of unknown sections`)
  return facts
}

interface Judgement {
  readonly verdict: Verdict
  readonly summary: ReadSummary
  readonly problems: readonly string[]
  readonly problemCount: number
}

function toJson({ verdict, summary, problems, problemCount }: Judgement): object {
  return {
    sound: problemCount === 0,
    tasks: verdict.tasks,
    events: verdict.events,
    unfinished: verdict.unfinished,
    has_ended: verdict.hasEnded,
    problems,
    problem_count: problemCount,
    bad_lines: summary.bad,
    torn: summary.torn,
    unknown: summary.unknown,
  }
}
