/** Makes jobs ready for a node: modules from bundles, folders of programs, the agent's rules. */

import { fileURLToPath } from 'node:url'
import type { TaskReport } from '../../../backends/backend.ts'
import type { Clock } from '../../../foundation/clock.ts'
import { errnoOf, messageOf, withoutStack } from '../../../foundation/errors.ts'
import {
  CwdNotFoundError,
  ExecutableNotFoundError,
  ExecutableNotPermittedError,
  OutputFileError,
  TaskImportError,
} from '../../../foundation/task-errors.ts'
import { retry } from '../../../runtime/retry.ts'
import type { TaskSpec } from '../../../tasks/spec.ts'
import type { StoredObjects } from '../../broker/stored-objects.ts'
import { bundlePrefix } from '../../bundles/bundle.ts'
import type { AgentStimulus, Unready } from '../../protocol/agent/agent-stimuli.ts'
import type { HeldAttempt } from '../../protocol/agent/held-attempts.ts'
import type { NotAllowed } from '../../wire/messages.ts'
import type { UnpackedBundles } from '../../bundles/unpacked-bundles.ts'
import type { SessionFolder } from './work-folder.ts'

export interface JobPreparationOptions {
  readonly sessionId: string
  readonly agent: string
  readonly bundles: UnpackedBundles
  readonly folder: SessionFolder
  /** The folder in which programs run if it exists on this node. */
  readonly wantedFolder: () => string
  readonly refuse: (spec: TaskSpec) => NotAllowed | null
  readonly objects: StoredObjects
  readonly clock: Clock
  readonly tell: (stimulus: AgentStimulus) => void
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

export class JobPreparation {
  readonly #options: JobPreparationOptions

  constructor(options: JobPreparationOptions) {
    this.#options = options
  }

  /** Tells which jobs are ready. Those whose bundle must be loaded follow. */
  async prepare(jobs: readonly HeldAttempt[]): Promise<void> {
    const { bundles, tell } = this.#options
    const ofBundles = new Map<string, HeldAttempt[]>()
    const ofNode: HeldAttempt[] = []
    for (const job of jobs) {
      const { spec } = job
      const digest = spec.kind === 'function' ? bundles.findDigest(spec.definition) : null
      if (digest === null) ofNode.push(job)
      else ofBundles.set(digest, [...(ofBundles.get(digest) ?? []), job])
    }
    if (ofNode.length > 0) this.#place(ofNode, false)
    await Promise.all(
      [...ofBundles].map(async ([digest, users]) => {
        const why = await this.#prepareBundle(digest)
        if (why === null) this.#place(users, true)
        else tell({ kind: 'unready', jobs: users, why })
      }),
    )
  }

  #place(jobs: readonly HeldAttempt[], isBundled: boolean): void {
    const { folder, wantedFolder, refuse, tell } = this.#options
    const ready: HeldAttempt[] = []
    const specs: TaskSpec[] = []
    for (const job of jobs) {
      const local = isBundled ? this.#toLocal(job.spec) : job.spec
      const { spec, problem } = folder.toPlacedSpec(local, wantedFolder())
      const notAllowed = problem === undefined ? refuse(spec) : null
      if (problem !== undefined) {
        tell({ kind: 'unready', jobs: [job], why: { kind: 'failed', error: problem } })
      } else if (notAllowed !== null) {
        tell({ kind: 'unready', jobs: [job], why: { kind: 'not-allowed', notAllowed } })
      } else {
        ready.push(job)
        specs.push(spec)
      }
    }
    tell({ kind: 'ready', jobs: ready, specs })
  }

  #toLocal(spec: TaskSpec): TaskSpec {
    if (spec.kind !== 'function') return spec
    return { ...spec, definition: this.#options.bundles.toLocal(spec.definition) }
  }

  /** Loads and unpacks a bundle. Resolves with the reason if its jobs cannot run here. */
  async #prepareBundle(digest: string): Promise<Unready | null> {
    const { bundles, objects, sessionId, clock, agent } = this.#options
    const load = (): Promise<Uint8Array | null> => objects.get(`${bundlePrefix}/${digest}`)
    const { closed: signal } = objects
    const lost = { kind: 'lost-bundle', digest } as const
    try {
      const use = (): Promise<boolean> => bundles.acquire(digest, sessionId, load)
      return (await retry(loadPolicy, use, { clock, signal })) ? null : lost
    } catch (cause) {
      if (signal.aborted) return lost
      const text = `node ${agent} cannot unpack the module: ${messageOf(cause)}`
      return { kind: 'failed', error: new TaskImportError(text, { cause }) }
    }
  }

  /**
   * Adds the node's name to an error about a file or module, because other nodes may have the file.
   */
  addNodeName(report: TaskReport, spec: TaskSpec): TaskReport {
    if (report.kind !== 'fail') return report
    const { error } = report
    const { agent: name } = this.#options
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
