/** `tutti export`: streams a record in the format of another tool. */

import { findChain, isPipe } from '../../checkpoint/chain.ts'
import type { CheckpointLine, EventLine, FinishedSpan } from '../../checkpoint/format.ts'
import { readBatches } from '../../checkpoint/reader.ts'
import { ValueError } from '../../foundation/errors.ts'
import type { JsonObject, JsonValue } from '../../foundation/json-value.ts'
import { didYouMean } from '../../foundation/options.ts'
import { expectRecord, findRecord } from '../../record/find-record.ts'
import { readViews } from '../../record/record-views.ts'
import { createRunPass, type RunPass } from '../../views/all-panels.ts'
import { encodeSpans } from '../../telemetry/otel/otlp.ts'
import { exitCodes } from '../exit.ts'
import type { Output } from '../output.ts'
import { lineGapNotes, type RecordGaps } from '../reading/open-record.ts'
import { type ReadingHooks, withReadingProgress } from '../reading/open-record.ts'
import { expectNoRecord, isStandardOutput, writeOutputFile } from '../reading/output-file.ts'
import { CsvTable } from './csv.ts'
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

/** Finds the open spans of one file of a run. Call `addLine` for all lines, and then `toSpans`. */
class OpenSpans {
  /** The earliest start time of a child, by the id of its open parent. */
  readonly #parents = new Map<string, number>()
  /** The span ids of tasks that have started and not ended. */
  readonly #startedTasks = new Set<string>()
  /** The start events of open workflows, by workflow id. */
  readonly #workflows = new Map<unknown, EventLine>()
  #session: EventLine | null = null
  #lastTime = -Infinity

  addLine(line: CheckpointLine): void {
    if (line.section === 'span') this.#addSpan(line)
    else if (line.section === 'event') this.#addEvent(line)
  }

  #addSpan({ span_id, parent_span_id, name, start_time, end_time }: FinishedSpan): void {
    this.#lastTime = Math.max(this.#lastTime, end_time)
    this.#parents.delete(span_id)
    this.#startedTasks.delete(span_id)
    if (span_id === this.#session?.span_id) this.#session = null
    // The parent of a session is a span of the application, which is not in the record.
    if (parent_span_id === null || name === 'session') return
    const earliest = Math.min(start_time, this.#parents.get(parent_span_id) ?? Infinity)
    this.#parents.set(parent_span_id, earliest)
  }

  #addEvent(line: EventLine): void {
    this.#lastTime = Math.max(this.#lastTime, line.event_time)
    if (line.event_type === 'SessionStarted') this.#session ??= line
    else if (line.event_type === 'TaskStarted') this.#startedTasks.add(line.span_id)
    else if (line.event_type === 'tutti.WorkflowStarted') {
      this.#workflows.set(line['workflow_id'], line)
    } else if (line.event_type === 'tutti.WorkflowEnded') {
      this.#workflows.delete(line['workflow_id'])
    }
  }

  /**
   * Returns the open spans. They end at the latest time in the file, and have the attribute
   * `tutti.unfinished`.
   */
  async toSpans(file: string): Promise<FinishedSpan[]> {
    const session = this.#session
    if (session === null) return []
    const { span_id: root, session_id, trace_id } = session
    const toSpan = (name: string, id: string, parent: string | null, more: SpanStart) => ({
      name,
      span_id: id,
      trace_id,
      parent_span_id: parent,
      start_time: more.from,
      end_time: Math.max(this.#lastTime, more.from),
      duration_ms: Math.max(0, this.#lastTime - more.from) * 1000,
      status_code: 'UNSET' as const,
      status_description: null,
      attributes: { session_id, ...more.attributes, 'tutti.unfinished': true },
      events: [],
    })
    const outerOf = (workflow: unknown): string => this.#workflows.get(workflow)?.span_id ?? root
    const spans = [
      toSpan('session', root, null, { from: session.event_time, attributes: { backend: 'tutti' } }),
    ]
    for (const line of this.#workflows.values()) {
      const attributes = { workflow_id: String(line['workflow_id']) }
      const outer = outerOf(line['parent_workflow_id'])
      spans.push(toSpan('workflow', line.span_id, outer, { from: line.event_time, attributes }))
    }
    const known = new Set(spans.map(({ span_id }) => span_id))
    const open = new Set([...this.#parents.keys(), ...this.#startedTasks])
    const others = [...open].filter((id) => !known.has(id))
    const tasks = await findTasks(file, new Set(others))
    for (const id of others) {
      const task = tasks.get(id)
      const from = task?.event_time ?? this.#parents.get(id) ?? this.#lastTime
      const attributes = task === undefined ? {} : taskAttributes(task)
      // A scope has no event, and is known only from its children.
      const name = task === undefined ? 'scope' : 'task'
      spans.push(toSpan(name, id, outerOf(attributes['workflow_id']), { from, attributes }))
    }
    return spans
  }
}

interface SpanStart {
  readonly from: number
  readonly attributes: JsonObject
}

function taskAttributes({ backend, task_id, attributes }: EventLine): Record<string, JsonValue> {
  const { executable, task_type, workflow_id } = attributes
  const workflow = workflow_id === undefined ? {} : { workflow_id }
  return { backend, task_id, executable: executable ?? '', task_type: task_type ?? '', ...workflow }
}

/**
 * Finds the events with which the tasks of these spans begin; none in a pipe, which cannot be read
 * a second time.
 */
async function findTasks(file: string, ids: ReadonlySet<string>): Promise<Map<string, EventLine>> {
  const found = new Map<string, EventLine>()
  if (ids.size === 0 || isPipe(file)) return found
  for await (const batch of readBatches(file, { skipSpans: true })) {
    for (const line of batch) {
      if (line.section !== 'event' || line.task_id === null || !ids.has(line.span_id)) continue
      if (!found.has(line.span_id)) found.set(line.span_id, line)
    }
  }
  return found
}
