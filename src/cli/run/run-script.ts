/** Runs a program of the user's as a child, whose first session records what it does. */

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { constants } from 'node:os'
import { type RunRequest, runVariable, SentRequest } from '../../checkpoint/run-file.ts'
import { stopSignals } from '../exit.ts'
import type { Output } from '../output.ts'

/** Resolves with the exit code of the script; one that a signal ended has 128 and its number. */
export async function runScript(
  request: RunRequest,
  args: readonly string[],
  output: Output,
): Promise<number> {
  using sent = new SentRequest(request)
  const { file, folder } = request.command
  const child = spawn(process.execPath, [...process.execArgv, file, ...args], {
    cwd: folder,
    env: { ...process.env, [runVariable]: sent.path },
    // As JSON, only the result goes to stdout.
    stdio: ['inherit', output.form === 'json' ? process.stderr : 'inherit', 'inherit'],
  })
  const stopForwarding = forwardSignals((signal) => void child.kill(signal))
  const [code, signal] = (await once(child, 'close')) as [number | null, NodeJS.Signals | null]
  stopForwarding()
  const exitCode = code ?? 128 + constants.signals[signal ?? 'SIGKILL']
  report(sent.record, exitCode, output)
  return exitCode
}

/** A terminal sends SIGINT to the child as well. */
function forwardSignals(send: (signal: NodeJS.Signals) => void): () => void {
  const onSignal = (signal: NodeJS.Signals): void => {
    if (signal !== 'SIGINT' || !process.stdin.isTTY) send(signal)
  }
  for (const signal of stopSignals) process.on(signal, onSignal)
  return () => {
    for (const signal of stopSignals) process.off(signal, onSignal)
  }
}

/** On stderr for people: stdout is the script's. */
function report(record: string | null, exitCode: number, output: Output): void {
  if (output.form === 'json') output.result({ record, exit_code: exitCode }, [])
  if (output.form !== 'text') return
  if (record === null) output.problem('no record: the script started no telemetry')
  else if (exitCode === 0) output.problem(`record  ${record}`)
  else output.problem(`record  ${record}\nresume  npx tutti resume ${record}`)
}
