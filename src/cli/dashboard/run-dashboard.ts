/** The option `--dashboard` of commands that run something. */

import type { Output } from '../output.ts'

/** Warns if the option was given to the script instead of the command. */
export function warnAboutDashboard(args: readonly string[], output: Output): void {
  if (!args.includes('--dashboard')) return
  output.problem('--dashboard is given to the script; write it before the script to see the run')
}

/**
 * Starts a dashboard if `isWanted`, and prints its link to stderr, because stdout may belong to a
 * script. `findRecord` returns the record as soon as there is one.
 */
export async function openRunDashboard(
  isWanted: boolean | undefined,
  findRecord: () => string | null,
  output: Output,
): Promise<AsyncDisposable | null> {
  if (isWanted !== true) return null
  // Imported only here, so that runs without a dashboard start fast.
  const { openDashboard } = await import('../../dashboard/dashboard.ts')
  const { RecordWriters } = await import('../reading/record-writer.ts')
  const dashboard = await openDashboard(findRecord, {}, { writers: new RecordWriters() })
  output.problem(`dashboard  ${dashboard.url}`)
  return dashboard
}
