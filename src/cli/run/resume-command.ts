/** Where the record of a run is, and the command that resumes it, for users to copy. */

import type { RunCommand } from '../../checkpoint/run-file.ts'
import { nearestPath } from '../../record/find-record.ts'
import { quoteWord } from '../../views/readable.ts'
import type { Output } from '../output.ts'

/** Contains a placeholder for each argument that was not stored. */
export function resumeCommand(record: string, command: Pick<RunCommand, 'arguments'>): string {
  const places = secretPlaces(command)
  const rest = places.length === 0 ? '' : ` -- ${places.join(' ')}`
  return `npx tutti resume ${quoteWord(record)}${rest}`
}

/** Prints where the record of a script is: to stderr, because stdout belongs to the script. */
export function reportRecord(record: string, output: Output): void {
  if (output.form === 'text') output.problem(`record  ${nearestPath(record)}`)
}

/** Placeholders for the arguments with secrets, which are not stored. */
export const secretPlaces = (command: Pick<RunCommand, 'arguments'>): string[] =>
  command.arguments.flatMap((arg, at) => (arg === null ? [`<argument ${at + 1}>`] : []))
