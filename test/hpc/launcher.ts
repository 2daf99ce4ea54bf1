/** `tutti launch` as a person uses it, in a folder of its own. */

import { execFileSync, spawn } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { onTestFinished } from 'vitest'
import { quoteForShell } from '../../src/hpc/quote.ts'
import { type RunningCommand, watch } from '../cli/run-command.ts'
import type { TestSlurm } from './slurm.ts'

const mainFile = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url))

export const scriptFile = (name: string): string =>
  fileURLToPath(new URL(`fixtures/${name}.ts`, import.meta.url))

/** The record in the line that says how to resume, as a shell reads it. */
export function toldRecord(stderr: string): string {
  const [, words = ''] = /^resume {2}npx tutti resume (.*)$/m.exec(stderr) ?? []
  return execFileSync('sh', ['-c', `set -- ${words}; printf %s "$1"`], { encoding: 'utf8' })
}

export interface Launcher {
  /** The folder of records and launches. */
  readonly folder: string
  readonly start: (...args: readonly string[]) => RunningCommand
  readonly startJson: (...args: readonly string[]) => RunningCommand
  /** The same through another command, such as `salloc`. */
  readonly startBy: (command: readonly string[], ...args: readonly string[]) => RunningCommand
  /** In a terminal of its own, whose output is the command's stdout. */
  readonly startInTerminal: (...args: readonly string[]) => RunningCommand
  /** Another command of tutti. */
  readonly startOther: (...args: readonly string[]) => RunningCommand
}

export function createLauncher({ env }: Pick<TestSlurm, 'env'>): Launcher {
  const folder = mkdtempSync(join(tmpdir(), "tutti launch'er-"))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const startWords = (...words: readonly string[]): RunningCommand => {
    const [program = '', ...rest] = words
    const running = watch(spawn(program, rest, { cwd: folder, env }))
    onTestFinished(() => void running.child.kill('SIGKILL'))
    return running
  }
  const tutti = [process.execPath, mainFile]
  return {
    folder,
    start: (...args) => startWords(...tutti, 'launch', ...args),
    startJson: (...args) => startWords(...tutti, '--json', 'launch', ...args),
    startBy: (command, ...args) => startWords(...command, ...tutti, 'launch', ...args),
    startInTerminal: (...args) => {
      const words = [...tutti, 'launch', ...args].map((word) => quoteForShell('a word', word))
      return startWords('script', '-qfec', `exec ${words.join(' ')}`, '/dev/null')
    },
    startOther: (...args) => startWords(...tutti, ...args),
  }
}

/** Processes with that word in their command line, and those that they have started on nodes. */
export function processesOf(word: string): string[] {
  const isOf = (pid: string): boolean => {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').includes(word)
    } catch {
      return false
    }
  }
  return readdirSync('/proc').filter((name) => /^\d+$/.test(name) && isOf(name))
}
