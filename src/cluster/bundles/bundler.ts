/** Packs a module and its imports, in a child process. */

import type { Clock } from '../../foundation/clock.ts'
import { unlessAborted } from '../../foundation/promises.ts'
import { exitReason, siblingProgram, SupervisedChild } from '../../runtime/supervised-child.ts'
import type { FromBundleProgram, ToBundleProgram } from './bundle-program.ts'
import { UnbundleableError } from './module-graph.ts'

/** A packed bundle, ready to be stored. */
export type PackedModule = Extract<FromBundleProgram, { kind: 'packed' }>

/** The same time that a worker may take to import a module. */
const importTimeoutSeconds = 60
const importHint = 'The module is imported once on this machine, to see what it needs.'

/** Rejects with `UnbundleableError`, or as soon as the signal is aborted. */
export async function packModule(
  module: string,
  clock: Clock,
  signal: AbortSignal,
): Promise<PackedModule> {
  if (!module.startsWith('file:')) {
    throw new UnbundleableError('it is no file', 'Define the function in a file.')
  }
  const { promise, resolve, reject } = Promise.withResolvers<PackedModule>()
  const fail = (message: string, hint: string | null): void =>
    reject(new UnbundleableError(message, hint ?? importHint))
  const child = new SupervisedChild<ToBundleProgram, FromBundleProgram>({
    program: siblingProgram(import.meta.url, 'bundle-program'),
    clock,
    // Needed to resolve a specifier relative to another module.
    execArgv: ['--experimental-import-meta-resolve'],
    isDetached: true,
    stdout: 'ignore',
    stderr: 'capture',
    onMessages: ([message]) => {
      if (message?.kind === 'packed') resolve(message)
      else if (message !== undefined) fail(message.message, message.hint)
    },
    onExit: (exit) => {
      fail(`its import ended the process (${exitReason(exit)}): ${exit.output}`, null)
    },
  })
  child.ref()
  child.send({ kind: 'pack', module })
  const expire = (): void =>
    fail(`its import did not end within ${importTimeoutSeconds} s`, 'Do less at import.')
  const cancel = clock.after(importTimeoutSeconds * 1000, () => clock.nextTurn(expire))
  try {
    return await unlessAborted(signal, promise)
  } finally {
    cancel()
    // Code of the module may keep the process alive.
    child.kill()
    // Otherwise a child that was to start in this turn would still start.
    child.close().catch(() => {})
  }
}
