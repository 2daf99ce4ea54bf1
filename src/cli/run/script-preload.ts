/**
 * Loaded before a script of `tutti run` or `tutti resume`. Worker threads of the script load it
 * too, but there it does nothing.
 */

import { isMainThread } from 'node:worker_threads'

if (isMainThread) {
  const { form = 'text' } = Object.fromEntries(new URL(import.meta.url).searchParams)
  // Processes that the script forks must not load this module.
  const at = process.execArgv.indexOf(`--import=${import.meta.url}`)
  if (at !== -1) process.execArgv.splice(at, 1)
  const { installNotices } = await import('./script-reports.ts')
  installNotices(form)
}
