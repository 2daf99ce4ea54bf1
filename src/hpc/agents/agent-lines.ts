/**
 * What the process of an agent and the shell around it tell the driver on their standard output.
 * The shell is the parent of the agent, which cannot tell of its own end when it is killed.
 */

import { toCacheExport } from '../launch/module-cache.ts'
import { quoteForShell } from '../quote.ts'

/** What an agent writes when it is connected. */
export const startedLine = 'tutti: agent started'
/** By which it is told to finish what runs, and to leave. */
export const drainLine = 'drain'
/** Its exit code while an agent of the same name is connected, such as a stopped one. */
export const nameTakenCode = 75

const endedMark = 'tutti: agent ended on'

/**
 * Runs the program with the node's name, which is the last argument of the command, and tells of
 * its end. The scheduler's SIGTERM is for the program. A node that does not see the cache of
 * modules has none.
 */
export function toAgentCommand(
  program: readonly string[],
  cache: string | null = null,
): readonly string[] {
  const words = program.map((word) => quoteForShell('a command', word)).join(' ')
  const keep = cache === null ? '' : `${toCacheExport(cache)}; `
  // One line, as a remote shell takes it.
  const script = `trap : TERM; ${keep}${words} "$1"; code=$?; echo "${endedMark} $1"; exit $code`
  return ['/bin/sh', '-c', script, 'sh']
}

/** The node whose agent has ended, if the line tells that. */
export const parseEnded = (line: string): string | null =>
  line.startsWith(`${endedMark} `) ? line.slice(endedMark.length + 1) : null
