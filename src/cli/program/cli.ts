/** The parameter of each command declaration, and arguments shared by several commands. */

import { type Command, InvalidArgumentError } from 'commander'
import type { Output } from '../output.ts'

export interface Cli {
  readonly program: Command
  readonly output: () => Output
  /** Sets the exit code of the process. */
  readonly finish: (code: number) => void
}

const whichFile = 'File, folder, session (as much of its id as is unique)'

/** Adds `[record]` to a command that only reads it. */
export const withRecord = (command: Command): Command =>
  command.argument('[record]', `${whichFile}, latest, or - for stdin`, 'latest')

/** Adds `[record]` to a command that writes beside it. */
export const withRecordFile = (command: Command): Command =>
  command.argument('[record]', `${whichFile}, or latest`, 'latest')

export const toCountUpTo =
  (max: number) =>
  (text: string): number => {
    const count = Number(text)
    if (Number.isInteger(count) && count > 0 && count <= max) return count
    throw new InvalidArgumentError(`expected a whole number from 1 to ${max}`)
  }

export const toCount = toCountUpTo(1_000_000)

/** Rejects an empty text, such as that of an unset variable, which would select everything. */
export function toText(text: string): string {
  if (text === '') throw new InvalidArgumentError('expected a value that is not empty')
  return text
}

/** Parser of a repeatable option. */
export const toList = (text: string, before: readonly string[] = []): readonly string[] => [
  ...before,
  toText(text),
]
