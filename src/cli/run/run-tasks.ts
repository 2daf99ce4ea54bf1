/**
 * Runs the tasks of a file, or a program once for each number of `--array`. Prints how to resume if
 * some tasks did not complete.
 */

import { storeCommand, type RunCommand } from '../../checkpoint/run-file.ts'
import { ValueError } from '../../foundation/errors.ts'
import { ComputeTask, ConcurrentBackend, type ResumeOptions, Session } from '../../index.ts'
import { toShortPath } from '../../record/find-record.ts'
import { countText, numberText, quoteArgument } from '../../views/readable.ts'
import type { TelemetrySummary } from '../../views/summary.ts'
import { exitCodes, signalExitCodes } from '../exit.ts'
import { runLive } from '../live-run.ts'
import type { Output } from '../output.ts'
import { openRunDashboard } from '../dashboard/run-dashboard.ts'
import { resumeCommand } from './resume-command.ts'
import { reportResume } from './script-reports.ts'
import { readTasks } from './task-file.ts'

export interface RunTasksOptions {
  /** The folder of a new record. A resumed run stays in its folder. */
  readonly folder: string
  readonly resume: { readonly record: string; readonly how: ResumeOptions } | null
  /** The arguments of an array's program, including secrets. */
  readonly args: readonly string[]
  readonly dashboard?: boolean
}

export async function createTasks(
  { kind, file, array = '' }: RunCommand,
  args: readonly string[],
  backend: ConcurrentBackend,
): Promise<ComputeTask[]> {
  return kind === 'array'
    ? createArrayTasks(array, [file, ...args])
    : await readTasks(file, backend)
}

/** Resolves with the exit code: 1 if a task failed. */
export async function runTasks(
  command: RunCommand,
  { folder, resume, args, dashboard = false }: RunTasksOptions,
  output: Output,
): Promise<number> {
  const local = await ConcurrentBackend.create({ name: 'local' })
  const session = new Session([local], { workDir: command.folder })
  try {
    const tasks = await createTasks(command, args, local)
    if (resume !== null) {
      reportResume(output)
      await session.resume(resume.record, resume.how)
    }
    const checkpointPath = resume === null ? { checkpointPath: folder } : {}
    const telemetry = await session.startTelemetry({ ...checkpointPath, keepResults: true })
    const record = telemetry.checkpointFile ?? ''
    await using _ = await openRunDashboard(dashboard, () => record, output)
    storeCommand(record, command)
    const shortPath = toShortPath(record)
    const resumeLine = `resume  ${resumeCommand(shortPath, command)}`
    let notStarted = 0
    telemetry.subscribe((event) => {
      const isUnbegun = event.attributes['incomplete_lifecycle'] === true
      if (event.event_type === 'TaskCanceled' && isUnbegun) notStarted++
    })
    const signal = await runLive({ session, telemetry, output, resumeLine }, async () => {
      await session.submitTasks(tasks)
      await session.waitTasks(tasks)
    })
    const summary = telemetry.summary()
    const { completed, failed } = summary.tasks
    // As in the views of a record, the duration is `null` if no task ran.
    const duration = summary.duration.max === 0 ? null : summary.duration
    const isDone = signal === null && completed === tasks.length
    output.result({ ...summary, duration, record: shortPath, journal: shortPath }, [
      // Without a signal, the progress lines already show the totals.
      ...(signal === null ? [] : [stoppedLine(signal, tasks.length, summary.tasks, notStarted)]),
      `record  ${shortPath}`,
      ...(isDone ? [] : [resumeLine]),
    ])
    if (output.form === 'quiet' && failed > 0) {
      const all = countText(tasks.length, 'task')
      const show = `npx tutti failures ${quoteArgument(shortPath)}`
      output.problem(
        `${numberText(failed)} of ${all} failed; show them with: ${show}\n${resumeLine}`,
      )
    }
    if (signal !== null) return signalExitCodes[signal]
    return failed === 0 ? exitCodes.ok : exitCodes.tasksFailed
  } finally {
    await session.close()
  }
}

function stoppedLine(
  signal: NodeJS.Signals,
  tasks: number,
  { completed, failed, canceled }: TelemetrySummary['tasks'],
  notStarted: number,
): string {
  // Tasks that were not submitted yet have no events.
  const notSubmitted = tasks - completed - failed - canceled
  return (
    `stopped cleanly by ${signal}: ${countText(tasks, 'task')}, ` +
    `${numberText(completed)} done, ${numberText(failed)} failed, ` +
    `${numberText(canceled)} canceled` +
    (notStarted === 0 ? '' : ` (${numberText(notStarted)} of them not started)`) +
    (notSubmitted === 0 ? '' : `, ${numberText(notSubmitted)} not submitted`)
  )
}

const placeholder = '{}'
const idVariable = 'TUTTI_ARRAY_ID'
/** The maximum size of an array, so that a typing error does not fill the memory. */
const maxNumbers = 1_000_000
/** With more than twelve digits, the size of a range would not be exact. */
const rangePattern = /^(\d{1,12})(?:-(\d{1,12})(?::(\d{1,12}))?)?$/

/**
 * Parses a list such as `1-10,20` or `1-100:5` (every fifth) to ascending numbers without
 * repetitions, like Slurm. Throws a `ValueError` that names the wrong part.
 */
function parseArray(text: string): number[] {
  const numbers = new Set<number>()
  let count = 0
  for (const part of text.split(',')) {
    const { first, last, step } = parsePart(part, text)
    count += Math.floor((last - first) / step) + 1
    if (count > maxNumbers) throw invalidArray(text, part, `more than ${maxNumbers} numbers`)
    for (let number = first; number <= last; number += step) numbers.add(number)
  }
  return [...numbers].toSorted((a, b) => a - b)
}

function parsePart(part: string, text: string) {
  const [, start, end = start, every = '1'] = rangePattern.exec(part) ?? []
  if (start === undefined)
    throw invalidArray(text, part, `"${part}" is neither a whole number nor a range`)
  const [first, last, step] = [Number(start), Number(end), Number(every)]
  if (last < first) throw invalidArray(text, part, `${part} ends before it begins`)
  if (step < 1) throw invalidArray(text, part, `the step of ${part} is not 1 or more`)
  return { first, last, step }
}

function invalidArray(text: string, part: string, problem: string): ValueError {
  const isLimit = part.includes('%')
  return new ValueError(`--array ${JSON.stringify(text)}: ${problem}`, {
    field: '--array',
    expected: 'numbers and ranges such as 1-10,20 or 1-100:5',
    got: text,
    hint: isLimit
      ? 'A limit such as %4 is not supported: as many tasks run as this machine has cores.'
      : 'Write numbers and ranges such as 1-10,20 or 1-100:5.',
  })
}

/** Creates one task per number, with the uid `<name>-<number>`. */
function createArrayTasks(
  array: string,
  [program = '', ...args]: readonly string[],
): ComputeTask[] {
  const { name } = new ComputeTask({ executable: program, arguments: args })
  return parseArray(array).map((number) => {
    const withNumber = (word: string): string => word.replaceAll(placeholder, String(number))
    return new ComputeTask({
      executable: withNumber(program),
      arguments: args.map(withNumber),
      env: { [idVariable]: String(number) },
      uid: `${toIdPart(name)}-${number}`,
      name,
    })
  })
}

const maxIdCharacters = 100

/** Converts `python3 mesh.py` to `python3-mesh.py`. */
const toIdPart = (name: string): string =>
  name
    .replaceAll(/[^A-Za-z0-9._]+/g, '-')
    .replace(/^[._-]+/, '')
    .slice(0, maxIdCharacters)
    .replace(/[._-]+$/, '') || 'array'
