/** Packs the modules of a session's functions, and stores each once for agents that lack it. */

import type { Clock } from '../../foundation/clock.ts'
import { messageOf } from '../../foundation/errors.ts'
import { TaskImportError } from '../../foundation/task-errors.ts'
import { Semaphore } from '../../runtime/fifo.ts'
import type { StoredObjects } from '../broker/stored-objects.ts'
import { bundlePrefix, toBundleUrl } from './bundle.ts'
import { UnbundleableError } from './module-graph.ts'
import { unlessAborted } from '../../foundation/promises.ts'
import { exitReason, siblingProgram, SupervisedChild } from '../../runtime/supervised-child.ts'
import type { BundleProgramOutput, BundleProgramInput } from './bundle-program.ts'

/** The maximum number of concurrent child processes. Each has a module's files in memory. */
const maxPackers = 4

export class SentModules {
  readonly #objects: StoredObjects
  readonly #clock: Clock
  readonly #ready = new Map<string, { readonly url: string; readonly digest: string }>()
  readonly #packing = new Map<string, Promise<void>>()
  readonly #packers = new Semaphore(maxPackers)

  constructor(objects: StoredObjects, clock: Clock) {
    this.#objects = objects
    this.#clock = clock
  }

  find(module: string): string | null {
    return this.#ready.get(module)?.url ?? null
  }

  /** Packs and stores a module. Rejects with `UnbundleableError`, or when the session ends. */
  prepare(module: string): Promise<void> {
    const known = this.#packing.get(module)
    if (known !== undefined) return known
    const added = this.#packers.run(() => this.#packAndStore(module))
    this.#packing.set(module, added)
    added.catch((error: unknown) => {
      // Only an `UnbundleableError` is permanent. After other failures, the next call tries again.
      if (!(error instanceof UnbundleableError)) this.#packing.delete(module)
    })
    return added
  }

  dropLost(digests: readonly string[]): void {
    for (const [module, { digest }] of this.#ready) {
      if (!digests.includes(digest)) continue
      this.#ready.delete(module)
      this.#packing.delete(module)
    }
  }

  async #packAndStore(module: string): Promise<void> {
    const { data, digest, path } = await packModule(module, this.#clock, this.#objects.closed)
    await this.#objects.put({ prefix: bundlePrefix, title: `module ${module}`, data })
    this.#ready.set(module, { url: toBundleUrl(digest, path), digest })
  }
}

export function toImportError(module: string, agent: string, cause: unknown): TaskImportError {
  return new TaskImportError(
    `the module ${module} cannot be sent to node ${agent}: ${messageOf(cause)}`,
    {
      field: 'function',
      expected: 'a module that can be sent',
      cause,
      ...(cause instanceof UnbundleableError ? { hint: cause.hint } : {}),
    },
  )
}

type PackedModule = Extract<BundleProgramOutput, { kind: 'packed' }>

/** The time limit for the import, which is the same as in a worker. */
const importTimeoutSeconds = 60
const importHint = 'The module is imported once on this machine, to see what it needs.'

/** Packs a module in a child process. Rejects with `UnbundleableError`, or if aborted. */
async function packModule(
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
  const child = new SupervisedChild<BundleProgramInput, BundleProgramOutput>({
    program: siblingProgram(import.meta.url, 'bundle-program'),
    clock,
    // Required to resolve a specifier relative to another module.
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
    // Kills the process, because the module's code may keep it alive.
    child.kill()
    // Cancels a start of the child process that is still pending in this turn.
    child.close().catch(() => {})
  }
}
