/** Creates the report of a run, or the comparison of two runs, from their records. */

import { isPipe, readSessionStart } from '../checkpoint/chain.ts'
import type { BadLine } from '../checkpoint/reader.ts'
import { readRunCommand, type RunCommand } from '../checkpoint/run-file.ts'
import {
  shouldStoreSnapshot,
  type RecordWriterStates,
  type RecordViewOptions,
  type RecordViews,
  readViews,
  readCurrentState,
} from '../record/record-views.ts'
import { ScopeFilter } from '../views/panels/scopes.ts'
import { renderComparison } from './comparison.ts'
import { renderReport } from './page/document.ts'
import { collectReport, type ReportData, type RunFacts } from './report-data.ts'

export interface ReportOptions extends Pick<RecordViewOptions, 'signal' | 'onRead'> {
  /**
   * Determines whether the process that holds the lock of a record is alive. By default, it is
   * assumed to be alive.
   */
  readonly writers?: RecordWriterStates
  /** Throws if the file is not a record. Default: every file gets a report. */
  readonly expectRecord?: (path: string, views: RecordViews) => void
  /** The `flow.scope` whose tasks are shown. Default: all tasks. */
  readonly scope?: string
  /** The content of the record, if it was read before. Default: it is read now. */
  readonly content?: RecordContent
}

export interface RecordContent {
  readonly views: RecordViews
  readonly skipped: SkippedLines
}

const maxProblems = 10

/** Describes the first lines of a record that were skipped. */
export class SkippedLines {
  readonly texts: string[] = []

  readonly add = ({ line, offset, reason }: BadLine, file: string): void => {
    if (this.texts.length >= maxProblems) return
    this.texts.push(`${file.split('/').at(-1)}: line ${line}, byte ${offset}: ${reason}`)
  }
}

const lockHolders: RecordWriterStates = { isWriting: () => Promise.resolve(true) }

/** Yields the page in pieces. Rejects if a file cannot be read, never because of its content. */
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
  // The files are read one after the other, because each needs memory for its tasks.
  const first = await readReport(before, options)
  const second = await readReport(after, options)
  return renderComparison(first, second)
}

async function readReport(path: string, options: ReportOptions): Promise<ReportData> {
  const { scope } = options
  const filter = scope === undefined ? null : new ScopeFilter(scope)
  const { views, skipped } = options.content ?? (await readContent(path, filter, options))
  options.expectRecord?.(path, views)
  const facts = await collectFacts(path, views, options)
  filter?.expectSeen(facts.state === 'running')
  return collectReport(views, facts, skipped.texts)
}

async function readContent(
  path: string,
  scope: ScopeFilter | null,
  { signal, onRead }: ReportOptions,
): Promise<RecordContent> {
  const skipped = new SkippedLines()
  const views = await readViews(path, {
    snapshot: shouldStoreSnapshot(path) ? 'write' : 'use',
    scope,
    ...(signal === undefined ? {} : { signal }),
    ...(onRead === undefined ? {} : { onRead }),
    onBadLine: skipped.add,
  })
  return { views, skipped }
}

async function collectFacts(
  path: string,
  views: RecordViews,
  { writers = lockHolders, scope }: ReportOptions,
): Promise<RunFacts> {
  const { files } = views
  const last = files.at(-1) ?? path
  const start = isPipe(last) ? null : await readSessionStart(last)
  const command = isPipe(last) ? null : readRunCommand(files)
  return {
    path,
    ...(await readCurrentState(views, writers)),
    scope: scope ?? null,
    attributes: start?.attributes ?? {},
    command: command === null ? null : commandLine(command),
  }
}

function commandLine({ file, arguments: args, array, launch }: RunCommand): string {
  const options = Object.entries(launch?.options ?? {}).flatMap(([name, value]) => {
    const option = `--${name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`
    return value === true ? [option] : [option, String(value)]
  })
  const run = array === undefined ? ['run'] : ['run', '--array', array, '--']
  const startCommand = launch === undefined ? run : ['launch', ...options, ...launch.more]
  const shown = args.map((argument) => argument ?? '(secret)')
  return ['npx', 'tutti', ...startCommand, file, ...shown].join(' ')
}
