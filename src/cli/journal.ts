/** `tutti journal verify`, `repair` and `compress`: check a record, or write a copy next to it. */

import { statSync } from 'node:fs'
import { basename } from 'node:path'
import { countText, numberText, quoteArgument } from '../views/readable.ts'
import { findChain, isPipe, type RecordChain } from '../checkpoint/chain.ts'
import { compressRecord, hasSeekTable, isCompressed } from '../checkpoint/compressed.ts'
import type { CheckpointLine, EventLine, MetricLine } from '../checkpoint/format.ts'
import { type BadLine, type LinePosition, readBatches } from '../checkpoint/reader.ts'
import { standardInput } from '../checkpoint/reader.ts'
import { recordIdOf, resultsPathOf } from '../checkpoint/results-file.ts'
import { ResultsReader } from '../checkpoint/results-reader.ts'
import { repairRecord } from '../checkpoint/repair.ts'
import { readRunCommand } from '../checkpoint/run-file.ts'
import { CheckpointError, ValueError } from '../foundation/errors.ts'
import { counts } from '../views/panels/counts.ts'
import { Pass } from '../views/pass.ts'
import { findInFile } from '../views/task-index.ts'
import { markStored, reuse } from '../views/panels/reuse.ts'
import { verify } from '../views/panels/verify.ts'
import { exitCodes } from './exit.ts'
import type { Output } from './output.ts'
import { findRecord, toShortPath } from '../record/find-record.ts'
import { removeSnapshot } from '../record/snapshot.ts'
import { resumeCommand } from './run/resume-command.ts'
import { expectRecord, isNotARecord, notARecordError } from '../record/find-record.ts'
import { expectNotGrowing, type ReadingHooks, withReadingProgress } from './reading/open-record.ts'

const maxShownProblems = 10
/** The maximum number of problems that are kept, to limit the memory for a damaged file. */
const maxLineProblems = 100

/**
 * Resolves with 0 if the record is valid, and with 1 if not. A torn last line is valid, because a
 * crash leaves one; a truncated compressed file is not. The files of a resumed run are checked one
 * by one, and then as one run. A missing earlier file is a problem.
 */
export async function verifyJournal(source: string, output: Output): Promise<number> {
  const path = await findRecord(source)
  const { files, missing } = await findChain(path)
  const run = new Pass({ reuse })
  const found: FileVerdict[] = []
  await withReadingProgress(output, async ({ onRead }) => {
    for (const file of files) found.push(await verifyFile(file, run, files.length > 1, onRead))
  })
  const last = found.at(-1)
  if (last === undefined) return exitCodes.invalidRecord
  const { verdict, summary } = last
  if (isNotARecord(path, { lines: last.lines, bad: summary.bad })) throw notARecordError(path)
  const reused = reuse.show(run.states.reuse)
  const { tasks, events, open: unfinished } = counts.show(run.counts)
  const ofChain = [
    ...(missing === null ? [] : [`the earlier file ${missing} of the run is missing`]),
    ...findForeignFiles(files, found),
  ]
  const problems = [...ofChain, ...found.flatMap((one) => one.problems), ...reused.problems]
  const problemCount = found.reduce(
    (sum, one) => sum + one.problemCount,
    ofChain.length + reused.problemCount,
  )
  const wholeVerdict = { ...verdict, tasks, events, unfinished }
  const seekTable = found.some((one) => one.seekTable === false) ? false : last.seekTable
  const notes = found.flatMap((one) => one.notes)
  const parts = { files, missing, problems, problemCount, seekTable, notes }
  const judgement = { verdict: wholeVerdict, summary, ...parts }
  output.result(toJson(judgement), [
    summaryTexts(judgement).join(', '),
    ...problemLines(problems, problemCount),
    ...notes.map((note) => `  note: ${note}`),
    ...found.flatMap(({ summary: { bad } }, at) => (bad > 0 ? repairHint(files[at] ?? '') : [])),
  ])
  return problemCount === 0 ? exitCodes.ok : exitCodes.invalidRecord
}

/** Lists the first problems, and how many more there are. */
const problemLines = (problems: readonly string[], count: number): string[] => [
  ...problems.slice(0, maxShownProblems).map((problem) => `  ${problem}`),
  ...(count > maxShownProblems ? [`  and ${count - maxShownProblems} more`] : []),
]

/** A pipe cannot be repaired, because the copy is written next to the file. */
const repairHint = (file: string): string[] =>
  isPipe(file)
    ? []
    : [`copy the readable lines with: npx tutti journal repair ${quoteArgument(toShortPath(file))}`]

/** Returns a problem for each file whose session id differs from that of the first file. */
function findForeignFiles(files: readonly string[], found: readonly FileVerdict[]): string[] {
  const first = found[0]?.verdict.sessionId ?? null
  return found.flatMap(({ verdict: { sessionId } }, at) => {
    if (first === null || sessionId === null || sessionId === first) return []
    return `${basename(files[at] ?? '')} is of session ${sessionId}, not ${first}`
  })
}

const windowSize = 65_536

/**
 * Detects events that a record contains twice, by their ids. Remembers the last 65,536 to 131,072
 * ids in two generations. The older generation is dropped as a whole.
 */
class EventIds {
  #newerIds = new Map<string, number>()
  #olderIds = new Map<string, number>()

  /**
   * Stores the line of an event, counted from 1. Returns the line of the previous event with the
   * same id, or 0 if there is none.
   */
  add(id: string, line: number): number {
    if (this.#newerIds.size === windowSize) {
      this.#olderIds = this.#newerIds
      this.#newerIds = new Map()
    }
    const before = this.#newerIds.get(id) ?? this.#olderIds.get(id) ?? 0
    this.#newerIds.set(id, line)
    return before
  }
}

type FileVerdict = Awaited<ReturnType<typeof verifyFile>>

/**
 * Verifies one file, and adds its events to `run`, the pass over all files. In the result,
 * `seekTable` is `null` for a file that is not compressed, and `notes` do not make the record
 * invalid.
 */
async function verifyFile(
  path: string,
  run: Pass<{ reuse: typeof reuse }>,
  isOneOfMany: boolean,
  onRead: ReadingHooks['onRead'],
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
      if (hasResult(line)) keepable++
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

const hasResult = ({ event_type: type, attributes }: EventLine): boolean =>
  type === 'TaskCompleted' && attributes['reused'] !== true && 'result' in attributes

/** Marks tasks with stored values. Missing values are only notes: the record stays valid. */
function markKeptValues(
  path: string,
  { id, expected }: { readonly id: string; readonly expected: number },
  run: Pass<{ reuse: typeof reuse }>,
): string[] {
  const name = basename(resultsPathOf(path))
  const lostText = 'its results are lost, and a resume runs their tasks again'
  try {
    using results = ResultsReader.open(path, id)
    let found = 0
    const visit = (uid: string): void => {
      const task = findInFile(run.counts.index, uid)
      if (task === -1) return
      found++
      markStored(run.states.reuse, task)
    }
    for (const _ of results?.locateValues(visit) ?? []) continue
    if (found >= expected) return []
    const problem = results === null ? 'is missing' : results.problem
    return problem === null ? [] : [`${name} ${problem}: ${lostText}`]
  } catch (error) {
    if (!CheckpointError.isInstance(error)) throw error
    return expected === 0 ? [] : [`${name} cannot be read: its values were not checked`]
  }
}

const describeBadLine = ({ line, offset, reason }: BadLine): string =>
  `line ${line}, byte ${offset}: ${reason}`

function summaryTexts({ verdict, summary, files, problemCount, seekTable }: RunVerdict): string[] {
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

/** The verdict about all files of a run. `summary` describes the last file. */
type RunVerdict = RecordChain & Omit<FileVerdict, 'lines'>

function toJson(judgement: RunVerdict): object {
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
    // The previous name of the key, kept for one version.
    missing_forerunner: missing,
    seek_table: seekTable,
    notes,
  }
}

/**
 * Writes a copy with the readable lines of a record. Resolves with 0 even if the copy is not valid.
 */
export async function repairJournal(source: string, output: Output): Promise<number> {
  const path = await expectCopyable(await findRecord(source))
  const { problems, ...repaired } = await withReadingProgress(output, (followed) =>
    repairRecord(path, followed),
  )
  const { kept, mended, dropped, path: copy } = repaired
  const command = readRunCommand((await findChain(copy)).files)
  output.result({ ...repaired, problems }, [
    `${copy}: ${countText(kept, 'line')} kept, ${dropped} left out` +
      (mended > 0 ? `, ${mended} without the NUL bytes before them` : ''),
    ...problemLines(problems.map(describeBadLine), dropped),
    `check    npx tutti journal verify ${copy}`,
    ...(command === null ? [] : [`resume   ${resumeCommand(copy, command)}`]),
  ])
  return exitCodes.ok
}

export async function compressJournal(source: string, output: Output): Promise<number> {
  const path = await expectCopyable(await findRecord(source))
  if (isCompressed(path)) throw new ValueError(`${path} is compressed already`, { got: path })
  const {
    bytes,
    originalBytes,
    frames,
    path: copy,
  } = await withReadingProgress(output, (followed) => compressRecord(path, followed))
  // Removes both snapshots, because the user may remove the record now, and a snapshot of an
  // earlier copy is outdated.
  for (const file of [path, copy]) await removeSnapshot(file)
  const share = originalBytes === 0 ? 100 : (100 * bytes) / originalBytes
  const value = { path: copy, bytes, original_bytes: originalBytes, frames }
  output.result(value, [
    `${copy}: ${numberText(bytes)} bytes, ${share.toFixed(1)} % of the record`,
    `every command reads it; ${path} is no longer needed`,
  ])
  return exitCodes.ok
}

/**
 * Throws if the record cannot be copied: it is the standard input, is empty, is not a record, or is
 * still being written.
 */
async function expectCopyable(path: string): Promise<string> {
  if (path === standardInput) {
    throw new ValueError(`${path} is not a file: the copy is written next to it`, { got: path })
  }
  await expectRecord(path)
  if (statSync(path).size === 0) {
    throw new ValueError(`${path} is empty: there is nothing to copy`, { code: 'NotARecordError' })
  }
  await expectNotGrowing(path)
  return path
}
