/** The file of a socket on which no process listens. */

import { execFileSync } from 'node:child_process'
import { basename, dirname } from 'node:path'

/** In a child, which is killed: a process that ends by itself removes the file of its socket. */
export function makeSocket(path: string): void {
  const code =
    "require('node:net').createServer().listen(process.argv[1], () => process.kill(process.pid, 9))"
  try {
    // A relative path, because the length of a socket's path is limited.
    execFileSync(process.execPath, ['-e', code, basename(path)], { cwd: dirname(path) })
  } catch (error) {
    if ((error as { signal?: unknown }).signal !== 'SIGKILL') throw error
  }
}
