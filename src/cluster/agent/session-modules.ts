/** The modules of a session's functions on this node: local files, or bundles from the driver. */

import { fileURLToPath } from 'node:url'
import type { Clock } from '../../foundation/clock.ts'
import { errnoOf, messageOf, withoutStack } from '../../foundation/errors.ts'
import {
  CwdNotFoundError,
  ExecutableNotFoundError,
  ExecutableNotPermittedError,
  OutputFileError,
  TaskImportError,
} from '../../foundation/task-errors.ts'
import { retry } from '../../runtime/retry.ts'
import type { TaskSpec } from '../../tasks/spec.ts'
import type { StoredObjects } from '../broker/stored-objects.ts'
import type { ResultReport } from '../wire/results.ts'
import { bundlePrefix } from '../bundles/bundle.ts'
import type { AgentStart } from '../wire/messages.ts'
import type { UnpackedBundles } from '../bundles/unpacked-bundles.ts'

export interface SessionModulesOptions {
  readonly sessionId: string
  readonly self: AgentStart
  readonly bundles: UnpackedBundles
  readonly objects: StoredObjects
  readonly clock: Clock
}

const sharedModulesHint =
  "With `modules: 'shared'` every node needs the module, and what it imports, under the same " +
  "path. Put it there, or have it sent: `ClusterBackend.create({ modules: 'bundle' })`."

/** Errors of programs that cannot start on this node, but may start on another. */
const nodeErrors = [
  ExecutableNotFoundError,
  ExecutableNotPermittedError,
  CwdNotFoundError,
  OutputFileError,
] as const

const isMissingFile = (error: unknown): boolean => errnoOf(error) === 'ERR_MODULE_NOT_FOUND'

const loadPolicy = { delayMs: 500, maxAttempts: 10 }

export class SessionModules {
  readonly #options: SessionModulesOptions

  constructor(options: SessionModulesOptions) {
    this.#options = options
  }

  findDigest(spec: TaskSpec): string | null {
    return spec.kind === 'function' ? this.#options.bundles.findDigest(spec.definition) : null
  }

  toLocal(spec: TaskSpec): TaskSpec {
    if (spec.kind !== 'function') return spec
    return { ...spec, definition: this.#options.bundles.toLocal(spec.definition) }
  }

  /**
   * Loads and unpacks a bundle. Resolves with `lost` if the broker does not have it, and with an
   * error if it cannot be unpacked.
   */
  async prepare(digest: string): Promise<'ready' | 'lost' | TaskImportError> {
    const { bundles, objects, sessionId, clock, self } = this.#options
    const load = (): Promise<Uint8Array | null> => objects.get(`${bundlePrefix}/${digest}`)
    const { closed: signal } = objects
    try {
      const use = (): Promise<boolean> => bundles.acquire(digest, sessionId, load)
      return (await retry(loadPolicy, use, { clock, signal })) ? 'ready' : 'lost'
    } catch (cause) {
      if (signal.aborted) return 'lost'
      const text = `node ${self.name} cannot unpack the module: ${messageOf(cause)}`
      return new TaskImportError(text, { cause })
    }
  }

  /**
   * Adds the node's name to an error about a file or module, because other nodes may have the file.
   */
  addNodeName(report: ResultReport, spec: TaskSpec): ResultReport {
    if (report.kind !== 'fail') return report
    const { error } = report
    const { name } = this.#options.self
    const nodeError = nodeErrors.find((type) => error instanceof type)
    if (nodeError !== undefined && error instanceof nodeError) {
      const details = error.hint === undefined ? {} : { hint: error.hint }
      const text = `node ${name}: ${error.message}`
      return { ...report, error: withoutStack(() => new nodeError(text, details)) }
    }
    if (!(error instanceof TaskImportError)) return report
    const { message, field = 'function', expected = '', cause } = error
    const isShared = isMissingFile(cause) && this.#isLocalFile(spec)
    const hint = isShared ? sharedModulesHint : error.hint
    const details = { field, expected, cause, ...(hint === undefined ? {} : { hint }) }
    return { ...report, error: new TaskImportError(`node ${name}: ${message}`, details) }
  }

  #isLocalFile(spec: TaskSpec): boolean {
    if (spec.kind !== 'function' || !spec.definition.module.startsWith('file:')) return false
    return this.#options.bundles.projectPath(fileURLToPath(spec.definition.module)) === null
  }

  release(): Promise<void> {
    return this.#options.bundles.release(this.#options.sessionId)
  }
}
