/** Runs a user's script as a child process that does not outlive the command. */

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { constants } from 'node:os'
import { stopSignals } from './exit.ts'

export interface ScriptChildOptions {
  readonly cwd?: string
  /** Added to the environment of the command. */
  readonly env: Readonly<Record<string, string>>
  readonly stdout?: 'inherit' | 'ignore' | NodeJS.WriteStream
  /** A command that sends SIGTERM to the script. Default: the signal is sent to the child. */
  readonly stop?: readonly string[] | null
  readonly onStart?: (pid: number) => void
}

/** Resolves with the exit code, or with 128 plus the number of the signal that ended the child. */
export async function runScriptChild(
  command: readonly string[],
  { cwd, env, stdout = 'inherit', stop = null, onStart }: ScriptChildOptions,
): Promise<number> {
  const [program = '', ...args] = command
  const child = spawn(program, args, {
    cwd,
    env: { ...process.env, ...env },
    stdio: ['inherit', stdout, 'inherit'],
  })
  if (child.pid !== undefined) onStart?.(child.pid)
  const stopForwarding = forwardSignals((signal) => {
    if (stop === null || signal !== 'SIGTERM') child.kill(signal)
    else spawnQuietly(stop, () => child.kill(signal))
  })
  const stopGuarding =
    child.pid === undefined
      ? () => {}
      : startExitGuard(stop ?? ['kill', '-TERM', String(child.pid)])
  try {
    const [code, signal] = (await once(child, 'close')) as [number | null, NodeJS.Signals | null]
    return code ?? 128 + constants.signals[signal ?? 'SIGKILL']
  } finally {
    stopForwarding()
    stopGuarding()
  }
}

/**
 * Forwards stop signals to the child. Omits SIGINT on a terminal, which itself sends it to the
 * child.
 */
function forwardSignals(send: (signal: NodeJS.Signals) => void): () => void {
  const onSignal = (signal: NodeJS.Signals): void => {
    if (signal !== 'SIGINT' || !process.stdin.isTTY) send(signal)
  }
  for (const signal of stopSignals) process.on(signal, onSignal)
  return () => {
    for (const signal of stopSignals) process.off(signal, onSignal)
  }
}

function spawnQuietly([program = '', ...args]: readonly string[], onFailure: () => void): void {
  const child = spawn(program, args, { stdio: 'ignore' })
  child.on('error', onFailure)
  child.on('exit', (code) => {
    if (code !== 0) onFailure()
  })
}

/**
 * Stops the script even if this process is killed. A detached shell detects the kill by the end of
 * a pipe that only this process holds open.
 */
function startExitGuard(stop: readonly string[]): () => void {
  const guard = spawn('/bin/sh', ['-c', 'read -r _ || exec "$@"', 'sh', ...stop], {
    stdio: ['pipe', 'ignore', 'ignore'],
    detached: true,
  })
  // If the guard cannot be started, the script runs without it.
  guard.on('error', () => {})
  guard.stdin.on('error', () => {})
  return () => void guard.stdin.end('\n')
}
