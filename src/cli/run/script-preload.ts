/**
 * Loaded before a script of `tutti run` and `tutti resume`, in the script's process. Threads of the
 * script load it as well, and do nothing.
 */

import { isMainThread } from 'node:worker_threads'

if (isMainThread) {
  const { form = 'text' } = Object.fromEntries(new URL(import.meta.url).searchParams)
  // What the script forks is no part of the run.
  const at = process.execArgv.indexOf(`--import=${import.meta.url}`)
  if (at !== -1) process.execArgv.splice(at, 1)
  const { reportForCommand } = await import('./script-reports.ts')
  reportForCommand(form)
}
