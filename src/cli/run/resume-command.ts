/** Prints where the record of a run is, and the command that resumes it. */

import { readRunCommand, type RunCommand } from '../../checkpoint/run-file.ts'
import { toShortPath } from '../../record/find-record.ts'
import { quoteArgument } from '../../views/readable.ts'
import type { Output } from '../output.ts'

/**
 * Returns the command that resumes the record. It contains a placeholder for each argument that was
 * not stored.
 */
export function resumeCommand(record: string, command: Pick<RunCommand, 'arguments'>): string {
  const places = secretPlaceholders(command)
  const rest = places.length === 0 ? '' : ` -- ${places.join(' ')}`
  return `npx tutti resume ${quoteArgument(record)}${rest}`
}

/**
 * Returns a line with the command that resumes the record; `null` if the record was not made by a
 * command.
 */
export function resumeLine(record: string | null): string | null {
  const command = record === null ? null : readRunCommand([record])
  return record === null || command === null ? null : `resume  ${resumeCommand(record, command)}`
}

/** Prints the path of the record to stderr, because stdout belongs to the script. */
export function reportRecord(record: string, output: Output): void {
  if (output.form === 'text') output.problem(`record  ${toShortPath(record)}`)
}

/** Returns placeholders for the arguments that were not stored because they contain secrets. */
export const secretPlaceholders = (command: Pick<RunCommand, 'arguments'>): string[] =>
  command.arguments.flatMap((arg, at) => (arg === null ? [`<argument ${at + 1}>`] : []))
