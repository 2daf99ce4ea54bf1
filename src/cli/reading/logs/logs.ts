/** `tutti logs`: shows the output of a program, from files, the running session or the record. */

import { dirname } from 'node:path'
import { findChain, isPipe } from '../../../checkpoint/chain.ts'
import { sleep, systemClock } from '../../../foundation/clock.ts'
import { ValueError } from '../../../foundation/errors.ts'
import { neverStop, stopOnSignal } from '../../exit.ts'
import type { Output } from '../../output.ts'
import { findTask } from '../explain/explain.ts'
import { lostSessionNote, showRecord } from '../open-record.ts'
import { RecordWriters } from '../record-writer.ts'
import { LiveOutput, ShownOutput } from './shown-output.ts'
import { TaskHistory } from '../../../record/task-history.ts'

export interface LogsOptions {
  readonly follow?: boolean
}

const pollIntervalMs = 200
/** The maximum time to wait for the output of a running program, without `--follow`. */
const answerTimeoutMs = 5000

/**
 * Shows the output of a task. With `follow`, stops when the task or session ends, or on a signal.
 */
export async function logs(
  task: string,
  source: string,
  { follow = false }: LogsOptions,
  output: Output,
): Promise<number> {
  const found = { uid: '', path: '', sessionId: '' }
  await showRecord(source, output, (record) => {
    const { path, sessionId } = record
    Object.assign(found, { uid: findTask(record, task).uid, path, sessionId })
  })
  const { uid, path, sessionId } = found
  if (isPipe(path)) throw new ValueError('logs: expected a record in a file, got a pipe')
  const { files } = await findChain(path)
  const file = files.at(-1) ?? path
  const live = new LiveOutput(uid, file)
  const shown = new ShownOutput(new TaskHistory(uid, files), live, output)
  const stop = follow ? stopOnSignal(output.closed) : neverStop
  try {
    await shown.update()
    const deadlineMs = follow ? Infinity : systemClock.monotonicMs() + answerTimeoutMs
    const parts = { folder: dirname(file), sessionId, output, deadlineMs, signal: stop.signal }
    if (follow || shown.history.hasStarted) await followTask(shown, parts)
    await shown.finish()
    return await stop.exitCode()
  } finally {
    live.close(shown.history.hasEnded)
    stop.release()
  }
}

interface FollowParts {
  readonly folder: string
  readonly sessionId: string
  readonly output: Output
  /** When to stop waiting for the output; infinite with `--follow`. */
  readonly deadlineMs: number
  readonly signal: AbortSignal
}

async function followTask(shown: ShownOutput, parts: FollowParts): Promise<void> {
  const { folder, sessionId, output, deadlineMs, signal } = parts
  const writers = new RecordWriters()
  while (!shown.history.hasEnded && !signal.aborted) {
    // Checks the process before reading, because it may write and exit in between.
    const isWritten = await writers.isWriting(folder, sessionId)
    const isOver = deadlineMs < Infinity && shown.isComplete
    await shown.update()
    if (shown.history.hasEnded || isOver) return
    if (!isWritten) return deadlineMs === Infinity ? output.problem(lostSessionNote) : undefined
    if (systemClock.monotonicMs() > deadlineMs) return
    shown.request()
    await sleep(systemClock, pollIntervalMs, { signal }).catch(() => undefined)
  }
}
