/** The part of a program's output that `tutti logs` has shown, and notes about the rest. */

import { closeSync, readSync } from 'node:fs'
import { StringDecoder } from 'node:string_decoder'
import { ValueError } from '../../../foundation/errors.ts'
import { isRegularFile, openRegularFileSync } from '../../../foundation/regular-file.ts'
import { escapeLines, firstLine } from '../../../views/readable.ts'
import type { Output } from '../../output.ts'
import type { LiveOutput } from './live-output.ts'
import { keptOutput, type Stream, streams, type TaskEnd, type TaskStory } from './task-story.ts'

/** The place where the text of a stream was found. */
type Source = 'file' | 'live' | 'record' | 'tail'

/** Longer parts of a line are shown before the line is complete. */
const maxPartLength = 65_536
/** JSON needs up to six characters for one, and V8 strings are limited to 2^29. */
const maxCollected = 2 ** 26

const chunkBytes = 65_536
/** The number of bytes before the position that are compared with those of the last call. */
const comparedBytes = 1024
const lineBreak = 0x0a

/** With `--json`, all output is collected and shown when the task has ended. */
export class ShownOutput {
  readonly story: TaskStory
  readonly #live: LiveOutput
  readonly #output: Output
  readonly #files = new Map<string, OutputFile>()
  readonly #sources = new Map<Stream, Source>()
  /** Streams with a line that was shown only partly. */
  readonly #openLines = new Set<Stream>()
  /** For text, the part of the last line not shown yet; for JSON, the whole text. */
  readonly #pending: Record<Stream, string> = { stdout: '', stderr: '' }

  constructor(story: TaskStory, live: LiveOutput, output: Output) {
    this.story = story
    this.#live = live
    this.#output = output
  }

  get #isInMemory(): boolean {
    const isProgram = this.story.kind === 'compute'
    return isProgram && streams.some((stream) => this.story.fileOf(stream) === null)
  }

  /** Whether all output so far can be read. */
  get isComplete(): boolean {
    return !this.#isInMemory || this.#live.isAnswered || this.#live.problem !== null
  }

  /** Requests output that only the running session has. */
  ask(): void {
    if (this.#isInMemory) this.#live.ask()
  }

  /** Shows the output written to files since the last call. */
  async update(): Promise<void> {
    await this.story.read()
    for (const stream of streams) {
      const own = this.story.fileOf(stream)
      if (own === '') continue
      const path = own ?? this.#live.pathOf(stream)
      const file = this.#files.get(path) ?? new OutputFile(path)
      this.#files.set(path, file)
      // The session writes the output of all attempts to the same files, one after another.
      const attempt = own === null ? 0 : this.story.attempts
      for (const text of file.read(attempt)) await this.#take(stream, text)
      if (file.isFound) this.#sources.set(stream, own === null ? 'live' : 'file')
    }
  }

  /** Shows output that only the record has, and reports missing output. */
  async finish(): Promise<void> {
    await this.update()
    const { end, uid, kind } = this.story
    const kept = end === null || kind !== 'compute' ? null : await keptOutput(this.story, end)
    for (const stream of streams) {
      const isShown = this.#sources.has(stream) || this.story.fileOf(stream) !== null
      if (isShown || kept === null) continue
      this.#sources.set(stream, kept[stream].isTail ? 'tail' : 'record')
      await this.#take(stream, kept[stream].text)
    }
    const notes = this.#notes()
    if (this.#output.form === 'json') {
      const sources = streams.map((stream) => [stream, this.#sources.get(stream) ?? null])
      const source = Object.fromEntries(sources) as object
      const value = { uid, ended: this.story.hasEnded, ...this.#pending, source, notes }
      return this.#output.result(value, [])
    }
    for (const stream of streams) {
      const isOpen = this.#pending[stream] !== '' || this.#openLines.has(stream)
      if (isOpen) await this.#take(stream, '\n')
    }
    for (const note of notes) this.#output.problem(note)
  }

  #notes(): string[] {
    const { uid, end, kind, hasStarted, neverRan } = this.story
    if (!hasStarted && end === null) return [`${uid} has not started`]
    if (end !== null && neverRan) return [`${uid} never ran: ${whyNot(end)}`]
    if (kind === 'function') return [`${uid} is a function: ${whereFunctionsPrint}`]
    if (kind !== 'compute') return [`${uid} has no program, and so no output`]
    const missing = streams.filter((stream) => !this.#sources.has(stream))
    const tails = streams.filter((stream) => this.#sources.get(stream) === 'tail')
    const unknown = missing.filter((stream) => this.story.fileOf(stream) === null)
    const notes = missing.flatMap((stream) => this.#elsewhere(stream))
    if (tails.length > 0) {
      notes.push(`only the end of ${nameOf(tails)} is in the record; ${whileRunning}; ${inFiles}`)
    }
    if (unknown.length === 0) return notes
    const what = `${nameOf(unknown)} of ${uid}`
    const unanswered = this.#live.problem ?? 'its run does not show it before the end'
    const isRunning = end === null
    if (isRunning) return [...notes, `${what} is in memory, and ${unanswered}; ${inFiles}`]
    return [...notes, `${what} is not in the record; ${whileRunning}; ${inFiles}, ${inRecord}`]
  }

  #elsewhere(stream: Stream): string[] {
    const path = this.story.fileOf(stream) ?? ''
    const { node } = this.story
    return path === '' ? [] : [`${stream} is in ${path} on ${node}; this machine has no such file`]
  }

  async #take(stream: Stream, text: string): Promise<void> {
    const pending = (this.#pending[stream] += text)
    if (this.#output.form === 'json') return this.#expectFew()
    const isLong = pending.length > maxPartLength
    const length = isLong ? pending.length : pending.lastIndexOf('\n') + 1
    if (length === 0) return
    const part = escapeLines(pending.slice(0, length))
    this.#pending[stream] = pending.slice(length)
    if (part.endsWith('\n')) this.#openLines.delete(stream)
    else this.#openLines.add(stream)
    await this.#output.write(part, stream)
  }

  #expectFew(): void {
    const { stdout, stderr } = this.#pending
    if (stdout.length + stderr.length <= maxCollected) return
    throw new ValueError(
      `logs --json: expected at most ${maxCollected} characters of output, got more`,
      { hint: 'Without --json, output of any length is printed while it is read.' },
    )
  }
}

/**
 * A file to which a program writes its output, read as it grows. A new attempt of the task
 * truncates the file. This is detected by comparing the bytes before the position, or, if the
 * attempts wrote the same text, by the record, which may be late: text may be shown twice, but is
 * never lost.
 */
export class OutputFile {
  readonly #path: string
  #decoder = new StringDecoder()
  #position = 0
  #before = Buffer.alloc(0)
  #attempt = 0
  #isFound = false

  constructor(path: string) {
    this.#path = path
  }

  /** Whether the file exists on this machine. */
  get isFound(): boolean {
    return this.#isFound
  }

  /**
   * Yields the text written since the last call, in pieces. Never splits a character; each attempt
   * begins on a new line. `attempt` is the number of attempts known to have begun.
   */
  *read(attempt: number): Generator<string, void> {
    if (!isRegularFile(this.#path)) return
    const fd = openRegularFileSync(this.#path)
    if (!this.#isFound) this.#attempt = attempt
    this.#isFound = true
    try {
      if (attempt > this.#attempt) yield this.#restart(attempt)
      const bytes = Buffer.allocUnsafe(comparedBytes + chunkBytes)
      for (;;) {
        const known = this.#before.length
        // Read together with the new bytes, because the file may be truncated at any time.
        const length = readSync(fd, bytes, 0, bytes.length, this.#position - known)
        if (!bytes.subarray(0, Math.min(known, length)).equals(this.#before)) {
          yield this.#restart(this.#attempt + 1)
          continue
        }
        if (length === known) return
        this.#position += length - known
        this.#before = Buffer.from(bytes.subarray(Math.max(0, length - comparedBytes), length))
        yield this.#decoder.write(bytes.subarray(known, length))
      }
    } finally {
      closeSync(fd)
    }
  }

  /** Returns the rest of the text read before. */
  #restart(attempt: number): string {
    const rest = this.#decoder.end()
    const isLineOpen = this.#position > 0 && this.#before.at(-1) !== lineBreak
    this.#decoder = new StringDecoder()
    this.#position = 0
    this.#before = Buffer.alloc(0)
    this.#attempt = attempt
    return isLineOpen ? `${rest}\n` : rest
  }
}

const nameOf = (found: readonly Stream[]): string =>
  found.length === 1 ? String(found[0]) : 'the output'

function whyNot({ event: { event_type: type, attributes } }: TaskEnd): string {
  const { error_message: message, reason } = attributes
  if (type === 'TaskFailed')
    return firstLine(String(message ?? 'it failed before'), maxReasonLength)
  const isReason = typeof reason === 'string' && reason !== ''
  return `it was canceled before${isReason ? ` (${firstLine(reason, maxReasonLength)})` : ''}`
}

const maxReasonLength = 200
const whereFunctionsPrint =
  'its output goes to the stdout and stderr of its process, and is not recorded'
const whileRunning = '`tutti logs -f` shows it while the program runs'
const inFiles = 'in a script or a file of tasks, `captureStdio` writes all of it into files'
const inRecord = 'and `keepResults` keeps it in the record'
