/**
 * The lines that an agent, and the shell around it, write to their standard output for the driver.
 * The shell is the agent's parent, because a killed agent cannot report its own end.
 */

import { toCacheExport } from '../launch/module-cache.ts'
import { quoteForShell } from '../quote.ts'

/** Written by an agent when it is connected. */
export const startedLine = 'tutti: agent started'
/** Tells an agent to finish running tasks and to leave. */
export const drainLine = 'drain'
/** The exit code of an agent whose name is in use by a connected agent, such as a suspended one. */
export const nameTakenCode = 75

const endedMark = 'tutti: agent ended on'

/**
 * A shell command whose last argument is the node's name. It runs the program with that name and
 * reports the program's end. The program handles the scheduler's SIGTERM, not the shell. A node
 * that cannot see the compile cache runs without it.
 */
export function toAgentCommand(
  program: readonly string[],
  cache: string | null = null,
): readonly string[] {
  const words = program.map((word) => quoteForShell('a command', word)).join(' ')
  const keep = cache === null ? '' : `${toCacheExport(cache)}; `
  // A single line, as a remote shell requires.
  const script = `trap : TERM; ${keep}${words} "$1"; code=$?; echo "${endedMark} $1"; exit $code`
  return ['/bin/sh', '-c', script, 'sh']
}

/** The node whose agent has ended, if the line reports that. */
export const parseEnded = (line: string): string | null =>
  line.startsWith(`${endedMark} `) ? line.slice(endedMark.length + 1) : null
