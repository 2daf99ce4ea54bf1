/** Runs the command in a child process, as a person would. */

import { type ChildProcess, type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'

const main = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url))

export interface CommandEnd {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

export interface RunningCommand {
  readonly child: ChildProcess
  /** Resolves when stderr or stdout contains the text. */
  seen(text: string): Promise<void>
  /** What it has written so far. */
  stdout(): string
  readonly ended: Promise<CommandEnd>
}

export const startCommand = (
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): RunningCommand => startProgram(main, args, env)

/** `env` is added to the environment. */
export const startProgram = (
  program: string,
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): RunningCommand =>
  watch(spawn(process.execPath, [program, ...args], { env: { ...process.env, ...env } }))

export const builtMain = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url))

/** The built command, which starts faster, in another working folder. */
export const startCommandIn = (cwd: string, args: readonly string[]): RunningCommand =>
  watch(spawn(process.execPath, [builtMain, ...args], { cwd }))

/** With a redirection as a shell has it, such as `> /dev/full`. */
export const runRedirected = (to: string, ...args: readonly string[]): Promise<CommandEnd> =>
  watch(spawn('sh', ['-c', `exec "$0" "$@" ${to}`, process.execPath, main, ...args])).ended

export function watch(child: ChildProcessWithoutNullStreams): RunningCommand {
  let [stdout, stderr] = ['', '']
  const waiting: { text: string; resolve: () => void }[] = []
  const look = (): void => {
    for (const { text, resolve } of waiting) if ((stdout + stderr).includes(text)) resolve()
  }
  child.stdout.on('data', (chunk: Buffer) => {
    stdout += chunk.toString()
    look()
  })
  child.stderr.on('data', (chunk: Buffer) => {
    stderr += chunk.toString()
    look()
  })
  const ended = new Promise<CommandEnd>((resolve) => {
    child.on('close', (code) => resolve({ code, stdout, stderr }))
  })
  return {
    child,
    ended,
    stdout: () => stdout,
    seen: (text) =>
      new Promise((resolve) => {
        waiting.push({ text, resolve })
        look()
      }),
  }
}

export const runCommand = (...args: readonly string[]): Promise<CommandEnd> =>
  startCommand(args).ended
