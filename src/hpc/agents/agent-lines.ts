/**
 * Lines that agents send and receive. A shell reports an agent's exit, even if the agent is killed.
 */

import { toCacheExport } from '../launch/module-cache.ts'
import { quoteForShell } from '../quote.ts'

/** The line that an agent writes when it has connected. */
export const agentStartedLine = 'tutti: agent started'
/** The input line that makes an agent finish its running tasks and exit. */
export const drainLine = 'drain'
/** The exit code of an agent whose name is already used by a connected agent. */
export const nameTakenCode = 75

const endedPrefix = 'tutti: agent ended on'

/**
 * Returns a shell command that runs the program and reports its exit. The caller appends the node's
 * name. The shell ignores SIGTERM, so that the program can handle it.
 */
export function toAgentCommand(
  program: readonly string[],
  cache: string | null = null,
): readonly string[] {
  const words = program.map((word) => quoteForShell('a command', word)).join(' ')
  const setUp = cache === null ? '' : `${toCacheExport(cache)}; `
  // A remote shell requires a single line.
  const script = `trap : TERM; ${setUp}${words} "$1"; code=$?; echo "${endedPrefix} $1"; exit $code`
  return ['/bin/sh', '-c', script, 'sh']
}

/** Returns the name of the node whose agent has ended; `null` for any other line. */
export const parseAgentEnded = (line: string): string | null =>
  line.startsWith(`${endedPrefix} `) ? line.slice(endedPrefix.length + 1) : null
