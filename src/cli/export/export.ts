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
import { expectRecord } from '../../record/expect-record.ts'
import { lineGapNotes, type RecordGaps } from '../reading/open-record.ts'
import { expectNoRecord, isStandardOutput, writeOutputFile } from '../reading/output-file.ts'
import { type ReadingHooks, withReadingProgress } from '../reading/reading-progress.ts'
import { CsvTable } from './csv.ts'
import { OpenSpans } from './open-spans.ts'
import { perfettoTrace } from './perfetto.ts'
import { prometheusText } from './prometheus.ts'

export interface ExportOptions {
  readonly format: string
  readonly output?: string
  readonly protobuf?: boolean
}

type Chunks = AsyncIterable<string | Uint8Array>

/** The exported record. The export sets `gaps` to the parts that could not be read. */
interface ExportedRecord {
  readonly path: string
  gaps: RecordGaps
}

const exporters = {
  otlp: (
    reading: ExportedRecord,
    followed: ReadingHooks,
    { protobuf = false }: ExportOptions,
  ): Chunks => encodeSpans(readSpans(reading, followed), protobuf ? 'protobuf' : 'json'),
  perfetto: (reading: ExportedRecord, followed: ReadingHooks): Chunks =>
    perfettoTrace(readLines(reading, followed)),
  csv: async function* (reading: ExportedRecord, followed: ReadingHooks): Chunks {
    const pass = createRunPass()
    const table = new CsvTable(pass)
    for await (const batch of readLines(reading, followed)) {
      for (const line of batch) {
        if (line.section !== 'event') continue
        pass.take(line)
        table.addEvent(line)
      }
    }
    yield* table.rows()
  },
  prometheus: async function* (reading: ExportedRecord, followed: ReadingHooks): Chunks {
    yield prometheusText(await readPass(reading, followed))
  },
}

/** Exports a record to stdout, or to a file that appears only when it is complete. */
export async function exportRecord(
  source: string,
  options: ExportOptions,
  output: Output,
): Promise<number> {
  const known = Object.keys(exporters)
  if (!Object.hasOwn(exporters, options.format)) {
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
  const path = await findRecord(source)
  const target = options.output ?? '-'
  const isPrinted = isStandardOutput(target)
  if (!isPrinted) await expectNoRecord(target, [path])
  await expectRecord(path)
  const format = exporters[options.format as keyof typeof exporters]
  const reading: ExportedRecord = { path, gaps: { bad: 0, torn: null, missing: null } }
  if (isPrinted) {
    const print = async (followed: ReadingHooks): Promise<void> => {
      for await (const piece of format(reading, followed, options)) {
        if (output.closed.aborted) break
        await output.write(piece)
      }
    }
    // On a terminal, progress lines would be mixed with the output.
    if (output.isTerminal) await print({ signal: output.closed, onRead() {} })
    else await withReadingProgress(output, print)
    await reportGaps(reading, output)
    return exitCodes.ok
  }
  const bytes = await withReadingProgress(output, (followed) =>
    writeOutputFile(target, format(reading, followed, options)),
  )
  await reportGaps(reading, output)
  const open = options.format === 'perfetto' ? '; open it in https://ui.perfetto.dev' : ''
  output.result({ path: target, bytes }, [`export  ${target}${open}`])
  return exitCodes.ok
}

async function reportGaps({ path, gaps }: ExportedRecord, output: Output): Promise<void> {
  for (const note of await lineGapNotes(path, gaps)) output.problem(note)
}

async function readPass(reading: ExportedRecord, followed: ReadingHooks): Promise<RunPass> {
  const { pass, ...gaps } = await readViews(reading.path, followed)
  reading.gaps = gaps
  return pass
}

/** Lists the files of the run, oldest first. */
async function listFiles(reading: ExportedRecord): Promise<readonly string[]> {
  const { files, missing } = await findChain(reading.path)
  reading.gaps = { ...reading.gaps, missing }
  return files
}

async function* readFileBatches(reading: ExportedRecord, file: string, followed: ReadingHooks) {
  const { bad, torn } = yield* readBatches(file, followed)
  reading.gaps = { ...reading.gaps, bad: reading.gaps.bad + bad, torn }
}

async function* readLines(reading: ExportedRecord, followed: ReadingHooks) {
  for (const file of await listFiles(reading)) yield* readFileBatches(reading, file, followed)
}

const spansPerBatch = 500

async function* readSpans(reading: ExportedRecord, followed: ReadingHooks) {
  for (const file of await listFiles(reading)) {
    const open = new OpenSpans()
    for await (const batch of readFileBatches(reading, file, followed)) {
      for (const line of batch) open.addLine(line)
      const spans = batch.filter((line) => line.section === 'span')
      for (let at = 0; at < spans.length; at += spansPerBatch)
        yield spans.slice(at, at + spansPerBatch)
    }
    const unfinished = await open.toSpans(file)
    if (unfinished.length > 0) yield unfinished
  }
}
