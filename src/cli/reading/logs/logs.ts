/** `tutti logs`: the output of a task's program, from its files, its run or the record. */

import { dirname } from 'node:path'
import { findChain, isPipe } from '../../../checkpoint/chain.ts'
import { sleep, systemClock } from '../../../foundation/clock.ts'
import { ValueError } from '../../../foundation/errors.ts'
import { escapeLines } from '../../../views/readable.ts'
import { exitCodes, firstSignal, signalExitCodes, type StopSignal } from '../../exit.ts'
import type { Output } from '../../output.ts'
import { findTask } from '../explain/explain.ts'
import { lostSession, showRecord } from '../open-record.ts'
import { RecordWriters } from '../record-writer.ts'
import { LiveOutput } from './live-output.ts'
import { OutputFile } from './output-file.ts'
import { keptOutput, type Stream, streams, TaskStory } from './task-story.ts'

export interface LogsOptions {
  readonly follow?: boolean
}

const pollMs = 200
/** How long a run may take to show the output of a program, if nobody follows it. */
const answerMs = 5000

/** With `follow`, ends with the task, its session's process, a signal, or a closed output. */
export async function logs(
  task: string,
  what: string,
  { follow = false }: LogsOptions,
  output: Output,
): Promise<number> {
  const found = { uid: '', path: '', sessionId: '' }
  await showRecord(what, output, (record) => {
    const { path, sessionId } = record
    Object.assign(found, { uid: findTask(record, task).uid, path, sessionId })
  })
  const { uid, path, sessionId } = found
  if (isPipe(path)) throw new ValueError('logs: expected a record in a file, got a pipe')
  const { files } = await findChain(path)
  const file = files.at(-1) ?? path
  const live = new LiveOutput(uid, file)
  const shown = new ShownOutput(new TaskStory(uid, files), live, output)
  const stop = new AbortController()
  const signal = follow ? firstSignal(output.closed) : null
  const stopped = signal?.received.then((name) => {
    stop.abort()
    return name
  })
  try {
    await shown.update()
    const untilMs = follow ? Infinity : systemClock.monotonicMs() + answerMs
    const parts = { folder: dirname(file), sessionId, output, untilMs, signal: stop.signal }
    if (follow || shown.story.hasStarted) await followTask(shown, parts)
    await shown.finish()
    return stop.signal.aborted ? codeOf((await stopped) ?? null) : exitCodes.ok
  } finally {
    live.close(shown.story.hasEnded)
    signal?.release()
  }
}

const codeOf = (signal: StopSignal | null): number =>
  signal === null ? exitCodes.ok : signalExitCodes[signal]

interface FollowParts {
  readonly folder: string
  readonly sessionId: string
  readonly output: Output
  /** Finite if only the output until now is wanted: the time until which the run may answer. */
  readonly untilMs: number
  readonly signal: AbortSignal
}

async function followTask(shown: ShownOutput, parts: FollowParts): Promise<void> {
  const { folder, sessionId, output, untilMs, signal } = parts
  const writers = new RecordWriters()
  while (!shown.story.hasEnded && !signal.aborted) {
    // Checked before reading, so that everything written before the end of the process is shown.
    const isWritten = await writers.isWriting(folder, sessionId)
    const isOver = untilMs < Infinity && shown.isComplete
    await shown.update()
    if (shown.story.hasEnded || isOver) return
    if (!isWritten) return untilMs === Infinity ? output.problem(lostSession) : undefined
    if (systemClock.monotonicMs() > untilMs) return
    shown.ask()
    await sleep(systemClock, pollMs, { signal }).catch(() => undefined)
  }
}

/** Where the text of a stream was found. */
type Source = 'file' | 'live' | 'record' | 'tail'

/** What was shown of each stream. With `--json`, collected and shown at the end. */
class ShownOutput {
  readonly story: TaskStory
  readonly #live: LiveOutput
  readonly #output: Output
  readonly #files = new Map<string, OutputFile>()
  readonly #sources = new Map<Stream, Source>()
  /** Text forms: the beginning of a line whose end has not come. JSON: the whole text. */
  readonly #pending: Record<Stream, string> = { stdout: '', stderr: '' }

  constructor(story: TaskStory, live: LiveOutput, output: Output) {
    this.story = story
    this.#live = live
    this.#output = output
  }

  get #isInMemory(): boolean {
    return streams.some((stream) => this.story.fileOf(stream) === null)
  }

  /** Whether all that the program has written until now can be read. */
  get isComplete(): boolean {
    return !this.#isInMemory || this.#live.isAnswered || this.#live.problem !== null
  }

  /** Asks for the output that only the run has. */
  ask(): void {
    if (this.#isInMemory) this.#live.ask()
  }

  /** Shows what was written into files since the last call. */
  async update(): Promise<void> {
    await this.story.read()
    for (const stream of streams) {
      const own = this.story.fileOf(stream)
      if (own === '') continue
      const path = own ?? this.#live.pathOf(stream)
      const file = this.#files.get(path) ?? new OutputFile(path)
      this.#files.set(path, file)
      for (const text of file.read()) await this.#take(stream, text)
      if (file.isFound) this.#sources.set(stream, own === null ? 'live' : 'file')
    }
  }

  /** Shows what only the record has, and says what is missing. */
  async finish(): Promise<void> {
    await this.update()
    const { end, uid } = this.story
    const kept = end === null ? null : await keptOutput(this.story, end)
    for (const stream of streams) {
      const isShown = this.#sources.has(stream) || this.story.fileOf(stream) !== null
      if (isShown || kept === null) continue
      this.#sources.set(stream, kept.source)
      await this.#take(stream, kept.texts[stream])
    }
    const notes = this.#notes([...this.#sources.values()].includes('tail'))
    if (this.#output.form === 'json') {
      const sources = streams.map((stream) => [stream, this.#sources.get(stream) ?? null])
      const source = Object.fromEntries(sources) as object
      const value = { uid, ended: this.story.hasEnded, ...this.#pending, source, notes }
      return this.#output.result(value, [])
    }
    for (const stream of streams) if (this.#pending[stream] !== '') await this.#take(stream, '\n')
    for (const note of notes) this.#output.problem(note)
  }

  #notes(isTail: boolean): string[] {
    const { uid, end, node, hasStarted } = this.story
    if (!hasStarted && end === null) return [`${uid} has not started`]
    const missing = streams.filter((stream) => !this.#sources.has(stream))
    const elsewhere = missing.flatMap((stream) => {
      const path = this.story.fileOf(stream) ?? ''
      return path === '' ? [] : `${stream} is in ${path} on ${node}; this machine has no such file`
    })
    const isUnknown = missing.some((stream) => this.story.fileOf(stream) === null)
    if (isTail) return [...elsewhere, `only the end of the output is in the record; ${advice}`]
    if (!isUnknown) return elsewhere
    const unanswered = this.#live.problem ?? 'its run does not show it before the end'
    const why = end === null ? `is in memory, and ${unanswered}` : 'is not in the record'
    return [...elsewhere, `the output of ${uid} ${why}; ${advice}`]
  }

  async #take(stream: Stream, text: string): Promise<void> {
    this.#pending[stream] += text
    if (this.#output.form === 'json') return
    const whole = this.#pending[stream].lastIndexOf('\n') + 1
    if (whole === 0) return
    const lines = escapeLines(this.#pending[stream].slice(0, whole))
    this.#pending[stream] = this.#pending[stream].slice(whole)
    if (stream === 'stdout') await this.#output.write(lines)
    else this.#output.problem(lines.slice(0, -1))
  }
}

const advice =
  'a task with `captureStdio` writes all of it into files, and `keepResults` keeps its end'
