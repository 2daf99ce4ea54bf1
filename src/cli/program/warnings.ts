/** Prints warnings of the library like other notices of the command. */

import type { Output } from '../output.ts'

/** The part of `process` that emits warnings. */
export interface WarningSource {
  listeners(event: 'warning'): readonly unknown[]
  removeAllListeners(event: 'warning'): unknown
  on(event: 'warning', listener: (warning: Error) => void): unknown
}

type Listener = (warning: Error) => void

/**
 * Prints warnings as notices. Does nothing if Node prints no warnings, as with `NODE_NO_WARNINGS`.
 */
export function showWarnings(source: WarningSource, output: () => Output): void {
  const nodes = source.listeners('warning') as readonly Listener[]
  if (nodes.length === 0) return
  source.removeAllListeners('warning')
  source.on('warning', (warning) => {
    const shown = output()
    const { name, message, code = name } = warning as Error & { readonly code?: string }
    if (name === 'TuttiWarning' || shown.form === 'json') shown.problem(`${code}: ${message}`)
    else for (const listener of nodes) listener(warning)
  })
}
