/** Makes the report of a run, or of two runs side by side, from their records. */

import { isPipe, readSessionStart } from '../checkpoint/chain.ts'
import type { BadLine } from '../checkpoint/reader.ts'
import { readCommandOf } from '../checkpoint/run-file.ts'
import { type RecordViews, readViews, stateOf } from '../record/record-views.ts'
import { renderComparison } from './comparison.ts'
import { renderReport } from './page/document.ts'
import { collectReport, type ReportData, type RunFacts } from './report-data.ts'

export interface ReportOptions {
  readonly signal?: AbortSignal
}

const mostProblems = 10

/** The page in pieces. No content of a record makes it reject, only a file that cannot be read. */
export async function makeReport(
  path: string,
  options: ReportOptions = {},
): Promise<Iterable<string>> {
  return renderReport(await readReport(path, options))
}

/** What became slower from the first run to the second. */
export async function compareRuns(
  before: string,
  after: string,
  options: ReportOptions = {},
): Promise<Iterable<string>> {
  // One after the other: each needs memory for its tasks.
  const first = await readReport(before, options)
  const second = await readReport(after, options)
  return renderComparison(first, second)
}

async function readReport(path: string, { signal }: ReportOptions): Promise<ReportData> {
  const problems: string[] = []
  const views = await readViews(path, {
    snapshot: 'use',
    ...(signal === undefined ? {} : { signal }),
    onBadLine({ line, offset, reason }: BadLine, file) {
      if (problems.length >= mostProblems) return
      problems.push(`${file.split('/').at(-1)}: line ${line}, byte ${offset}: ${reason}`)
    },
  })
  return collectReport(views, await factsOf(path, views), problems)
}

async function factsOf(path: string, views: RecordViews): Promise<RunFacts> {
  const { files } = views
  const { state } = stateOf(views)
  const last = files.at(-1) ?? path
  if (isPipe(last)) return { path, state, attributes: {}, command: null }
  const start = await readSessionStart(last)
  const command = readCommandOf(files)
  const told =
    command === null
      ? null
      : ['npx tutti run', command.file, ...command.arguments.map((one) => one ?? '(secret)')].join(
          ' ',
        )
  return { path, state, attributes: start?.attributes ?? {}, command: told }
}
