/** `tutti export`: a record in the format of another tool, as a stream. */

import { findChain } from '../../checkpoint/chain.ts'
import { readBatches } from '../../checkpoint/reader.ts'
import { ValueError } from '../../foundation/errors.ts'
import { didYouMean } from '../../foundation/options.ts'
import { findRecord } from '../../record/find-record.ts'
import { readViews } from '../../record/record-views.ts'
import { encodeSpans } from '../../telemetry/otel/otlp.ts'
import { exitCodes } from '../exit.ts'
import type { Output } from '../output.ts'
import { expectRecord } from '../reading/open-record.ts'
import { expectNoRecord, isStandardOutput, writePieces } from '../reading/output-file.ts'
import { type Followed, withReadingProgress } from '../reading/reading-progress.ts'
import { csvRows } from './csv.ts'
import { OpenSpans } from './open-spans.ts'
import { perfettoTrace } from './perfetto.ts'
import { prometheusText } from './prometheus.ts'

export interface ExportOptions {
  readonly format: string
  readonly output?: string
  /** OTLP as protobuf instead of JSON. */
  readonly protobuf?: boolean
}

type Pieces = AsyncIterable<string | Uint8Array>

const formats = {
  otlp: (path: string, followed: Followed, { protobuf = false }: ExportOptions): Pieces =>
    encodeSpans(spansOf(path, followed), protobuf ? 'protobuf' : 'json'),
  perfetto: (path: string, followed: Followed): Pieces => perfettoTrace(linesOf(path, followed)),
  csv: async function* (path: string, followed: Followed): Pieces {
    const { pass } = await readViews(path, followed)
    yield* csvRows(pass)
  },
  prometheus: async function* (path: string, followed: Followed): Pieces {
    const { pass } = await readViews(path, followed)
    yield prometheusText(pass)
  },
}

/** To stdout, or to a file that appears when it is complete. */
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
    throw new ValueError(`--protobuf: ${options.format} has one form only`, {
      field: '--protobuf',
      hint: 'It belongs to --format otlp; perfetto is protobuf anyway.',
    })
  }
  const path = await findRecord(what)
  const target = options.output ?? '-'
  const isPrinted = isStandardOutput(target)
  if (!isPrinted) await expectNoRecord(target, [path])
  await expectRecord(path)
  const format = formats[options.format as keyof typeof formats]
  if (isPrinted) {
    const print = async (followed: Followed): Promise<void> => {
      for await (const piece of format(path, followed, options)) {
        if (output.closed.aborted) break
        await output.write(piece)
      }
    }
    // Lines about it would be among those that it prints.
    if (output.isTerminal) await print({ signal: output.closed, onRead() {} })
    else await withReadingProgress(output, print)
    return exitCodes.ok
  }
  const bytes = await withReadingProgress(output, (followed) =>
    writePieces(target, format(path, followed, options)),
  )
  const open = options.format === 'perfetto' ? '; open it in https://ui.perfetto.dev' : ''
  output.result({ path: target, bytes }, [`export  ${target}${open}`])
  return exitCodes.ok
}

/** All lines of the run, file by file. */
async function* linesOf(path: string, followed: Followed) {
  for (const file of (await findChain(path)).files) yield* readBatches(file, followed)
}

const spansAtOnce = 500

async function* spansOf(path: string, followed: Followed) {
  for (const file of (await findChain(path)).files) {
    const open = new OpenSpans()
    for await (const batch of readBatches(file, followed)) {
      for (const line of batch) open.take(line)
      const spans = batch.filter((line) => line.section === 'span')
      for (let at = 0; at < spans.length; at += spansAtOnce) yield spans.slice(at, at + spansAtOnce)
    }
    const unfinished = await open.toSpans(file)
    if (unfinished.length > 0) yield unfinished
  }
}
