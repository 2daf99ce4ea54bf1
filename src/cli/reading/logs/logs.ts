/** `tutti logs`: the output of a task's program, from files, the running session or the record. */

import { dirname } from 'node:path'
import { findChain, isPipe } from '../../../checkpoint/chain.ts'
import { sleep, systemClock } from '../../../foundation/clock.ts'
import { ValueError } from '../../../foundation/errors.ts'
import { stopNever, stopOnSignal } from '../../exit.ts'
import type { Output } from '../../output.ts'
import { findTask } from '../explain/explain.ts'
import { lostSession, showRecord } from '../open-record.ts'
import { RecordWriters } from '../record-writer.ts'
import { LiveOutput } from './live-output.ts'
import { ShownOutput } from './shown-output.ts'
import { TaskStory } from './task-story.ts'

export interface LogsOptions {
  readonly follow?: boolean
}

const pollMs = 200
/** The maximum time to wait for the output of a running program, without `--follow`. */
const answerMs = 5000

/** With `follow`, stops when the task or session ends, on a signal, or when output is closed. */
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
  const stop = follow ? stopOnSignal(output.closed) : stopNever
  try {
    await shown.update()
    const untilMs = follow ? Infinity : systemClock.monotonicMs() + answerMs
    const parts = { folder: dirname(file), sessionId, output, untilMs, signal: stop.signal }
    if (follow || shown.story.hasStarted) await followTask(shown, parts)
    await shown.finish()
    return await stop.exitCode()
  } finally {
    live.close(shown.story.hasEnded)
    stop.release()
  }
}

interface FollowParts {
  readonly folder: string
  readonly sessionId: string
  readonly output: Output
  /** The time until which to wait for the output so far; infinite with `--follow`. */
  readonly untilMs: number
  readonly signal: AbortSignal
}

async function followTask(shown: ShownOutput, parts: FollowParts): Promise<void> {
  const { folder, sessionId, output, untilMs, signal } = parts
  const writers = new RecordWriters()
  while (!shown.story.hasEnded && !signal.aborted) {
    // Checked before reading, so that everything the process wrote before it exited is shown.
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
