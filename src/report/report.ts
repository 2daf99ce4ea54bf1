/** Creates the report of a run, or the comparison of two runs, from their records. */

import { isPipe, readSessionStart } from '../checkpoint/chain.ts'
import type { BadLine } from '../checkpoint/reader.ts'
import { readCommandOf, type RunCommand } from '../checkpoint/run-file.ts'
import {
  isWorthKeeping,
  type RecordWriterStates,
  type RecordViewOptions,
  type RecordViews,
  readViews,
  stateNow,
} from '../record/record-views.ts'
import { ScopeFilter } from '../views/panels/scopes.ts'
import { renderComparison } from './comparison.ts'
import { renderReport } from './page/document.ts'
import { collectReport, type ReportData, type RunFacts } from './report-data.ts'

export interface ReportOptions extends Pick<RecordViewOptions, 'signal' | 'onRead'> {
  /** Determines whether the holder of a record's lock is alive. Default: it is. */
  readonly writers?: RecordWriterStates
  /** Throws if the file is not a record. Default: any file gets a report. */
  readonly expectRecord?: (path: string, views: RecordViews) => void
  /** Shows only the tasks of this `flow.scope`. Default: all tasks. */
  readonly scope?: string
}

const maxProblems = 10

const lockHolders: RecordWriterStates = { isWriting: () => Promise.resolve(true) }

/** Yields the page in pieces. Rejects only if a file cannot be read, never for its content. */
export async function makeReport(
  path: string,
  options: ReportOptions = {},
): Promise<Iterable<string>> {
  return renderReport(await readReport(path, options))
}

export async function compareRuns(
  before: string,
  after: string,
  options: ReportOptions = {},
): Promise<Iterable<string>> {
  // Not in parallel, because each reading needs memory for its tasks.
  const first = await readReport(before, options)
  const second = await readReport(after, options)
  return renderComparison(first, second)
}

async function readReport(path: string, options: ReportOptions): Promise<ReportData> {
  const { signal, onRead, scope } = options
  const filter = scope === undefined ? null : new ScopeFilter(scope)
  const problems: string[] = []
  const views = await readViews(path, {
    snapshot: isWorthKeeping(path) ? 'write' : 'use',
    scope: filter,
    ...(signal === undefined ? {} : { signal }),
    ...(onRead === undefined ? {} : { onRead }),
    onBadLine({ line, offset, reason }: BadLine, file) {
      if (problems.length >= maxProblems) return
      problems.push(`${file.split('/').at(-1)}: line ${line}, byte ${offset}: ${reason}`)
    },
  })
  options.expectRecord?.(path, views)
  const facts = await factsOf(path, views, options)
  filter?.expectSeen(facts.state === 'running')
  return collectReport(views, facts, problems)
}

async function factsOf(
  path: string,
  views: RecordViews,
  { writers = lockHolders, scope }: ReportOptions,
): Promise<RunFacts> {
  const { files } = views
  const last = files.at(-1) ?? path
  const { state, now } = await stateNow(views, writers)
  if (isPipe(last)) return { path, state, now, scope: scope ?? null, attributes: {}, command: null }
  const start = await readSessionStart(last)
  const command = readCommandOf(files)
  const line = command === null ? null : commandLine(command)
  return {
    path,
    state,
    now,
    scope: scope ?? null,
    attributes: start?.attributes ?? {},
    command: line,
  }
}

/** The command as it was typed, except for secrets. */
function commandLine({ file, arguments: args, array, launch }: RunCommand): string {
  const options = Object.entries(launch?.options ?? {}).flatMap(([name, value]) => {
    const option = `--${name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`
    return value === true ? [option] : [option, String(value)]
  })
  const run = array === undefined ? ['run'] : ['run', '--array', array, '--']
  const started = launch === undefined ? run : ['launch', ...options, ...launch.more]
  const words = ['npx', 'tutti', ...started, file, ...args.map((one) => one ?? '(secret)')]
  return words.join(' ')
}
