/** Finds the processes of models, in the system's own books. */

import { readdirSync, readFileSync } from 'node:fs'

/** The children of a process that run a model. */
export function modelProcesses(parent: number): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => isModelOf(pid, parent))
}

/** Also one that has ended and waits to be collected is not running. */
export function isRunning(pid: number): boolean {
  const stat = read(`/proc/${pid}/stat`)
  return stat !== '' && !/\) Z/.test(stat)
}

/** Whether a child of the process has ended: only then it has page faults of children. */
export function hadChild(pid: number): boolean {
  return read(`/proc/${pid}/stat`).split(') ')[1]?.split(' ')[8] !== '0'
}

function isModelOf(pid: number, parent: number): boolean {
  const isChild = read(`/proc/${pid}/stat`).split(') ')[1]?.split(' ')[1] === String(parent)
  return isChild && read(`/proc/${pid}/cmdline`).includes('llama-program')
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}
