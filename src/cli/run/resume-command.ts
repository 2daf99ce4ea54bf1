/** How to go on with a run, as a line that a person can copy. */

import type { RunCommand } from '../../checkpoint/run-file.ts'
import { quoteWord } from '../../views/readable.ts'

/** With a place for each argument that was not kept. */
export function resumeCommand(record: string, command: Pick<RunCommand, 'arguments'>): string {
  const places = secretPlaces(command)
  const rest = places.length === 0 ? '' : ` -- ${places.join(' ')}`
  return `npx tutti resume ${quoteWord(record)}${rest}`
}

/** What stands for the arguments that hold secrets, which are not kept. */
export const secretPlaces = (command: Pick<RunCommand, 'arguments'>): string[] =>
  command.arguments.flatMap((arg, at) => (arg === null ? [`<argument ${at + 1}>`] : []))
