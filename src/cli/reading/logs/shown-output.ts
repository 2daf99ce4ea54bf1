/** Shows the output of a program, and explains which parts are missing. */

import { randomUUID } from 'node:crypto'
import { closeSync, mkdirSync, readdirSync, readSync, rmdirSync, rmSync } from 'node:fs'
import { writeFileSync } from 'node:fs'
import { StringDecoder } from 'node:string_decoder'
import { followFolderOf, outputPath, requestedUid } from '../../../checkpoint/record-names.ts'
import { requestPath } from '../../../checkpoint/record-names.ts'
import { systemClock } from '../../../foundation/clock.ts'
import { errnoOf, ValueError } from '../../../foundation/errors.ts'
import { isRegularFile, openRegularFileSync } from '../../../foundation/regular-file.ts'
import { escapeLines, firstLine } from '../../../views/readable.ts'
import type { Output } from '../../output.ts'
import {
  readKeptOutput,
  type Stream,
  streams,
  type FinalEvent,
  type TaskHistory,
} from '../../../record/task-history.ts'

type OutputSource = 'file' | 'live' | 'record' | 'tail'

/** A line that is longer than this is shown before it is complete. */
const maxPartLength = 65_536
/**
 * The maximum length of text in JSON. A character may need six characters in JSON, and strings of
 * V8 are limited to 2^29 characters.
 */
const maxJsonLength = 2 ** 26

const chunkBytes = 65_536
/** How many bytes before the position are compared to detect a truncated file. */
const comparedBytes = 1024
const lineBreak = 0x0a

/**
 * Shows the output of a task. With `--json`, the output is collected, and shown when the task has
 * ended.
 */
export class ShownOutput {
  readonly history: TaskHistory
  readonly #liveOutput: LiveOutput
  readonly #output: Output
  readonly #files = new Map<string, OutputFile>()
  readonly #sources = new Map<Stream, OutputSource>()
  readonly #openLines = new Set<Stream>()
  /** With `--json`, the whole text. Otherwise, the part of the last line that was not shown. */
  readonly #pending: Record<Stream, string> = { stdout: '', stderr: '' }

  constructor(story: TaskHistory, live: LiveOutput, output: Output) {
    this.history = story
    this.#liveOutput = live
    this.#output = output
  }

  get #isInMemory(): boolean {
    const isProgram = this.history.kind === 'compute'
    return isProgram && streams.some((stream) => this.history.fileOf(stream) === null)
  }

  get isComplete(): boolean {
    return !this.#isInMemory || this.#liveOutput.isAnswered || this.#liveOutput.problem !== null
  }

  request(): void {
    if (this.#isInMemory) this.#liveOutput.request()
  }

  async update(): Promise<void> {
    await this.history.read()
    for (const stream of streams) {
      const ownFile = this.history.fileOf(stream)
      if (ownFile === '') continue
      const path = ownFile ?? this.#liveOutput.pathOf(stream)
      const file = this.#files.get(path) ?? new OutputFile(path)
      this.#files.set(path, file)
      // The session writes the output of all attempts to the same files, one after another.
      const attempt = ownFile === null ? 0 : this.history.attempts
      for (const text of file.read(attempt)) await this.#addText(stream, text)
      if (file.isFound) this.#sources.set(stream, ownFile === null ? 'live' : 'file')
    }
  }

  async finish(): Promise<void> {
    await this.update()
    const { end, uid, kind } = this.history
    const kept = end === null || kind !== 'compute' ? null : await readKeptOutput(this.history, end)
    for (const stream of streams) {
      const isShown = this.#sources.has(stream) || this.history.fileOf(stream) !== null
      if (isShown || kept === null) continue
      this.#sources.set(stream, kept[stream].isTail ? 'tail' : 'record')
      await this.#addText(stream, kept[stream].text)
    }
    const notes = this.#notes()
    if (this.#output.form === 'json') {
      const sources = streams.map((stream) => [stream, this.#sources.get(stream) ?? null])
      const source = Object.fromEntries(sources) as object
      const value = { uid, ended: this.history.hasEnded, ...this.#pending, source, notes }
      return this.#output.result(value, [])
    }
    for (const stream of streams) {
      const isOpen = this.#pending[stream] !== '' || this.#openLines.has(stream)
      if (isOpen) await this.#addText(stream, '\n')
    }
    for (const note of notes) this.#output.problem(note)
  }

  #notes(): string[] {
    const { uid, end, kind, hasStarted, neverRan } = this.history
    if (!hasStarted && end === null) return [`${uid} has not started`]
    if (end !== null && neverRan) return [`${uid} never ran: ${notStartedReason(end)}`]
    if (kind === 'function') return [`${uid} is a function: ${functionOutputNote}`]
    if (kind !== 'compute') return [`${uid} has no program, and so no output`]
    const missing = streams.filter((stream) => !this.#sources.has(stream))
    const tails = streams.filter((stream) => this.#sources.get(stream) === 'tail')
    const unknown = missing.filter((stream) => this.history.fileOf(stream) === null)
    const notes = missing.flatMap((stream) => this.#remoteFileNotes(stream))
    if (tails.length > 0) {
      notes.push(
        `only the end of ${streamNames(tails)} is in the record; ${followNote}; ${captureNote}`,
      )
    }
    if (unknown.length === 0) return notes
    const missingText = `${streamNames(unknown)} of ${uid}`
    const unanswered = this.#liveOutput.problem ?? 'its run does not show it before the end'
    const isRunning = end === null
    if (isRunning)
      return [...notes, `${missingText} is in memory, and ${unanswered}; ${captureNote}`]
    return [
      ...notes,
      `${missingText} is not in the record; ${followNote}; ${captureNote}, ${keepNote}`,
    ]
  }

  #remoteFileNotes(stream: Stream): string[] {
    const path = this.history.fileOf(stream) ?? ''
    const { node } = this.history
    return path === '' ? [] : [`${stream} is in ${path} on ${node}; this machine has no such file`]
  }

  async #addText(stream: Stream, text: string): Promise<void> {
    const pending = (this.#pending[stream] += text)
    if (this.#output.form === 'json') return this.#expectWithinLimit()
    const isLong = pending.length > maxPartLength
    const length = isLong ? pending.length : pending.lastIndexOf('\n') + 1
    if (length === 0) return
    const part = escapeLines(pending.slice(0, length))
    this.#pending[stream] = pending.slice(length)
    if (part.endsWith('\n')) this.#openLines.delete(stream)
    else this.#openLines.add(stream)
    await this.#output.write(part, stream)
  }

  #expectWithinLimit(): void {
    const { stdout, stderr } = this.#pending
    if (stdout.length + stderr.length <= maxJsonLength) return
    throw new ValueError(
      `logs --json: expected at most ${maxJsonLength} characters of output, got more`,
      { hint: 'Without --json, output of any length is printed while it is read.' },
    )
  }
}

/**
 * Reads the growing output file of a program. A new attempt truncates the file. The reader detects
 * this by changed bytes before its position, or from the record. Text may be shown twice, but is
 * never lost.
 */
export class OutputFile {
  readonly #path: string
  #decoder = new StringDecoder()
  #position = 0
  #bytesBefore = Buffer.alloc(0)
  #attempt = 0
  isFound = false

  constructor(path: string) {
    this.#path = path
  }

  /**
   * Yields the text that was added since the last call. Never splits a character. Each attempt
   * begins on a new line. `attempt` is the number of attempts in the record.
   */
  *read(attempt: number): Generator<string, void> {
    if (!isRegularFile(this.#path)) return
    const fd = openRegularFileSync(this.#path)
    if (!this.isFound) this.#attempt = attempt
    this.isFound = true
    try {
      if (attempt > this.#attempt) yield this.#restart(attempt)
      const bytes = Buffer.allocUnsafe(comparedBytes + chunkBytes)
      for (;;) {
        const known = this.#bytesBefore.length
        // The file may be truncated at any time, so old and new bytes are read together.
        const length = readSync(fd, bytes, 0, bytes.length, this.#position - known)
        if (!bytes.subarray(0, Math.min(known, length)).equals(this.#bytesBefore)) {
          yield this.#restart(this.#attempt + 1)
          continue
        }
        if (length === known) return
        this.#position += length - known
        this.#bytesBefore = Buffer.from(bytes.subarray(Math.max(0, length - comparedBytes), length))
        yield this.#decoder.write(bytes.subarray(known, length))
      }
    } finally {
      closeSync(fd)
    }
  }

  /** Starts a new attempt. Returns the rest of the text from the previous attempt. */
  #restart(attempt: number): string {
    const rest = this.#decoder.end()
    const isLineOpen = this.#position > 0 && this.#bytesBefore.at(-1) !== lineBreak
    this.#decoder = new StringDecoder()
    this.#position = 0
    this.#bytesBefore = Buffer.alloc(0)
    this.#attempt = attempt
    return isLineOpen ? `${rest}\n` : rest
  }
}

const streamNames = (found: readonly Stream[]): string =>
  found.length === 1 ? String(found[0]) : 'the output'

function notStartedReason({ event: { event_type: type, attributes } }: FinalEvent): string {
  const { error_message: message, reason } = attributes
  if (type === 'TaskFailed')
    return firstLine(String(message ?? 'it failed before'), maxReasonLength)
  const isReason = typeof reason === 'string' && reason !== ''
  return `it was canceled before${isReason ? ` (${firstLine(reason, maxReasonLength)})` : ''}`
}

const maxReasonLength = 200
const functionOutputNote =
  'its output goes to the stdout and stderr of its process, and is not recorded'
const followNote = '`tutti logs -f` shows it while the program runs'
const captureNote = 'in a script or a file of tasks, `captureStdio` writes all of it into files'
const keepNote = 'and `keepResults` keeps it in the record'

const renewIntervalMs = 2000

/** Requests the output of a running program from the process that writes the record. */
export class LiveOutput {
  readonly #uid: string
  readonly #folder: string
  readonly #request: string
  #requestedMs = -Infinity
  problem: string | null = null

  /** `record` is the file that is being written. */
  constructor(uid: string, record: string) {
    this.#uid = uid
    this.#folder = followFolderOf(record)
    this.#request = requestPath(this.#folder, uid, randomUUID())
  }

  /** Whether the run has sent the output of the program, which may be empty. */
  get isAnswered(): boolean {
    return streams.every((stream) => isRegularFile(this.pathOf(stream)))
  }

  pathOf(stream: Stream): string {
    return outputPath(this.#folder, this.#uid, stream)
  }

  /** Requests the output. Must be called repeatedly while the output is needed. */
  request(): void {
    const nowMs = systemClock.monotonicMs()
    if (this.problem !== null || nowMs - this.#requestedMs < renewIntervalMs) return
    this.#requestedMs = nowMs
    try {
      mkdirSync(this.#folder, { recursive: true })
      writeFileSync(this.#request, '')
    } catch (error) {
      this.problem = `the folder of the record cannot be written: ${errnoOf(error)}`
    }
  }

  get #isRequested(): boolean {
    return readdirSync(this.#folder).some((name) => requestedUid(name) === this.#uid)
  }

  close(hasEnded: boolean): void {
    try {
      rmSync(this.#request, { force: true })
      if (!hasEnded || this.#isRequested) return
      for (const stream of streams) rmSync(this.pathOf(stream), { force: true })
      rmdirSync(this.#folder)
    } catch {
      // The files do not exist, or the folder is also used for another task.
    }
  }
}
