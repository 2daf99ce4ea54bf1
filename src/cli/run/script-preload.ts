/**
 * Loaded into the process of a script of `tutti run` or `tutti resume` before the script. Worker
 * threads of the script load it as well, where it does nothing.
 */

import { isMainThread } from 'node:worker_threads'

if (isMainThread) {
  const { form = 'text' } = Object.fromEntries(new URL(import.meta.url).searchParams)
  // Removed, so that processes that the script forks are not part of the run.
  const at = process.execArgv.indexOf(`--import=${import.meta.url}`)
  if (at !== -1) process.execArgv.splice(at, 1)
  const { reportForCommand } = await import('./script-reports.ts')
  reportForCommand(form)
}
