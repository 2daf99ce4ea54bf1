/** The folder of one agent process, with temporary folders of sessions in it. */

import { existsSync, mkdirSync, renameSync, rmdirSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import type { Clock } from '../../../foundation/clock.ts'
import { BackendError, errnoOf, messageOf, ValueError } from '../../../foundation/errors.ts'
import type { Log } from '../../../foundation/log.ts'
import { withWorkDir, type TaskSpec } from '../../../tasks/spec.ts'
import { createOwnedFolder, removeFolder } from '../../owned-folder.ts'

export interface WorkFolderOptions {
  readonly workDir: string | undefined
  readonly agent: string
  readonly clock: Clock
  readonly log: Log
}

export class WorkFolder {
  /** The path of the folder, with symbolic links resolved. */
  readonly path: string
  readonly #options: WorkFolderOptions
  #removals = 0
  #isReported = false

  /**
   * Creates the folder, and removes folders of dead agents of this host. Rejects with `ValueError`
   * if the parent folder cannot be used.
   */
  static async open(options: WorkFolderOptions): Promise<WorkFolder> {
    const { workDir, clock, log } = options
    const parent = resolve(workDir ?? tmpdir())
    try {
      createFolder(parent)
      // The parent folder is shared, so the name must show which package created this folder.
      const kind = workDir === undefined ? 'tutti-agent' : 'agent'
      const path = await createOwnedFolder(parent, kind, clock, (left, error) => {
        log.warn('WorkFolderNotRemoved', `${left}: ${messageOf(error)}`)
      })
      return new WorkFolder(path, options)
    } catch (cause) {
      const text = `workDir: ${parent} cannot be used: ${messageOf(cause)} (${findOwner(parent)})`
      throw new ValueError(text, {
        field: 'workDir',
        expected: 'a folder that this user can write to',
        got: parent,
        hint: 'Name another one: --work-dir of tutti agent and tutti launch.',
        cause,
      })
    }
  }

  private constructor(path: string, options: WorkFolderOptions) {
    this.path = path
    this.#options = options
  }

  /**
   * Removes a subfolder. Never rejects, because files that programs have left behind must not stop
   * the agent. Renames the folder first, so that the next session of the same name does not find
   * it.
   */
  async remove(folder: string): Promise<void> {
    const removed = `${folder}.removed-${++this.#removals}`
    try {
      renameSync(folder, removed)
    } catch (error) {
      return errnoOf(error) === 'ENOENT' ? undefined : this.#remove(folder)
    }
    await this.#remove(removed)
  }

  /** Removes this folder. Never rejects. */
  close(): Promise<void> {
    return this.#remove(this.path)
  }

  /** Removes this folder if it is empty. For use when the process exits without `close`. */
  removeIfEmpty(): void {
    try {
      rmdirSync(this.path)
    } catch {
      // The folder is not empty, or does not exist.
    }
  }

  async #remove(folder: string): Promise<void> {
    const { agent, clock, log } = this.#options
    try {
      await removeFolder(folder, clock)
    } catch (error) {
      if (this.#isReported) return
      this.#isReported = true
      const text = `agent "${agent}" cannot remove ${folder}: ${messageOf(error)}`
      log.warn('WorkFolderNotRemoved', `${text}; it is left to the next start of an agent`)
    }
  }
}

function findOwner(path: string): string {
  try {
    const { uid, mode } = statSync(path)
    return `${path} belongs to user ${uid}, with mode ${(mode & 0o7777).toString(8)}`
  } catch {
    return findOwner(dirname(path))
  }
}

/**
 * Creates a folder and its parents. Does not use `recursive`, with which `mkdirSync` never returns
 * for a path below /proc.
 */
function createFolder(folder: string): void {
  try {
    mkdirSync(folder, { mode: 0o755 })
  } catch (error) {
    const parent = dirname(folder)
    if (errnoOf(error) === 'ENOENT' && parent !== folder) {
      createFolder(parent)
      mkdirSync(folder, { mode: 0o755 })
    } else if (errnoOf(error) !== 'EEXIST' || !statSync(folder).isDirectory()) throw error
  }
}

/** The folder of a session's programs. It is temporary if the wanted folder does not exist here. */
export class SessionFolder {
  readonly #temporaryFolder: string
  readonly #node: string
  readonly #parent: WorkFolder

  constructor(parent: WorkFolder, name: string, node: string) {
    this.#parent = parent
    this.#temporaryFolder = join(parent.path, name)
    this.#node = node
  }

  /** Sets a program's folder, by default `wanted`. Returns a `problem` if none can be created. */
  toPlacedSpec(spec: TaskSpec, wanted: string): { spec: TaskSpec; problem?: BackendError } {
    if (spec.kind !== 'program') return { spec }
    const folder = spec.workDir ?? wanted
    if (existsSync(folder)) return { spec: withWorkDir(spec, folder) }
    try {
      // The folder is created for each program, because an earlier program or a user may remove it.
      mkdirSync(this.#temporaryFolder, { recursive: true, mode: 0o700 })
    } catch (cause) {
      const text = `node ${this.#node} cannot create a folder for its programs`
      return { spec, problem: new BackendError(`${text}: ${messageOf(cause)}`, { cause }) }
    }
    return { spec: withWorkDir(spec, this.#temporaryFolder) }
  }

  remove(): Promise<void> {
    return this.#parent.remove(this.#temporaryFolder)
  }
}
