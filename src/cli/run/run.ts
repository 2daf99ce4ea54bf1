/** `tutti run` and `tutti resume`: run a script, a task file or an array. */

import { countText } from '../../views/readable.ts'
import { dirname, resolve } from 'node:path'
import {
  expectNotContinued,
  findChain,
  willStayEmpty,
  emptyRecordError,
  readSessionStart,
} from '../../checkpoint/chain.ts'
import { expectNotHeld, expectUnlocked, lockPathOf } from '../../checkpoint/lock.ts'
import { parseRecordPath } from '../../checkpoint/record-names.ts'
import {
  explainUnusableCommand,
  readRunCommand,
  type RunCommand,
  omitSecretArguments,
} from '../../checkpoint/run-file.ts'
import { ValueError } from '../../foundation/errors.ts'
import { isRegularFile, statOf } from '../../foundation/regular-file.ts'
import type { ResumeOptions } from '../../index.ts'
import { expectRecord, findRecord } from '../../record/find-record.ts'
import { findEndedJob } from '../reading/record-writer.ts'
import type { Output } from '../output.ts'
import { warnAboutDashboard } from '../dashboard/run-dashboard.ts'
import { detectFileKind, acceptedFilesHint } from './file-kinds.ts'
import { resumeCommand, secretPlaceholders } from './resume-command.ts'
import { runScript } from './run-script.ts'
import { runTasks } from './run-tasks.ts'

export interface RunOptions {
  /** The folder of the record; not for scripts. Default `./telemetry`. */
  readonly folder?: string
  /** The numbers for which a program runs, such as `1-10,20`. */
  readonly array?: string
  readonly dashboard?: boolean
}

const defaultFolder = './telemetry'

/** Resolves with the exit code of the script, or with 1 if a task failed. */
export async function run(
  file: string,
  args: readonly string[],
  { folder, array, dashboard = false }: RunOptions,
  output: Output,
): Promise<number> {
  const typed = { arguments: omitSecretArguments(args), folder: process.cwd() }
  if (array !== undefined) {
    const command = { kind: 'array', file, ...typed, array } as const
    const how = { folder: folder ?? defaultFolder, resume: null, args, dashboard }
    return runTasks(command, how, output)
  }
  const path = resolve(file)
  const found = statOf(path)
  if (found === null) throw fileNotFoundError(file)
  if (!found.isFile()) {
    const what = found.isDirectory() ? 'a folder' : 'not a regular file'
    throw new ValueError(`${file} is ${what}`, {
      code: 'FileNotFoundError',
      got: file,
      hint: acceptedFilesHint,
    })
  }
  const kind = detectFileKind(file)
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
    const how = { folder: folder ?? defaultFolder, resume: null, args, dashboard }
    return runTasks(command, how, output)
  }
  warnAboutDashboard(args, output)
  return runScript({ command, keep_results: true, resume: null }, args, output, dashboard)
}

export interface ResumeCommandOptions extends Required<ResumeOptions> {
  readonly isDryRun: boolean
}

/** Resumes a record with its stored command. `given` are arguments that were not stored. */
export async function resume(
  source: string,
  given: readonly string[],
  { isDryRun, ...how }: ResumeCommandOptions,
  output: Output,
): Promise<number> {
  const record = await findRecord(source)
  const { files } = await findChain(record)
  const path = files.at(-1) ?? record
  // The session also checks whether the record can be resumed, but only after the script has
  // started.
  const session_id = await expectResumable(path, isDryRun)
  const command = readRunCommand(files)
  if (command === null) {
    const problem = explainUnusableCommand(files)
    if (problem !== null) throw problem
    throw new ValueError(`${record} was not made by tutti run`, {
      code: 'CommandMissingError',
      hint:
        'Start the program itself and let it call `await session.resume(file)`, ' +
        'a workflow `await flow.resume(file)`.',
    })
  }
  const isTyped = command.kind === 'array'
  if (!isTyped && !isRegularFile(command.file)) throw fileNotFoundError(command.file)
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
    const { relaunch } = await import('../launch/launch.ts')
    return relaunch(command, args, continued, output)
  }
  return runScript({ command, keep_results: true, resume: continued }, args, output)
}

/** Throws if the record cannot be resumed. Resolves with the id of the record's session. */
async function expectResumable(path: string, isDryRun: boolean): Promise<string> {
  if (parseRecordPath(path) === null) await expectRecord(path)
  if (await willStayEmpty(path)) throw await emptyRecordError(path)
  const started = (await readSessionStart(path))?.session_id
  const sessionId = started ?? parseRecordPath(path)?.sessionId ?? ''
  if (sessionId !== '') {
    const lock = lockPathOf(dirname(path), sessionId)
    const check = isDryRun ? expectNotHeld : expectUnlocked
    check(lock, await findEndedJob(lock))
  }
  await expectNotContinued(path)
  return started ?? ''
}

const isFolder = (path: string): boolean => statOf(path)?.isDirectory() ?? false

const fileNotFoundError = (file: string): ValueError =>
  new ValueError(`there is no file ${file}`, { code: 'FileNotFoundError', got: file })

function completeArguments(
  record: string,
  command: RunCommand,
  given: readonly string[],
): readonly string[] {
  const missing = secretPlaceholders(command)
  if (missing.length !== given.length) {
    const isComplete = missing.length === 0
    const what = isComplete ? 'all arguments were kept' : `expected ${missing.join(' ')}`
    const got = countText(given.length, 'further argument')
    throw new ValueError(`${what}, got ${got} after the record`, {
      code: 'SecretArgumentsError',
      hint: `${isComplete ? '' : 'Secrets are not kept. '}Type: ${resumeCommand(record, command)}`,
    })
  }
  const remaining = [...given]
  return command.arguments.map((arg) => arg ?? remaining.shift() ?? '')
}
