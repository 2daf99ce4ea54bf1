/** `tutti dashboard`: shows a record, or the runs of a folder, in the browser. */

import { openDashboard } from '../../dashboard/dashboard.ts'
import { systemClock } from '../../foundation/clock.ts'
import { definedFields } from '../../foundation/options.ts'
import { statOf } from '../../foundation/regular-file.ts'
import { findRecord } from '../../record/find-record.ts'
import { stopOnSignal } from '../exit.ts'
import type { Output } from '../output.ts'
import { RecordWriters } from '../reading/record-writer.ts'

export interface DashboardCommandOptions {
  readonly port?: number
  readonly host?: string
  readonly allowHost?: readonly string[]
}

/** Shows the dashboard until a signal stops it. */
export async function showRecordDashboard(
  source: string,
  { port, host, allowHost: allowHosts }: DashboardCommandOptions,
  output: Output,
): Promise<number> {
  const isFolder = statOf(source)?.isDirectory() === true
  const path = isFolder ? source : await findRecord(source)
  const stop = stopOnSignal(output.closed)
  // Keeps the process alive, because the server does not.
  const release = systemClock.after(Infinity, () => {})
  try {
    const options = definedFields({ port, host, allowHosts })
    await using dashboard = await openDashboard(path, options, { writers: new RecordWriters() })
    const { url } = dashboard
    output.result({ url }, [`dashboard  ${url}`, 'stop       Ctrl-C'])
    await stop.received
    return await stop.exitCode()
  } finally {
    release()
    stop.release()
  }
}
