/** Runs a user's script as a child process. The first session of the script writes the record. */

import { existsSync } from 'node:fs'
import { removeUnusedRecord } from '../../checkpoint/chain.ts'
import { type RunRequest, runVariable, SentRequest } from '../../checkpoint/run-file.ts'
import { toShortPath } from '../../record/find-record.ts'
import type { Output } from '../output.ts'
import { openRunDashboard } from '../dashboard/run-dashboard.ts'
import { runScriptChild } from '../script-child.ts'
import { resumeCommand } from './resume-command.ts'

/** Resolves with the exit code of the script, like `runScriptChild`. */
export async function runScript(
  request: RunRequest,
  args: readonly string[],
  output: Output,
  hasDashboard = false,
): Promise<number> {
  using sent = new SentRequest(request)
  await using _ = await openRunDashboard(hasDashboard, () => sent.record, output)
  const { file, folder } = request.command
  const nodeOptions = [...process.execArgv, `--import=${preloadUrl(output.form)}`]
  const exitCode = await runScriptChild([process.execPath, ...nodeOptions, file, ...args], {
    cwd: folder,
    env: { [runVariable]: sent.path },
    // With `--json`, only the result goes to stdout.
    stdout: output.form === 'json' ? process.stderr : 'inherit',
    onStart: (pid) => sent.markScript(pid),
  })
  const { record } = sent
  // After a refused resume, the script exits without closing its session. It leaves a record
  // without tasks, which is removed.
  const isRefused = request.resume !== null && record !== null && exitCode !== 0
  const isUnused = isRefused && (await removeUnusedRecord(record))
  report(sent, { request, exitCode, isUnused }, output)
  return exitCode
}

/** The URL of the module that is loaded before the script. */
export function preloadUrl(form: string): string {
  const extension = import.meta.url.slice(import.meta.url.lastIndexOf('.'))
  return new URL(`./script-preload${extension}?form=${form}`, import.meta.url).href
}

interface ScriptResult {
  readonly request: RunRequest
  readonly exitCode: number
  readonly isUnused: boolean
}

/** Prints the path of the record to stderr, because stdout belongs to the script. */
function report(sent: SentRequest, end: ScriptResult, output: Output): void {
  const { request, exitCode, isUnused } = end
  const named = sent.record
  // The session itself may have removed the record.
  const isGone = named !== null && (isUnused || !existsSync(named))
  const record = isGone ? null : named
  if (output.form === 'json') output.result({ record, exit_code: exitCode }, [])
  if (output.form !== 'text' || isGone) return
  if (record === null) {
    const missingText = request.resume !== null ? 'nothing was resumed' : 'no record'
    const [started, none] = [
      'the telemetry of the script did not start',
      'the script started no telemetry',
    ]
    output.problem(`${missingText}: ${sent.isClaimed ? started : none}`)
    return
  }
  const shortPath = toShortPath(record)
  const resume = exitCode === 0 ? '' : `\nresume  ${resumeCommand(shortPath, request.command)}`
  output.problem(`record  ${shortPath}${resume}`)
}
