/** Reads the state of a task from the record, and finds the output of its program. */

import { isPipe, readSessionStart } from '../checkpoint/chain.ts'
import type { EventLine } from '../checkpoint/format.ts'
import { type LinePosition, readBatches } from '../checkpoint/reader.ts'
import { recordIdOf } from '../checkpoint/results-file.ts'
import { ResultsReader, type ValueLocation } from '../checkpoint/results-reader.ts'
import { systemClock } from '../foundation/clock.ts'
import { terminalEvents } from '../events/vocabulary.ts'
import { numberOf } from '../views/panel.ts'
import { type FailureExample, toFailureExample } from '../views/panels/failures.ts'
import type { TaskLimit } from '../views/texts/task-story.ts'

export const streams = ['stdout', 'stderr'] as const
export type Stream = (typeof streams)[number]
type StreamTexts = Readonly<Record<Stream, string>>

const startEvents: ReadonlySet<string> = new Set(['TaskStarted', 'tutti.AttemptStarted'])

/** Limits the memory for a task with many retries: its first and its latest events are kept. */
const maxEvents = 200
const maxFirstEvents = 20

/** The last event of a task, and the file that contains it. */
export interface FinalEvent {
  readonly event: EventLine
  readonly file: string
}

/** Reads a growing record: each `read` continues where the last one stopped. */
export class TaskHistory {
  readonly uid: string
  readonly #files: readonly string[]
  #events: EventLine[] = []
  #start: EventLine | null = null
  end: FinalEvent | null = null
  /** The number of attempts that have begun, including those of earlier sessions. */
  attempts = 0
  #fileIndex = 0
  #position: LinePosition | undefined

  /** `files` are all files of the run, oldest first. */
  constructor(uid: string, files: readonly string[]) {
    this.uid = uid
    this.#files = files
  }

  /** The first and the latest events of the task, oldest first. */
  get events(): readonly EventLine[] {
    return this.#events
  }

  get hasEnded(): boolean {
    return this.end !== null
  }

  get hasStarted(): boolean {
    return this.#start !== null
  }

  get neverRan(): boolean {
    const end = this.end?.event
    return end !== undefined && !this.hasStarted && end.attributes['reused'] !== true
  }

  get kind(): string {
    return String((this.end?.event ?? this.#start)?.attributes['task_type'] ?? 'compute')
  }

  get node(): string {
    return (this.end?.event ?? this.#start)?.node_id ?? 'its node'
  }

  async read(signal?: AbortSignal): Promise<void> {
    const signalOption = signal === undefined ? {} : { signal }
    // Most lines are of other tasks, and need not be parsed.
    const contains = JSON.stringify(this.uid).slice(1, -1)
    const options = { skipSpans: true, onlyWholeLines: true, contains, ...signalOption }
    for (; this.#fileIndex < this.#files.length; this.#fileIndex++) {
      const file = this.#files[this.#fileIndex] ?? ''
      const from = this.#position === undefined ? {} : { from: this.#position }
      const batches = readBatches(file, { ...options, ...from })
      let batch = await batches.next()
      for (; batch.done !== true; batch = await batches.next()) {
        for (const line of batch.value) {
          if (line.section === 'event' && line.task_id === this.uid) this.#addEvent(line, file)
        }
      }
      this.#position = this.#fileIndex === this.#files.length - 1 ? batch.value.end : undefined
      if (this.#position !== undefined) return
    }
  }

  /**
   * The path of the stream's file; `null` if the stream is captured in memory, `''` if stderr is in
   * the file of stdout.
   */
  fileOf(stream: Stream): string | null {
    const key = `${stream}_path`
    const path = (this.end?.event.attributes ?? {})[key] ?? this.#start?.attributes[key]
    if (typeof path !== 'string') return null
    // If both streams are written to one file, it is shown only once.
    return stream === 'stderr' && path === this.fileOf('stdout') ? '' : path
  }

  #addEvent(event: EventLine, file: string): void {
    const { event_type: type, attributes } = event
    this.#events.push(event)
    if (this.#events.length > maxEvents) this.#events.splice(maxFirstEvents, 1)
    if (startEvents.has(type)) {
      this.attempts++
      // Later attempts write to the same files as the first attempt.
      if (type === 'TaskStarted' || this.#start === null) this.#start = event
      this.end = null
    }
    // A reused result repeats the last event of an earlier file.
    const isRepeated = attributes['reused'] === true && this.end !== null
    if (terminalEvents.has(type) && !isRepeated) this.end = { event, file }
  }
}

export type KeptOutput = Readonly<
  Record<Stream, { readonly text: string; readonly isTail: boolean }>
>

/**
 * Reads the stored output of a program that has ended; `null` if there is none. A stored value of
 * more than `maxBytes` is not read.
 */
export async function readKeptOutput(
  { uid }: TaskHistory,
  { event: { attributes }, file }: FinalEvent,
  maxBytes = Infinity,
): Promise<KeptOutput | null> {
  const texts =
    toStreamTexts(parseJson(attributes['result'])) ??
    toStreamTexts(await readKeptValue(file, uid, maxBytes))
  if (texts !== null) return toKeptOutput(texts, () => false)
  const tails = toStreamTexts({
    stdout: attributes['stdout_tail'],
    stderr: attributes['stderr_tail'],
  })
  return tails === null
    ? null
    : toKeptOutput(tails, (text) => Buffer.byteLength(text) >= minTruncatedBytes)
}

const toKeptOutput = (
  { stdout, stderr }: StreamTexts,
  isTail: (text: string) => boolean,
): KeptOutput => ({
  stdout: { text: stdout, isTail: isTail(stdout) },
  stderr: { text: stderr, isTail: isTail(stderr) },
})

/** The minimum size of a truncated tail: 2048 bytes, minus up to 3 of an incomplete character. */
const minTruncatedBytes = 2045

function toStreamTexts(value: unknown): StreamTexts | null {
  const { stdout, stderr } = (value ?? {}) as Partial<Record<Stream, unknown>>
  return typeof stdout === 'string' && typeof stderr === 'string' ? { stdout, stderr } : null
}

function parseJson(text: unknown): unknown {
  try {
    return typeof text === 'string' ? JSON.parse(text) : null
  } catch {
    return null
  }
}

async function readKeptValue(file: string, uid: string, maxBytes: number): Promise<unknown> {
  const start = await readSessionStart(file)
  using results = start === null ? null : ResultsReader.open(file, recordIdOf(start))
  if (results === null) return null
  const found: { last: ValueLocation | null } = { last: null }
  const keepLast = (one: string, at: ValueLocation): void => {
    if (one === uid) found.last = at
  }
  // Yields between two blocks, so that a session or a dashboard in this process can continue.
  for (const _ of results.locateValues(keepLast))
    await new Promise<void>((go) => systemClock.nextTurn(go))
  const { last } = found
  return last === null || last.bytes > maxBytes ? null : (results.read(last)?.value ?? null)
}

/** Returns the limit of the session for tasks with this name; `null` if there is none. */
export async function readNameLimit(
  files: readonly string[],
  name: string,
): Promise<TaskLimit | null> {
  const file = files.at(-1)
  if (file === undefined || isPipe(file)) return null
  const limits = (await readSessionStart(file))?.attributes['tutti.limits']
  if (typeof limits !== 'object' || limits === null || !Object.hasOwn(limits, name)) return null
  const found = (limits as Record<string, Readonly<Record<string, unknown>> | null>)[name]
  const [concurrent, perSecond] = [numberOf(found?.['concurrent']), numberOf(found?.['per_second'])]
  return { concurrent, per_second: perSecond }
}

/** Returns the failure of a task; `null` if it did not fail. The views keep only one per group. */
export async function readTaskFailure(
  files: readonly string[],
  uid: string,
): Promise<FailureExample | null> {
  if (files.some(isPipe)) return null
  const history = new TaskHistory(uid, files)
  await history.read()
  const end = history.end?.event
  return end?.event_type === 'TaskFailed' ? toFailureExample(end) : null
}
