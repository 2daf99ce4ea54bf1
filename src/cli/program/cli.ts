/** Arguments, and parsers of options, that several commands share. */

import { type Command, InvalidArgumentError } from 'commander'
import type { Output } from '../output.ts'

/** The common parameter of the functions that declare commands. */
export interface Cli {
  readonly program: Command
  readonly output: () => Output
  readonly finish: (code: number) => void
}

const recordDescription = 'File, folder, session (as much of its id as is unique)'

/** Adds `[record]` to a command that can also read the record from stdin. */
export const withRecord = (command: Command): Command =>
  command.argument('[record]', `${recordDescription}, latest, or - for stdin`, 'latest')

/** Adds `[record]` to a command that can only read the record from a file. */
export const withRecordFile = (command: Command): Command =>
  command.argument('[record]', `${recordDescription}, or latest`, 'latest')

export const toCountUpTo =
  (max: number) =>
  (text: string): number => {
    const count = Number(text)
    if (Number.isInteger(count) && count > 0 && count <= max) return count
    throw new InvalidArgumentError(`expected a whole number from 1 to ${max}`)
  }

export const toCount = toCountUpTo(1_000_000)

/** Throws for an empty text, such as the value of an unset variable. */
export function expectNotEmpty(text: string): string {
  if (text === '') throw new InvalidArgumentError('expected a value that is not empty')
  return text
}

export function expectOnce(text: string, before?: string): string {
  if (before !== undefined) throw new InvalidArgumentError('it was given twice')
  return text
}

/** Returns the parser of an option with few possible values. */
export const toOneOf =
  (...known: readonly string[]) =>
  (text: string, before?: string): string => {
    if (known.includes(text)) return expectOnce(text, before)
    throw new InvalidArgumentError(`expected ${known.join(' or ')}`)
  }

/** Parses a repeatable option. */
export const toList = (text: string, before: readonly string[] = []): readonly string[] => [
  ...before,
  expectNotEmpty(text),
]

export function toPort(text: string): number {
  if (/^\d+$/.test(text) && Number(text) <= 65_535) return Number(text)
  throw new InvalidArgumentError('expected a whole number from 0 to 65535')
}

/** Parses a repeatable option with a host name. */
export function toHosts(text: string, before: readonly string[] = []): readonly string[] {
  if (/^(?:[\w.-]+|\[[\da-f:.]+\])(?::\d+)?$/i.test(text)) return [...before, text]
  throw new InvalidArgumentError('expected a name such as ai.example.org, or an address')
}
