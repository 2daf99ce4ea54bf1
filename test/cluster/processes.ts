/** Processes of this machine, found by their environment, parent or command. */

import { readdirSync, readFileSync } from 'node:fs'

/** The ids of all processes that have this variable, as `NAME=value`. */
export const processesWith = (variable: string): string[] =>
  readdirSync('/proc').filter((pid) => {
    try {
      return readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0').includes(variable)
    } catch {
      return false
    }
  })

const readOf = (pid: number, name: string): string => {
  try {
    return readFileSync(`/proc/${pid}/${name}`, 'utf8')
  } catch {
    return ''
  }
}

export const childrenOf = (pid: number): number[] =>
  readOf(pid, `task/${pid}/children`)
    .split(' ')
    .flatMap((text) => (text === '' ? [] : [Number(text)]))

/** With its arguments; empty of a process that is gone. */
export const commandOf = (pid: number): string => readOf(pid, 'cmdline').replaceAll('\0', ' ')
