/** `tutti export`: streams a record in the format of another tool. */

import { findChain } from '../../checkpoint/chain.ts'
import { readBatches } from '../../checkpoint/reader.ts'
import { ValueError } from '../../foundation/errors.ts'
import { didYouMean } from '../../foundation/options.ts'
import { findRecord } from '../../record/find-record.ts'
import { readViews } from '../../record/record-views.ts'
import { createRunPass, type RunPass } from '../../views/all-panels.ts'
import { encodeSpans } from '../../telemetry/otel/otlp.ts'
import { exitCodes } from '../exit.ts'
import type { Output } from '../output.ts'
import { expectRecord, notesOfLines, type RecordGaps } from '../reading/open-record.ts'
import { expectNoRecord, isStandardOutput, writePieces } from '../reading/output-file.ts'
import { type Followed, withReadingProgress } from '../reading/reading-progress.ts'
import { CsvTable } from './csv.ts'
import { OpenSpans } from './open-spans.ts'
import { perfettoTrace } from './perfetto.ts'
import { prometheusText } from './prometheus.ts'

export interface ExportOptions {
  readonly format: string
  readonly output?: string
  /** Writes OTLP as protobuf instead of JSON. */
  readonly protobuf?: boolean
}

type Pieces = AsyncIterable<string | Uint8Array>

/** The exported record, and the parts of it that could not be read. */
interface Reading {
  readonly path: string
  gaps: RecordGaps
}

const formats = {
  otlp: (reading: Reading, followed: Followed, { protobuf = false }: ExportOptions): Pieces =>
    encodeSpans(spansOf(reading, followed), protobuf ? 'protobuf' : 'json'),
  perfetto: (reading: Reading, followed: Followed): Pieces =>
    perfettoTrace(linesOf(reading, followed)),
  csv: async function* (reading: Reading, followed: Followed): Pieces {
    const pass = createRunPass()
    const table = new CsvTable(pass)
    for await (const batch of linesOf(reading, followed)) {
      for (const line of batch) {
        if (line.section !== 'event') continue
        pass.take(line)
        table.take(line)
      }
    }
    yield* table.rows()
  },
  prometheus: async function* (reading: Reading, followed: Followed): Pieces {
    yield prometheusText(await passOf(reading, followed))
  },
}

/** Writes to stdout, or to a file that appears only when it is complete. */
export async function exportRecord(
  what: string,
  options: ExportOptions,
  output: Output,
): Promise<number> {
  const known = Object.keys(formats)
  if (!Object.hasOwn(formats, options.format)) {
    const near = didYouMean(options.format, known)
    throw new ValueError(`--format: there is no format "${options.format}"${near}`, {
      field: '--format',
      hint: `Formats are ${known.join(', ')}.`,
    })
  }
  if (options.protobuf === true && options.format !== 'otlp') {
    throw new ValueError(`--protobuf is for --format otlp, not for ${options.format}`, {
      field: '--protobuf',
      hint: 'Leave it out; perfetto is always protobuf.',
    })
  }
  const path = await findRecord(what)
  const target = options.output ?? '-'
  const isPrinted = isStandardOutput(target)
  if (!isPrinted) await expectNoRecord(target, [path])
  await expectRecord(path)
  const format = formats[options.format as keyof typeof formats]
  const reading: Reading = { path, gaps: { bad: 0, torn: null, missing: null } }
  if (isPrinted) {
    const print = async (followed: Followed): Promise<void> => {
      for await (const piece of format(reading, followed, options)) {
        if (output.closed.aborted) break
        await output.write(piece)
      }
    }
    // No progress lines: they would be mixed with the printed output.
    if (output.isTerminal) await print({ signal: output.closed, onRead() {} })
    else await withReadingProgress(output, print)
    await tellGaps(reading, output)
    return exitCodes.ok
  }
  const bytes = await withReadingProgress(output, (followed) =>
    writePieces(target, format(reading, followed, options)),
  )
  await tellGaps(reading, output)
  const open = options.format === 'perfetto' ? '; open it in https://ui.perfetto.dev' : ''
  output.result({ path: target, bytes }, [`export  ${target}${open}`])
  return exitCodes.ok
}

async function tellGaps({ path, gaps }: Reading, output: Output): Promise<void> {
  for (const note of await notesOfLines(path, gaps)) output.problem(note)
}

async function passOf(reading: Reading, followed: Followed): Promise<RunPass> {
  const { pass, ...gaps } = await readViews(reading.path, followed)
  reading.gaps = gaps
  return pass
}

/** The files of the run, oldest first; earlier files may be missing. */
async function filesOf(reading: Reading): Promise<readonly string[]> {
  const { files, missing } = await findChain(reading.path)
  reading.gaps = { ...reading.gaps, missing }
  return files
}

/** Yields the lines of a file in batches, and records those that could not be read. */
async function* batchesOf(reading: Reading, file: string, followed: Followed) {
  const { bad, torn } = yield* readBatches(file, followed)
  reading.gaps = { ...reading.gaps, bad: reading.gaps.bad + bad, torn }
}

async function* linesOf(reading: Reading, followed: Followed) {
  for (const file of await filesOf(reading)) yield* batchesOf(reading, file, followed)
}

const spansAtOnce = 500

async function* spansOf(reading: Reading, followed: Followed) {
  for (const file of await filesOf(reading)) {
    const open = new OpenSpans()
    for await (const batch of batchesOf(reading, file, followed)) {
      for (const line of batch) open.take(line)
      const spans = batch.filter((line) => line.section === 'span')
      for (let at = 0; at < spans.length; at += spansAtOnce) yield spans.slice(at, at + spansAtOnce)
    }
    const unfinished = await open.toSpans(file)
    if (unfinished.length > 0) yield unfinished
  }
}
