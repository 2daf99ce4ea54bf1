/** Processes of this machine, told by their environment. */

import { readdirSync, readFileSync } from 'node:fs'

/** The ids of all that have this variable, as `NAME=value`. */
export const processesWith = (variable: string): string[] =>
  readdirSync('/proc').filter((pid) => {
    try {
      return readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0').includes(variable)
    } catch {
      return false
    }
  })
