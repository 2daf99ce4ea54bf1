/** Runs a program of the user's as a child, whose first session records what it does. */

import { existsSync } from 'node:fs'
import { removeUnused } from '../../checkpoint/chain.ts'
import { type RunRequest, runVariable, SentRequest } from '../../checkpoint/run-file.ts'
import { nearestPath } from '../../record/find-record.ts'
import type { Output } from '../output.ts'
import { runScriptChild } from '../script-child.ts'
import { resumeCommand } from './resume-command.ts'

/** Resolves with the exit code of the script; one that a signal ended has 128 and its number. */
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
    // As JSON, only the result goes to stdout.
    stdout: output.form === 'json' ? process.stderr : 'inherit',
    onStart: (pid) => sent.sentTo(pid),
  })
  const { record } = sent
  // A script that was refused ends without closing its session.
  const isRefused = request.resume !== null && record !== null && exitCode !== 0
  const isUnused = isRefused && (await removeUnused(record))
  report(sent, { request, exitCode, isUnused }, output)
  return exitCode
}

/** What this command does in the process of the script. */
export function preload(form: string): string {
  const extension = import.meta.url.slice(import.meta.url.lastIndexOf('.'))
  return new URL(`./script-preload${extension}?form=${form}`, import.meta.url).href
}

interface ScriptEnd {
  readonly request: RunRequest
  readonly exitCode: number
  /** Its record had no task and was removed. */
  readonly isUnused: boolean
}

/** On stderr for people: stdout is the script's. */
function report(sent: SentRequest, end: ScriptEnd, output: Output): void {
  const { request, exitCode, isUnused } = end
  const told = sent.record
  // The session may have removed it itself.
  const isGone = told !== null && (isUnused || !existsSync(told))
  const record = isGone ? null : told
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
