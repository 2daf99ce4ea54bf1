/** Reads the record of an earlier run and its stored values, in one pass over its files. */

import { findChain, emptyRecordError } from '../../checkpoint/chain.ts'
import { checkpointFormat, type EventLine } from '../../checkpoint/format.ts'
import { type BadLine, readBatches } from '../../checkpoint/reader.ts'
import { recordIdOf } from '../../checkpoint/results-file.ts'
import { findRepaired } from '../../checkpoint/repair.ts'
import { ResultsReader } from '../../checkpoint/results-reader.ts'
import { CheckpointError } from '../../foundation/errors.ts'
import type { JsonObject } from '../../foundation/json-value.ts'
import { RecordedNodes } from './recorded-nodes.ts'
import { type RecordedTask, RecordedTasks, type TaskOrigin } from './recorded-tasks.ts'
import { readTaskName } from '../../views/panel.ts'

/** The record of an earlier run. The caller must close `results`. */
export interface EarlierRecord {
  readonly sessionId: string
  /** The files of the run, the oldest first. */
  readonly files: readonly string[]
  readonly tasks: RecordedTasks
  readonly nodes: RecordedNodes
  /** One reader per file; `null` if no values were stored with that file. */
  readonly results: readonly (ResultsReader | null)[]
  /** The attributes of the last TaskFailed of each failed task; empty without `keepFailures`. */
  readonly failures: ReadonlyMap<RecordedTask, JsonObject>
}

export interface ReadRecordOptions {
  readonly keepFailures: boolean
  readonly nextTurn: () => Promise<void>
}

/**
 * Reads a record. Rejects with a `CheckpointError` if a line is damaged, an earlier file is
 * missing, the files belong to several sessions, or the format is unknown. Accepts an incomplete
 * last line, which a killed process leaves.
 */
export async function readRecord(file: string, options: ReadRecordOptions): Promise<EarlierRecord> {
  const { files, missing } = await findChain(file)
  if (missing !== null) {
    throw new CheckpointError(`${files[0]} continues ${missing}, which is not in the same folder`, {
      code: 'CheckpointMissingError',
      path: missing,
      hint: 'Restore the missing file: it contains finished tasks.',
    })
  }
  const reading = new ResumeReader(options)
  try {
    for (const path of files) await reading.read(path)
    return { ...(await reading.finish(file)), files }
  } catch (error) {
    reading.close()
    throw error
  }
}

class ResumeReader {
  readonly #options: ReadRecordOptions
  readonly #tasks = new RecordedTasks()
  readonly #nodes = new RecordedNodes()
  readonly #results: (ResultsReader | null)[] = []
  readonly #failures = new Map<RecordedTask, JsonObject>()
  #sessionId: string | null = null
  /** The id of the current file. Its results file must have the same id. */
  #fileId = ''

  constructor(options: ReadRecordOptions) {
    this.#options = options
  }

  async read(path: string): Promise<void> {
    this.#tasks.beginFile()
    this.#fileId = ''
    const onBadLine = (bad: BadLine): void => {
      throw damagedError(path, bad)
    }
    for await (const batch of readBatches(path, { onBadLine })) {
      for (const line of batch) if (line.section === 'event') this.#applyEvent(line, path)
    }
    const results = ResultsReader.open(path, this.#fileId)
    this.#results.push(results)
    if (results === null) return
    const steps = results.locateValues((uid, at) => this.#tasks.storeLocation(uid, at))
    while (steps.next().done !== true) await this.#options.nextTurn()
  }

  async finish(path: string): Promise<Omit<EarlierRecord, 'files'>> {
    if (this.#sessionId === null) throw await emptyRecordError(path)
    return {
      sessionId: this.#sessionId,
      tasks: this.#tasks,
      nodes: this.#nodes,
      results: this.#results,
      failures: this.#failures,
    }
  }

  close(): void {
    for (const results of this.#results) results?.[Symbol.dispose]()
  }

  #applyEvent(event: EventLine, path: string): void {
    const { event_type: type, task_id: uid, attributes } = event
    if (type === 'SessionStarted') return this.#beginFile(event, path)
    if (uid === null) return this.#nodes.apply(event)
    switch (type) {
      case 'TaskCreated':
        return this.#create(uid, attributes, path)
      case 'TaskStarted':
        return this.#tasks.addAttempt(uid, toAttemptNumber(attributes['attempt']))
      case 'tutti.AttemptStarted':
        return this.#tasks.addAttempt(uid, toAttemptNumber(event['attempt']))
      case 'tutti.TaskAttempt':
        return this.#tasks.addAttempt(uid, toAttemptNumber(event['attempt']) + 1)
      case 'TaskCompleted':
        return void this.#tasks.end(uid, 'done', attributes['reused'] === true)
      case 'TaskFailed':
        return this.#fail(uid, attributes)
      case 'TaskCanceled':
        return void this.#tasks.end(uid, 'canceled', false)
    }
  }

  #create(uid: string, attributes: JsonObject, path: string): void {
    const isNew = this.#tasks.create(uid, {
      name: readTaskName(attributes),
      hash: toText(attributes['definition_hash']),
      origin: readOrigin(attributes),
      dependencies: toTexts(attributes['dependencies']),
    })
    if (isNew) return
    throw new CheckpointError(`${path} is damaged: it creates task ${uid} twice`, {
      code: 'CheckpointDamagedError',
      path,
      hint: 'Resume a copy of the record that is not damaged, or run everything again.',
    })
  }

  #beginFile(start: EventLine, path: string): void {
    const { session_id: id, attributes } = start
    const { format } = attributes
    if (format !== checkpointFormat) {
      const text = `${path} has the format ${String(format)}, not ${checkpointFormat}`
      throw new CheckpointError(text, { path, hint: 'Resume it with the version that wrote it.' })
    }
    if (this.#sessionId !== null && this.#sessionId !== id) {
      const text = `${path} belongs to session ${id}, but it continues a file of session`
      throw new CheckpointError(`${text} ${this.#sessionId}`, { path })
    }
    this.#sessionId = id
    this.#fileId = recordIdOf(start)
  }

  #fail(uid: string, attributes: JsonObject): void {
    const task = this.#tasks.end(uid, 'failed', false)
    if (task !== null && this.#options.keepFailures) this.#failures.set(task, attributes)
  }
}

function readOrigin({ origin_uid: uid, origin_files_back: back }: JsonObject): TaskOrigin | null {
  const isNumber = typeof back === 'number' && Number.isInteger(back) && back > 0
  return typeof uid === 'string' && isNumber ? { uid, filesBack: back } : null
}

const toText = (value: unknown): string | null => (typeof value === 'string' ? value : null)
const toTexts = (value: unknown): readonly string[] =>
  Array.isArray(value) ? value.filter((one) => typeof one === 'string') : noTexts
const noTexts: readonly never[] = []
const toAttemptNumber = (value: unknown): number =>
  typeof value === 'number' && value > 0 ? value : 1

const damagedError = (path: string, { line, offset, reason }: BadLine): CheckpointError =>
  new CheckpointError(
    `${path} is damaged: line ${line}, byte ${offset.toLocaleString('en')}: ${reason}`,
    {
      code: 'CheckpointDamagedError',
      path,
      hint: repairHint(path),
    },
  )

function repairHint(path: string): string {
  const copy = findRepaired(path)
  if (copy !== null) return `Resume its repaired copy: ${copy}`
  return `Repair it first: npx tutti journal repair ${path}`
}
