/** Runs the command in a child process, as a person would, or in this one. */

import { type ChildProcess, type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { runCommandLine } from '../../src/cli/program/command-line.ts'

/** The command from its sources. */
export const main = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url))

export interface CommandEnd {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

export interface RunningCommand {
  readonly child: ChildProcess
  /** Resolves when stderr or stdout contains the text. */
  seen(text: string): Promise<void>
  /** Its output so far. */
  stdout(): string
  /** Its output so far, that to stdout first. */
  output(): string
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
    output: () => stdout + stderr,
    seen: (text) =>
      new Promise((resolve) => {
        waiting.push({ text, resolve })
        look()
      }),
  }
}

export const runCommand = (...args: readonly string[]): Promise<CommandEnd> =>
  startCommand(args).ended

/**
 * The same command line in this process: a command that reads, or that is refused, needs a tenth of
 * the CPU time without a process of its own.
 */
export async function runHere(
  folder: string,
  args: readonly string[],
  terminal: { readonly columns?: number } = {},
): Promise<CommandEnd> {
  const [stdout, stderr] = [collect(terminal), collect(terminal)]
  const argv = [process.execPath, main, ...args]
  const own = { argv, stdout, stderr, env: process.env, exitCode: 0 }
  await within(folder, () => runCommandLine(own))
  return { code: own.exitCode, stdout: stdout.text(), stderr: stderr.text() }
}

/** A stream that keeps what is written; with columns it is a terminal. */
function collect({ columns }: { readonly columns?: number }) {
  const chunks: Buffer[] = []
  return {
    ...(columns !== undefined && { isTTY: true, columns }),
    write(chunk: string | Uint8Array, done?: () => void): void {
      chunks.push(Buffer.from(chunk as string))
      if (done !== undefined) setImmediate(done)
    },
    on() {},
    text: (): string => Buffer.concat(chunks).toString(),
  }
}

let [commandsHere, folderBefore] = [0, '']

/** Commands that run at the same time have one working folder. */
async function within(folder: string, run: () => Promise<void>): Promise<void> {
  if (commandsHere++ === 0) folderBefore = process.cwd()
  process.chdir(folder)
  try {
    await run()
  } finally {
    if (--commandsHere === 0) process.chdir(folderBefore)
  }
}
