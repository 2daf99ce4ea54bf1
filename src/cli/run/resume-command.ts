/** The command that resumes a run, for users to copy. */

import type { RunCommand } from '../../checkpoint/run-file.ts'
import { quoteWord } from '../../views/readable.ts'

/** Contains a placeholder for each argument that was not stored. */
export function resumeCommand(record: string, command: Pick<RunCommand, 'arguments'>): string {
  const places = secretPlaces(command)
  const rest = places.length === 0 ? '' : ` -- ${places.join(' ')}`
  return `npx tutti resume ${quoteWord(record)}${rest}`
}

/** Placeholders for the arguments with secrets, which are not stored. */
export const secretPlaces = (command: Pick<RunCommand, 'arguments'>): string[] =>
  command.arguments.flatMap((arg, at) => (arg === null ? [`<argument ${at + 1}>`] : []))
