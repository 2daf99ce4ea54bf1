/** Runs a user's script as a child process, whose first session writes the record. */

import { existsSync } from 'node:fs'
import { removeUnused } from '../../checkpoint/chain.ts'
import { type RunRequest, runVariable, SentRequest } from '../../checkpoint/run-file.ts'
import { nearestPath } from '../../record/find-record.ts'
import type { Output } from '../output.ts'
import { runScriptChild } from '../script-child.ts'
import { resumeCommand } from './resume-command.ts'

/** Resolves with the exit code of the script: 128 plus the signal number if a signal ended it. */
export async function runScript(
  request: RunRequest,
  args: readonly string[],
  output: Output,
): Promise<number> {
  using sent = new SentRequest(request)
  const { file, folder } = request.command
  const nodeOptions = [...process.execArgv, `--import=${preload(output.form)}`]
  const exitCode = await runScriptChild([process.execPath, ...nodeOptions, file, ...args], {
    cwd: folder,
    env: { [runVariable]: sent.path },
    // With `--json`, stdout is reserved for the result.
    stdout: output.form === 'json' ? process.stderr : 'inherit',
    onStart: (pid) => sent.sentTo(pid),
  })
  const { record } = sent
  // A script whose resume was refused exits without closing its session.
  const isRefused = request.resume !== null && record !== null && exitCode !== 0
  const isUnused = isRefused && (await removeUnused(record))
  report(sent, { request, exitCode, isUnused }, output)
  return exitCode
}

/** The module that is preloaded into the script's process. */
export function preload(form: string): string {
  const extension = import.meta.url.slice(import.meta.url.lastIndexOf('.'))
  return new URL(`./script-preload${extension}?form=${form}`, import.meta.url).href
}

interface ScriptEnd {
  readonly request: RunRequest
  readonly exitCode: number
  /** Whether the script's record had no task and was removed. */
  readonly isUnused: boolean
}

/** Prints to stderr, because stdout belongs to the script. */
function report(sent: SentRequest, end: ScriptEnd, output: Output): void {
  const { request, exitCode, isUnused } = end
  const named = sent.record
  // The session itself may have removed the record.
  const isGone = named !== null && (isUnused || !existsSync(named))
  const record = isGone ? null : named
  if (output.form === 'json') output.result({ record, exit_code: exitCode }, [])
  if (output.form !== 'text' || isGone) return
  if (record === null) {
    const what = request.resume !== null ? 'nothing was resumed' : 'no record'
    const why = sent.isTaken ? 'the telemetry of the script did not start' : noTelemetry
    output.problem(`${what}: ${why}`)
    return
  }
  const near = nearestPath(record)
  const resume = exitCode === 0 ? '' : `\nresume  ${resumeCommand(near, request.command)}`
  output.problem(`record  ${near}${resume}`)
}

const noTelemetry = 'the script started no telemetry'
