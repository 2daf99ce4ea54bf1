/** `tutti top`: shows a running session, redrawn in place; printed once without a terminal. */

import { progressText, secondsText } from '../../views/readable.ts'
import { sleep, systemClock } from '../../foundation/clock.ts'
import { findRecord } from '../../record/find-record.ts'
import { RecordFollower } from '../../record/record-views.ts'
import { findTasks, type TaskView } from '../../views/tasks.ts'
import { retryTimeOf } from '../../views/waiting.ts'
import { exitCodes, firstSignal, signalExitCodes } from '../exit.ts'
import type { Output } from '../output.ts'
import { stateNow } from '../../record/record-views.ts'
import { type OpenRecord, showRecord } from './open-record.ts'
import { RecordWriters } from './record-writer.ts'
import { type ResumeHint, resumeHintOf } from './resume-hint.ts'
import { names } from '../../views/panels/names.ts'
import { maxNames, statusFields, statusLines } from './status.ts'
import { type Column, nameColumn, tableLines, wrapLine } from './text.ts'

export interface TopOptions {
  readonly seconds: number
}

const maxRunning = 10

/** Stops when the run ends, on the key `q` or a signal, or when the output is closed. */
export async function top(what: string, options: TopOptions, output: Output): Promise<number> {
  if (!output.isTerminal) return await showOnce(what, output)
  const path = await findRecord(what)
  const follower = new RecordFollower(path)
  const writers = new RecordWriters()
  const signal = firstSignal(output.closed)
  const stop = new AbortController()
  const keys = new QuitKey(process.stdin)
  const stopped = Promise.race([signal.received, keys.pressed]).then((name) => {
    stop.abort()
    return name
  })
  try {
    while (!stop.signal.aborted) {
      const views = await follower.read()
      const record = { ...views, path, ...(await stateNow(views, writers)) }
      const { width, rows } = output
      output.screen(screenOf(record, await resumeHintOf(record), width, rows))
      if (record.state !== 'running') return exitCodes.ok
      const wait = sleep(systemClock, options.seconds * 1000, { signal: stop.signal })
      await wait.catch(() => undefined)
    }
    const name = await stopped
    return name === null ? exitCodes.ok : signalExitCodes[name]
  } finally {
    keys.release()
    signal.release()
  }
}

/** Keys for which a terminal in raw mode does not send signals. */
const signalKeys: Readonly<Record<string, NodeJS.Signals>> = {
  '\u0003': 'SIGINT',
  '\u001A': 'SIGTSTP',
  '\u001C': 'SIGQUIT',
}

/** Waits for the key `q` in raw mode. */
class QuitKey {
  /** Resolves when `q` was pressed. */
  readonly pressed: Promise<null>
  readonly #stdin: NodeJS.ReadStream
  readonly #pressed = Promise.withResolvers<null>()

  constructor(stdin: NodeJS.ReadStream) {
    this.#stdin = stdin
    this.pressed = this.#pressed.promise
    if (!stdin.isTTY) return
    process.on('SIGCONT', this.#begin)
    stdin.on('data', this.#take)
    this.#begin()
  }

  /** Restores the terminal. */
  release(): void {
    if (!this.#stdin.isTTY) return
    process.off('SIGCONT', this.#begin)
    this.#stdin.off('data', this.#take).setRawMode(false)
    this.#stdin.unref()
    this.#stdin.pause()
  }

  readonly #begin = (): void => void this.#stdin.setRawMode(true)

  readonly #take = (keys: Buffer): void => {
    for (const key of keys.toString()) {
      if (key === 'q') this.#pressed.resolve(null)
      const signal = signalKeys[key]
      if (signal === undefined) continue
      // Restore the terminal first, because the signal may stop or kill the process.
      if (signal !== 'SIGINT') this.#stdin.setRawMode(false)
      process.kill(process.pid, signal)
    }
  }
}

async function showOnce(what: string, output: Output): Promise<number> {
  return await showRecord(what, output, async (record) => {
    const running = runningByDuration(record).map((task) => ({
      uid: task.uid,
      name: task.name,
      worker_id: task.workerId,
      seconds: task.runningFor ?? 0,
      progress: task.progress,
    }))
    const hint = await resumeHintOf(record)
    const fields = { ...statusFields(record, hint), running_tasks: running }
    output.result(fields, screenOf(record, hint, Infinity, Infinity))
  })
}

function runningByDuration({ pass, now }: OpenRecord): TaskView[] {
  const { tasks } = findTasks(pass, { state: 'RUNNING', limit: 100_000, now })
  return tasks
    .filter(({ isInterrupted, task }) => !isInterrupted && retryTimeOf(pass, task) === null)
    .toSorted((a, b) => (b.runningFor ?? 0) - (a.runningFor ?? 0))
    .slice(0, maxRunning)
}

/** The minimum number of listed names, even on a small screen. */
const minNames = 3

function screenOf(
  record: OpenRecord,
  hint: ResumeHint | null,
  width: number,
  rows: number,
): string[] {
  const running = runningByDuration(record)
  const hasProgress = running.some(({ progress }) => progress !== null)
  const own = hasProgress ? [progressColumn] : []
  const name = nameColumn(running, { dispensable: 3, narrowest: 12 })
  const columns = [taskColumn(record), ...own, timeColumn, name, workerColumn]
  const table = running.length === 0 ? [] : ['', ...tableLines(columns, running, width)]
  const linesWith = (max: number): string[] =>
    [...statusLines(record, hint, width, { max, isRunningFirst: true }), ...table].flatMap((line) =>
      wrapLine(line, width),
    )
  const lines = linesWith(maxNames)
  // One more row shows how many names are left out.
  const tooMany = lines.length + 1 - rows
  if (tooMany <= 0) return lines
  const listed = Math.min(
    maxNames,
    names.show(record.pass.states.names, { durations: false }).length,
  )
  return linesWith(Math.max(minNames, listed - tooMany))
}

/** After a killed session, running tasks are shown as interrupted. */
const taskColumn = ({ state }: OpenRecord): Column<TaskView> => ({
  head: state === 'interrupted' ? 'interrupted task' : 'running task',
  cell: ({ uid }) => uid,
  narrowest: 28,
})

const progressColumn: Column<TaskView> = {
  head: 'progress',
  cell: ({ progress }) =>
    progress === null ? '-' : progressText(progress.fraction, progress.text),
  dispensable: 1,
  narrowest: 8,
  isCutAtEnd: true,
}

const timeColumn: Column<TaskView> = {
  head: 'for',
  cell: ({ runningFor }) => secondsText(runningFor ?? 0),
  isNumber: true,
  dispensable: 2,
}

const workerColumn: Column<TaskView> = {
  head: 'worker',
  cell: ({ workerId }) => workerId || '-',
  dispensable: 4,
  narrowest: 12,
}
