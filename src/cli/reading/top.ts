/** `tutti top`: shows a running session on a terminal, or prints its state once. */

import { progressText, secondsText } from '../../views/readable.ts'
import { sleep, systemClock } from '../../foundation/clock.ts'
import { findRecord } from '../../record/find-record.ts'
import { RecordFollower, readCurrentState } from '../../record/record-views.ts'
import { findTasks, type TaskView } from '../../views/tasks.ts'
import { findRetryTime } from '../../views/waiting.ts'
import { exitCodes, stopOnSignal } from '../exit.ts'
import type { Output } from '../output.ts'
import { type OpenRecord, showRecord } from './open-record.ts'
import { RecordWriters } from './record-writer.ts'
import { type ResumeHint, findResumeHint } from './resume-hint.ts'
import { names } from '../../views/panels/names.ts'
import { maxNames, statusFields, statusLines } from './status.ts'
import { workerColumn } from './tasks.ts'
import { type Column, nameColumn, tableLines, wrapLine } from './text.ts'

export interface TopOptions {
  readonly seconds: number
}

const maxRunningTasks = 10

/**
 * Shows a session until the run ends, the key `q` is pressed, a signal arrives, or the output is
 * closed.
 */
export async function top(source: string, options: TopOptions, output: Output): Promise<number> {
  if (!output.isTerminal) return await showOnce(source, output)
  const path = await findRecord(source)
  const follower = new RecordFollower(path)
  const writers = new RecordWriters()
  const stop = stopOnSignal(output.closed)
  const quit = new QuitKey(process.stdin)
  const signal = AbortSignal.any([stop.signal, quit.signal])
  try {
    while (!signal.aborted) {
      const views = await follower.read()
      const record = { ...views, path, ...(await readCurrentState(views, writers)) }
      const { width, rows } = output
      output.screen(screenLines(record, await findResumeHint(record), width, rows))
      if (record.state !== 'running') return exitCodes.ok
      await sleep(systemClock, options.seconds * 1000, { signal }).catch(() => undefined)
    }
    return await stop.exitCode()
  } finally {
    quit.release()
    stop.release()
  }
}

/** The signals of control keys. A terminal in raw mode does not send them itself. */
const signalKeys: Readonly<Record<string, NodeJS.Signals>> = {
  '\u0003': 'SIGINT',
  '\u001A': 'SIGTSTP',
  '\u001C': 'SIGQUIT',
}

class QuitKey {
  readonly #stdin: NodeJS.ReadStream
  readonly #pressedController = new AbortController()
  readonly signal = this.#pressedController.signal

  constructor(stdin: NodeJS.ReadStream) {
    this.#stdin = stdin
    if (!stdin.isTTY) return
    process.on('SIGCONT', this.#enterRawMode)
    stdin.on('data', this.#handleKeys)
    this.#enterRawMode()
  }

  release(): void {
    if (!this.#stdin.isTTY) return
    process.off('SIGCONT', this.#enterRawMode)
    this.#stdin.off('data', this.#handleKeys).setRawMode(false)
    this.#stdin.unref()
    this.#stdin.pause()
  }

  readonly #enterRawMode = (): void => void this.#stdin.setRawMode(true)

  readonly #handleKeys = (keys: Buffer): void => {
    for (const key of keys.toString()) {
      if (key === 'q') this.#pressedController.abort()
      const signal = signalKeys[key]
      if (signal === undefined) continue
      // The terminal is restored first, because the signal may stop or kill the process.
      if (signal !== 'SIGINT') this.#stdin.setRawMode(false)
      process.kill(process.pid, signal)
    }
  }
}

async function showOnce(source: string, output: Output): Promise<number> {
  return await showRecord(source, output, async (record) => {
    const running = listRunningTasks(record).map((task) => ({
      uid: task.uid,
      name: task.name,
      worker_id: task.workerId,
      seconds: task.runningFor ?? 0,
      progress: task.progress,
    }))
    const hint = await findResumeHint(record)
    const fields = { ...statusFields(record, hint), running_tasks: running }
    output.result(fields, screenLines(record, hint, Infinity, Infinity))
  })
}

function listRunningTasks({ pass, now }: OpenRecord): TaskView[] {
  const { tasks } = findTasks(pass, { state: 'RUNNING', limit: 100_000, now })
  return tasks
    .filter(({ isInterrupted, task }) => !isInterrupted && findRetryTime(pass, task) === null)
    .toSorted((a, b) => (b.runningFor ?? 0) - (a.runningFor ?? 0))
    .slice(0, maxRunningTasks)
}

const minNames = 3

function screenLines(
  record: OpenRecord,
  hint: ResumeHint | null,
  width: number,
  rows: number,
): string[] {
  const running = listRunningTasks(record)
  const hasProgress = running.some(({ progress }) => progress !== null)
  const progressColumns = hasProgress ? [progressColumn] : []
  const name = nameColumn(running, { dropOrder: 3, minWidth: 12 })
  const columns = [taskColumn(record), ...progressColumns, timeColumn, name, workerColumn]
  const table = running.length === 0 ? [] : ['', ...tableLines(columns, running, width)]
  const linesWith = (max: number): string[] =>
    [...statusLines(record, hint, width, { max, isRunningFirst: true }), ...table].flatMap((line) =>
      wrapLine(line, width),
    )
  const lines = linesWith(maxNames)
  // The additional line shows how many names are left out.
  const tooMany = lines.length + 1 - rows
  if (tooMany <= 0) return lines
  const listedCount = Math.min(
    maxNames,
    names.show(record.pass.states.names, { durations: false }).length,
  )
  return linesWith(Math.max(minNames, listedCount - tooMany))
}

const taskColumn = ({ state }: OpenRecord): Column<TaskView> => ({
  head: state === 'interrupted' ? 'interrupted task' : 'running task',
  cell: ({ uid }) => uid,
  minWidth: 28,
})

const progressColumn: Column<TaskView> = {
  head: 'progress',
  cell: ({ progress }) =>
    progress === null ? '-' : progressText(progress.fraction, progress.text),
  dropOrder: 1,
  minWidth: 8,
  isTruncatedAtEnd: true,
}

const timeColumn: Column<TaskView> = {
  head: 'for',
  cell: ({ runningFor }) => secondsText(runningFor ?? 0),
  isNumber: true,
  dropOrder: 2,
}
