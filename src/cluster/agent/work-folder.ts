/** The folder of one start of an agent, and the folders of sessions in it. */

import { existsSync, mkdirSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, resolve } from 'node:path'
import { BackendError, errnoOf, messageOf, ValueError } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { inWorkDir, type TaskSpec } from '../../tasks/spec.ts'
import { createOwnedFolder } from '../owned-folder.ts'

/**
 * Creates the folder, returns its real path, and removes folders of dead processes. Several agents
 * may share a work folder, even from other hosts and containers. Their processes are not visible
 * here, so that their folders stay. Throws `ValueError` if the work folder cannot be used.
 */
export function openWorkFolder(workDir: string | undefined, log: Log): string {
  const parent = resolve(workDir ?? tmpdir())
  try {
    createFolder(parent)
    // All users share the folder for temporary files, so the kind names this package there.
    const kind = workDir === undefined ? 'tutti-agent' : 'agent'
    return createOwnedFolder(parent, kind, (left, error) => {
      log.warn('WorkFolderNotRemoved', `${left}: ${messageOf(error)}`)
    })
  } catch (cause) {
    const text = `workDir: ${parent} cannot be used: ${messageOf(cause)} (${ownerOf(parent)})`
    throw new ValueError(text, {
      field: 'workDir',
      expected: 'a folder that this user can write to',
      got: parent,
      hint: 'Name another one: --work-dir of tutti agent and tutti launch.',
      cause,
    })
  }
}

/** The owner of a path that may not exist: that of the nearest folder above it. */
function ownerOf(path: string): string {
  try {
    const { uid, mode } = statSync(path)
    return `${path} belongs to user ${uid}, with mode ${(mode & 0o7777).toString(8)}`
  } catch {
    return ownerOf(dirname(path))
  }
}

/** Creates parents one by one: Node's `recursive` never returns below folders such as /proc. */
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

interface PlacedSpec {
  readonly spec: TaskSpec
  readonly problem?: BackendError
}

/** Where programs of a session run: its folder if this node has it, else a temporary one. */
export class SessionFolder {
  readonly #substitute: string
  readonly #node: string
  #isCreated = false

  constructor(substitute: string, node: string) {
    this.#substitute = substitute
    this.#node = node
  }

  /**
   * Returns the spec with a folder of this node; `wanted` is used if the spec names none. `problem`
   * says why no folder could be created, such as a full disk.
   */
  place(spec: TaskSpec, wanted: string): PlacedSpec {
    if (spec.kind !== 'program') return { spec }
    const folder = spec.workDir ?? wanted
    if (existsSync(folder)) return { spec: inWorkDir(spec, folder) }
    try {
      if (!this.#isCreated) mkdirSync(this.#substitute, { recursive: true })
    } catch (cause) {
      const text = `node ${this.#node} cannot create a folder for its programs`
      return { spec, problem: new BackendError(`${text}: ${messageOf(cause)}`, { cause }) }
    }
    this.#isCreated = true
    return { spec: inWorkDir(spec, this.#substitute) }
  }

  remove(): void {
    if (this.#isCreated) rmSync(this.#substitute, { recursive: true, force: true })
  }
}
