/** Runs the programs under `fixtures` and exchanges lines with them. */

import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { onTestFinished } from 'vitest'

export interface Child {
  readonly process: ChildProcess
  readonly pid: number
  send(line: string): void
  /** The next line it prints; an error with its stderr when it ended instead. */
  nextLine(): Promise<string>
  /** Resolves with the exit code, or the signal's name. */
  readonly ended: Promise<number | string>
}

interface ChildOptions {
  readonly nodeArguments?: readonly string[]
  /** How the shell runs it, as `"$@"`. */
  readonly shell?: string
}

export function startChild(fixture: string, args: string[], options: ChildOptions = {}): Child {
  const file = join(import.meta.dirname, 'fixtures', fixture)
  const command = [process.execPath, ...(options.nodeArguments ?? []), file, ...args]
  const { shell = 'exec "$@"' } = options
  const child = spawn('bash', ['-c', shell, 'bash', ...command], { stdio: 'pipe' })
  let stderr = ''
  child.stderr.on('data', (data: Buffer) => (stderr += data.toString()))
  child.stdin.on('error', () => {})
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  const ended = once(child, 'close').then(([code, signal]: unknown[]) =>
    typeof code === 'number' ? code : String(signal),
  )
  onTestFinished(() => {
    child.kill('SIGKILL')
  })
  return {
    process: child,
    pid: child.pid ?? 0,
    send: (line) => void child.stdin.write(`${line}\n`),
    async nextLine() {
      const next = await lines.next()
      if (next.done !== true) return next.value
      throw new Error(`the child ended (${await ended}): ${stderr}`)
    },
    ended,
  }
}
