/** The state of one task's program according to the record, and where its output is. */

import { readSessionStart } from '../../../checkpoint/chain.ts'
import type { EventLine } from '../../../checkpoint/format.ts'
import { type LinePosition, readBatches } from '../../../checkpoint/reader.ts'
import { recordIdOf } from '../../../checkpoint/results-file.ts'
import { ResultsReader, type ValueLocation } from '../../../checkpoint/results-reader.ts'

export const streams = ['stdout', 'stderr'] as const
export type Stream = (typeof streams)[number]
type Texts = Readonly<Record<Stream, string>>

const ends: ReadonlySet<string> = new Set(['TaskCompleted', 'TaskFailed', 'TaskCanceled'])
const starts: ReadonlySet<string> = new Set(['TaskStarted', 'tutti.AttemptStarted'])

/** The last event of a task, and the file that contains it. */
export interface TaskEnd {
  readonly event: EventLine
  readonly file: string
}

/** Reads a growing record: each `read` continues where the last one stopped. */
export class TaskStory {
  readonly uid: string
  readonly #files: readonly string[]
  #start: EventLine | null = null
  #end: TaskEnd | null = null
  #attempts = 0
  #at = 0
  #from: LinePosition | undefined

  /** `files` are all files of the run, oldest first. */
  constructor(uid: string, files: readonly string[]) {
    this.uid = uid
    this.#files = files
  }

  get end(): TaskEnd | null {
    return this.#end
  }

  get hasEnded(): boolean {
    return this.#end !== null
  }

  get hasStarted(): boolean {
    return this.#start !== null
  }

  /** The number of attempts that have begun, including those of earlier sessions. */
  get attempts(): number {
    return this.#attempts
  }

  /** Whether the task ended without running in this run, for example with a reused result. */
  get neverRan(): boolean {
    const end = this.#end?.event
    return end !== undefined && !this.hasStarted && end.attributes['reused'] !== true
  }

  /** The task kind; `compute` for a program. */
  get kind(): string {
    return String((this.#end?.event ?? this.#start)?.attributes['task_type'] ?? 'compute')
  }

  get node(): string {
    return (this.#end?.event ?? this.#start)?.node_id ?? 'its node'
  }

  async read(): Promise<void> {
    for (; this.#at < this.#files.length; this.#at++) {
      const file = this.#files[this.#at] ?? ''
      const from = this.#from === undefined ? {} : { from: this.#from }
      const batches = readBatches(file, { skipSpans: true, onlyWholeLines: true, ...from })
      let batch = await batches.next()
      for (; batch.done !== true; batch = await batches.next()) {
        for (const line of batch.value) {
          if (line.section === 'event' && line.task_id === this.uid) this.#take(line, file)
        }
      }
      this.#from = this.#at === this.#files.length - 1 ? batch.value.end : undefined
      if (this.#from !== undefined) return
    }
  }

  /** The file to which the stream is written; `null` if the output is captured in memory. */
  fileOf(stream: Stream): string | null {
    const key = `${stream}_path`
    const path = (this.#end?.event.attributes ?? {})[key] ?? this.#start?.attributes[key]
    if (typeof path !== 'string') return null
    // If both streams are written to one file, it is shown only once.
    return stream === 'stderr' && path === this.fileOf('stdout') ? '' : path
  }

  #take(event: EventLine, file: string): void {
    const { event_type: type, attributes } = event
    if (starts.has(type)) {
      this.#attempts++
      // Later attempts write to the same files as the first.
      if (type === 'TaskStarted' || this.#start === null) this.#start = event
      this.#end = null
    }
    // A reused result repeats the last event of the program, which is in an earlier file.
    const isRepeated = attributes['reused'] === true && this.#end !== null
    if (ends.has(type) && !isRepeated) this.#end = { event, file }
  }
}

type Kept = Readonly<Record<Stream, { readonly text: string; readonly isTail: boolean }>>

/** The output of an ended program that was stored with the record; `null` if there is none. */
export async function keptOutput(
  { uid }: TaskStory,
  { event: { attributes }, file }: TaskEnd,
): Promise<Kept | null> {
  const texts = toTexts(parsed(attributes['result'])) ?? toTexts(await keptValue(file, uid))
  if (texts !== null) return toKept(texts, () => false)
  const tails = toTexts({ stdout: attributes['stdout_tail'], stderr: attributes['stderr_tail'] })
  return tails === null ? null : toKept(tails, (text) => Buffer.byteLength(text) >= minCutBytes)
}

const toKept = ({ stdout, stderr }: Texts, isTail: (text: string) => boolean): Kept => ({
  stdout: { text: stdout, isTail: isTail(stdout) },
  stderr: { text: stderr, isTail: isTail(stderr) },
})

/** The minimum size of a truncated tail: 2048 bytes, less an incomplete character. */
const minCutBytes = 2045

function toTexts(value: unknown): Texts | null {
  const { stdout, stderr } = (value ?? {}) as Partial<Record<Stream, unknown>>
  return typeof stdout === 'string' && typeof stderr === 'string' ? { stdout, stderr } : null
}

function parsed(text: unknown): unknown {
  try {
    return typeof text === 'string' ? JSON.parse(text) : null
  } catch {
    return null
  }
}

async function keptValue(file: string, uid: string): Promise<unknown> {
  const start = await readSessionStart(file)
  using results = start === null ? null : ResultsReader.open(file, recordIdOf(start))
  if (results === null) return null
  const found: { last: ValueLocation | null } = { last: null }
  const visit = (one: string, at: ValueLocation): void => {
    if (one === uid) found.last = at
  }
  for (const _ of results.find(visit)) continue
  return found.last === null ? null : (results.read(found.last)?.value ?? null)
}
