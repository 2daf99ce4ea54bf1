/** `tutti run` and `tutti resume`: a script or a task file, with a record to resume from. */

import { countText } from '../../views/readable.ts'
import { dirname, resolve } from 'node:path'
import {
  expectNotContinued,
  findChain,
  isAbandoned,
  noFirstLine,
  readSessionStart,
} from '../../checkpoint/chain.ts'
import { expectNotHeld, expectUnlocked, lockPathOf } from '../../checkpoint/lock.ts'
import { parseRecordPath } from '../../checkpoint/record-names.ts'
import {
  commandProblemOf,
  readCommandOf,
  type RunCommand,
  toKeptArguments,
} from '../../checkpoint/run-file.ts'
import { ValueError } from '../../foundation/errors.ts'
import { isRegularFile, statOf } from '../../foundation/regular-file.ts'
import type { ResumeOptions } from '../../index.ts'
import { findRecord } from '../../record/find-record.ts'
import { endedJobOf } from '../reading/record-writer.ts'
import type { Output } from '../output.ts'
import { kindOf, acceptedFiles } from './file-kinds.ts'
import { resumeCommand, secretPlaces } from './resume-command.ts'
import { runScript } from './run-script.ts'
import { runTasks } from './run-tasks.ts'

export interface RunOptions {
  /** The folder of the record of tasks; a script chooses its own. Default `./telemetry`. */
  readonly folder?: string
  /** The numbers for which a program runs, such as `1-10,20`. */
  readonly array?: string
}

const usualFolder = './telemetry'

/** Resolves with the script's exit code or, for tasks, with 1 if one failed. */
export async function run(
  file: string,
  args: readonly string[],
  { folder, array }: RunOptions,
  output: Output,
): Promise<number> {
  const typed = { arguments: toKeptArguments(args), folder: process.cwd() }
  if (array !== undefined) {
    const command = { kind: 'array', file, ...typed, array } as const
    return runTasks(command, { folder: folder ?? usualFolder, resume: null, args }, output)
  }
  const path = resolve(file)
  const found = statOf(path)
  if (found === null) throw noSuchFile(file)
  if (!found.isFile()) {
    const what = found.isDirectory() ? 'a folder' : 'not a regular file'
    throw new ValueError(`${file} is ${what}`, {
      code: 'FileNotFoundError',
      got: file,
      hint: acceptedFiles,
    })
  }
  const kind = kindOf(file)
  if (kind === 'script' && folder !== undefined) {
    throw new ValueError(`--folder: ${file} is a script, whose own program names the folder`, {
      field: '--folder',
      got: folder,
      hint: 'Give the folder to `startTelemetry({ checkpointPath })` in the script.',
    })
  }
  if (kind === 'tasks' && args.length > 0) {
    throw new ValueError(`${file} is a file of tasks, which takes no arguments`, {
      got: args,
      hint: 'Set the arguments of each task in the file; see npx tutti run --help for the options.',
    })
  }
  const command = { kind, file: path, ...typed } as const
  if (kind === 'tasks') {
    return runTasks(command, { folder: folder ?? usualFolder, resume: null, args }, output)
  }
  return runScript({ command, keep_results: true, resume: null }, args, output)
}

export interface ResumeCommandOptions extends Required<ResumeOptions> {
  /** Whether to list what would run, and run nothing. */
  readonly isDryRun: boolean
}

/** Resumes a record the way it was started. `given` replaces arguments that were not stored. */
export async function resume(
  what: string,
  given: readonly string[],
  { isDryRun, ...how }: ResumeCommandOptions,
  output: Output,
): Promise<number> {
  const record = await findRecord(what)
  const { files } = await findChain(record)
  const path = files.at(-1) ?? record
  // Checked before a script starts; the session that continues the record checks again.
  const session_id = await expectResumable(path, isDryRun)
  const command = readCommandOf(files)
  if (command === null) {
    const problem = commandProblemOf(files)
    if (problem !== null) throw problem
    throw new ValueError(`${record} was not made by tutti run`, {
      code: 'CommandMissingError',
      hint:
        'Start the program itself and let it call `await session.resume(file)`, ' +
        'a workflow `await flow.resume(file)`.',
    })
  }
  const isTyped = command.kind === 'array'
  if (!isTyped && !isRegularFile(command.file)) throw noSuchFile(command.file)
  if (!isFolder(command.folder)) {
    throw new ValueError(`there is no folder ${command.folder}, in which the run was started`, {
      code: 'FileNotFoundError',
      got: command.folder,
      hint: 'Put it back, or start the program itself and let it call `session.resume(file)`.',
    })
  }
  const isScript = command.kind === 'script'
  const args = isDryRun && isScript ? given : completeArguments(record, command, given)
  if (isDryRun) {
    const { showPreview } = await import('./preview-run.ts')
    return showPreview(command, args, { record: path, how }, output)
  }
  if (!isScript) {
    return runTasks(command, { folder: '', resume: { record: path, how }, args }, output)
  }
  const { changed, keepFailed: keep_failed } = how
  const continued = { record: path, session_id, changed, keep_failed }
  if (command.launch !== undefined) {
    const { launchAgain } = await import('../launch/launch.ts')
    return launchAgain(command, args, continued, output)
  }
  return runScript({ command, keep_results: true, resume: continued }, args, output)
}

/** Resolves with the id of the record's session. */
async function expectResumable(path: string, isDryRun: boolean): Promise<string> {
  if (await isAbandoned(path)) throw await noFirstLine(path)
  const started = (await readSessionStart(path))?.session_id
  const sessionId = started ?? parseRecordPath(path)?.sessionId ?? ''
  if (sessionId !== '') await expectNoWriter(lockPathOf(dirname(path), sessionId), isDryRun)
  await expectNotContinued(path)
  return started ?? ''
}

/** The script may run in a job on another host: then Slurm knows whether the job has ended. */
async function expectNoWriter(lock: string, isDryRun: boolean): Promise<void> {
  const check = isDryRun ? expectNotHeld : expectUnlocked
  check(lock, await endedJobOf(lock))
}

const isFolder = (path: string): boolean => statOf(path)?.isDirectory() ?? false

const noSuchFile = (file: string): ValueError =>
  new ValueError(`there is no file ${file}`, { code: 'FileNotFoundError', got: file })

function completeArguments(
  record: string,
  command: RunCommand,
  given: readonly string[],
): readonly string[] {
  const missing = secretPlaces(command)
  if (missing.length !== given.length) {
    const isKept = missing.length === 0
    const what = isKept ? 'all arguments were kept' : `expected ${missing.join(' ')}`
    const got = countText(given.length, 'further argument')
    throw new ValueError(`${what}, got ${got} after the record`, {
      code: 'SecretArgumentsError',
      hint: `${isKept ? '' : 'Secrets are not kept. '}Type: ${resumeCommand(record, command)}`,
    })
  }
  const left = [...given]
  return command.arguments.map((arg) => arg ?? left.shift() ?? '')
}
