/** `tutti journal verify`: checks whether a checkpoint file is a valid record of a run. */

import { basename } from 'node:path'
import { countText, quoteWord } from '../views/readable.ts'
import { findChain, isPipe, type RecordChain } from '../checkpoint/chain.ts'
import { hasSeekTable, isCompressed } from '../checkpoint/compressed.ts'
import type { CheckpointLine, EventLine, MetricLine } from '../checkpoint/format.ts'
import { type BadLine, type LinePosition, readBatches } from '../checkpoint/reader.ts'
import { recordIdOf, resultsPathOf } from '../checkpoint/results-file.ts'
import { ResultsReader } from '../checkpoint/results-reader.ts'
import { CheckpointError } from '../foundation/errors.ts'
import { EventIds } from '../views/event-ids.ts'
import { counts } from '../views/panels/counts.ts'
import { Pass } from '../views/pass.ts'
import { findHere } from '../views/task-index.ts'
import { markKept, reuse } from '../views/panels/reuse.ts'
import { verify } from '../views/panels/verify.ts'
import { exitCodes } from './exit.ts'
import type { Output } from './output.ts'
import { nearestPath } from '../record/find-record.ts'
import { foreignFile, isForeign } from './reading/open-record.ts'
import { type Followed, withReadingProgress } from './reading/reading-progress.ts'

const maxShown = 10
/** Limits memory for a damaged file; the same limit as in `verify`. */
const maxLineProblems = 100

/**
 * Exit code 0 when the record is valid, 1 when it is not; a file of another kind is an error. A
 * torn last line alone is valid, because a crash leaves one. A truncated compressed file is not: it
 * was complete when it was written. The files of a resumed run are checked one by one, and then as
 * one run. A missing earlier file is a problem, because its content can be neither checked nor
 * resumed; the rest is still checked.
 */
export async function verifyJournal(path: string, output: Output): Promise<number> {
  const { files, missing } = await findChain(path)
  const run = new Pass({ reuse })
  const found: FileVerdict[] = []
  await withReadingProgress(output, async ({ onRead }) => {
    for (const file of files) found.push(await verifyFile(file, run, files.length > 1, onRead))
  })
  const last = found.at(-1)
  if (last === undefined) return exitCodes.unsound
  const { verdict, summary } = last
  if (isForeign(path, { lines: last.lines, bad: summary.bad })) throw foreignFile(path)
  const reused = reuse.show(run.states.reuse)
  const { tasks, events, open: unfinished } = counts.show(run.counts)
  const absent = missing === null ? [] : [`the earlier file ${missing} of the run is missing`]
  const foreign = foreignFiles(files, found)
  const problems = [
    ...absent,
    ...foreign,
    ...found.flatMap((one) => one.problems),
    ...reused.problems,
  ]
  const ofRun = absent.length + foreign.length + reused.problemCount
  const problemCount = found.reduce((sum, one) => sum + one.problemCount, ofRun)
  const whole = { ...verdict, tasks, events, unfinished }
  const seekTable = found.some((one) => one.seekTable === false) ? false : last.seekTable
  const notes = found.flatMap((one) => one.notes)
  const parts = { files, missing, problems, problemCount, seekTable, notes }
  const judgement = { verdict: whole, summary, ...parts }
  output.result(toJson(judgement), [
    factsOf(judgement).join(', '),
    ...problems.slice(0, maxShown).map((problem) => `  ${problem}`),
    ...(problemCount > maxShown ? [`  and ${problemCount - maxShown} more`] : []),
    ...notes.map((note) => `  note: ${note}`),
    ...found.flatMap(({ summary: { bad } }, at) => (bad > 0 ? repairHint(files[at] ?? '') : [])),
  ])
  return problemCount === 0 ? exitCodes.ok : exitCodes.unsound
}

/** Not for a pipe, because the copy is written beside the file. */
const repairHint = (file: string): string[] =>
  isPipe(file)
    ? []
    : [`copy the readable lines with: npx tutti journal repair ${quoteWord(nearestPath(file))}`]

/** A run is one session: all its files have the same session id. */
function foreignFiles(files: readonly string[], found: readonly FileVerdict[]): string[] {
  const first = found[0]?.verdict.sessionId ?? null
  return found.flatMap(({ verdict: { sessionId } }, at) => {
    if (first === null || sessionId === null || sessionId === first) return []
    return `${basename(files[at] ?? '')} is of session ${sessionId}, not ${first}`
  })
}

type FileVerdict = Awaited<ReturnType<typeof verifyFile>>

/**
 * Also feeds `run`, the pass over all files. `seekTable` is `null` for a file that is not
 * compressed; `notes` do not make the record invalid.
 */
async function verifyFile(
  path: string,
  run: Pass<{ reuse: typeof reuse }>,
  isOneOfMany: boolean,
  onRead: Followed['onRead'],
) {
  const pass = new Pass({ verify })
  let metrics: MetricLine | null = null
  const lineProblems: string[] = []
  let repeated = 0
  const noteProblem = (problem: string): void => {
    if (lineProblems.length < maxLineProblems) lineProblems.push(problem)
  }
  const onBadLine = (bad: BadLine): void => noteProblem(describeBadLine(bad))
  const eventIds = new EventIds()
  const onLine = (line: CheckpointLine, position: LinePosition): void => {
    if (line.section !== 'event') return
    const earlier = eventIds.add(line.event_id, position.line)
    if (earlier === 0) return
    repeated++
    noteProblem(`line ${position.line}: ${line.event_type} has the event_id of line ${earlier}`)
  }
  const batches = readBatches(path, { onBadLine, onLine, onRead })
  let batch = await batches.next()
  let lines = 0
  let id = ''
  let keepable = 0
  while (batch.done !== true) {
    lines += batch.value.length
    for (const line of batch.value) {
      if (line.section === 'metric') metrics = line
      if (line.section !== 'event') continue
      if (line.event_type === 'SessionStarted') id = recordIdOf(line)
      if (isKeepable(line)) keepable++
      pass.take(line)
      run.take(line)
    }
    batch = await batches.next()
  }
  const notes = [...markKeptValues(path, { id, expected: keepable }, run)]
  const summary = batch.value
  const verdict = verify.show(pass.states.verify, { counts: counts.show(pass.counts), metrics })
  const named = (problem: string): string =>
    isOneOfMany ? `${basename(path)}: ${problem}` : problem
  const cuts = isCompressed(path) && summary.torn !== null ? [describeBadLine(summary.torn)] : []
  const problems = [...lineProblems, ...cuts, ...verdict.problems].map(named)
  const problemCount = summary.bad + repeated + cuts.length + verdict.problemCount
  const seekTable = isCompressed(path) && !isPipe(path) ? await hasSeekTable(path) : null
  return { verdict, summary, lines, problems, problemCount, seekTable, notes }
}

/** Whether a task completed here with a value in its event, which should then be stored. */
const isKeepable = ({ event_type: type, attributes }: EventLine): boolean =>
  type === 'TaskCompleted' && attributes['reused'] !== true && 'result' in attributes

/**
 * Only a stored value can be reused. A value that only its owner may read is not checked. Returns
 * remarks: missing values do not make a record invalid, but their tasks run again.
 */
function markKeptValues(
  path: string,
  { id, expected }: { readonly id: string; readonly expected: number },
  run: Pass<{ reuse: typeof reuse }>,
): string[] {
  const name = basename(resultsPathOf(path))
  const lost = 'its results are lost, and a resume runs their tasks again'
  try {
    using results = ResultsReader.open(path, id)
    let found = 0
    const visit = (uid: string): void => {
      const task = findHere(run.counts.index, uid)
      if (task === -1) return
      found++
      markKept(run.states.reuse, task)
    }
    for (const _ of results?.find(visit) ?? []) continue
    if (found >= expected) return []
    const problem = results === null ? 'is missing' : results.problem
    return problem === null ? [] : [`${name} ${problem}: ${lost}`]
  } catch (error) {
    if (!CheckpointError.isInstance(error)) throw error
    return expected === 0 ? [] : [`${name} cannot be read: its values were not checked`]
  }
}

const describeBadLine = ({ line, offset, reason }: BadLine): string =>
  `line ${line}, byte ${offset}: ${reason}`

/** Claims only what was checked: final states and counters only if the session has ended. */
function factsOf({ verdict, summary, files, problemCount, seekTable }: Judgement): string[] {
  const { tasks, events, unfinished, hasEnded } = verdict
  const { torn, unknown } = summary
  const facts = [`${countText(tasks, 'task')}, ${countText(events, 'event')}`]
  if (problemCount > 0) facts.push(countText(problemCount, 'problem'))
  else facts.push(hasEnded ? 'order ok, 1 terminal each, counters agree' : 'order ok')
  if (events > 0 && !hasEnded) {
    facts.push(`the session has not ended, ${countText(unfinished, 'task')} unfinished`)
  }
  if (files.length > 1) facts.push(`${files.length} files of one run`)
  if (torn !== null) facts.push(`torn tail at line ${torn.line}, byte ${torn.offset}`)
  if (seekTable === false) {
    facts.push('no seek table: the file was cut, or another program has compressed it')
  }
  if (unknown > 0) facts.push(`${countText(unknown, 'line')} of unknown sections`)
  return facts
}

/** `summary` is that of the last file. */
type Judgement = RecordChain & Omit<FileVerdict, 'lines'>

function toJson(judgement: Judgement): object {
  const { verdict, summary, files, missing, problems, problemCount, seekTable, notes } = judgement
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
    files,
    missing_previous_file: missing,
    // The old name of the key, for one version.
    missing_forerunner: missing,
    seek_table: seekTable,
    notes,
  }
}
