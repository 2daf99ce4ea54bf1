/** Opens a file with the program that the person's desktop has for it. */

import { spawn } from 'node:child_process'
import { messageOf } from '../../foundation/errors.ts'

/** The command that does it on this system. */
function openerOf(path: string): readonly [command: string, ...args: string[]] {
  if (process.platform === 'darwin') return ['open', path]
  // The first text in quotes would be the title of a window.
  if (process.platform === 'win32') return ['cmd', '/c', 'start', '""', path]
  return ['xdg-open', path]
}

/** Resolves when that program runs, with `null`, or with why it does not. It may run for long. */
export function openFile(path: string): Promise<string | null> {
  const [command, ...args] = openerOf(path)
  return new Promise((resolve) => {
    const child = spawn(command, args, { stdio: 'ignore', detached: true })
    child.once('error', (error) => resolve(`${command}: ${messageOf(error)}`))
    child.once('spawn', () => resolve(null))
    child.unref()
  })
}
