/** The folder of one start of an agent, and the folders of sessions in it. */

import { existsSync, mkdirSync, rmdirSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { BackendError, errnoOf, messageOf, ValueError } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { inWorkDir, type TaskSpec } from '../../tasks/spec.ts'
import { createOwnedFolder } from '../owned-folder.ts'
import { toToken } from '../wire/subjects.ts'

/**
 * Creates the folder, returns its real path, and removes folders of dead processes. Several agents
 * may share a work folder, even from other hosts and containers. Their processes are not visible
 * here, so that their folders stay. Without `workDir` the folder belongs to this user alone. Throws
 * `ValueError` if the work folder cannot be used.
 */
export function openWorkFolder(workDir: string | undefined, agent: string, log: Log): string {
  const folder = resolve(workDir ?? defaultWorkDir(agent))
  const open = (): string => {
    createFolder(folder)
    if (workDir === undefined) expectOwn(folder)
    return createOwnedFolder(folder, 'agent', (left, error) => {
      log.warn('WorkFolderNotRemoved', `${left}: ${messageOf(error)}`)
    })
  }
  try {
    try {
      return open()
    } catch (error) {
      // Another agent that ended may have removed the empty folder meanwhile.
      if (errnoOf(error) !== 'ENOENT') throw error
      return open()
    }
  } catch (cause) {
    if (cause instanceof ValueError) throw cause
    const expected = 'a folder that this user can write to'
    throw new ValueError(`workDir: ${folder} cannot be used: ${messageOf(cause)}`, {
      field: 'workDir',
      expected,
      got: folder,
      cause,
    })
  }
}

const userId = (): number => process.getuid?.() ?? 0

/** The work folder of an agent without `workDir`: the same for all starts by this user. */
export const defaultWorkDir = (agent: string): string =>
  join(tmpdir(), `tutti-agent-${userId()}-${toToken(agent)}`)

/** Removes the folder of one start, and the default work folder with its last agent. */
export function removeWorkFolder(folder: string, workDir: string | undefined): void {
  rmSync(folder, { recursive: true, force: true })
  if (workDir !== undefined) return
  try {
    rmdirSync(dirname(folder))
  } catch {
    // The folder is not empty: another agent of this name runs, or has left files.
  }
}

/** In a shared parent folder, another user may own it, and could replace modules of tasks. */
function expectOwn(folder: string): void {
  const { uid, mode } = statSync(folder)
  if (process.getuid === undefined || (uid === userId() && (mode & 0o022) === 0)) return
  throw new ValueError(`workDir: others can write to ${folder}`, {
    field: 'workDir',
    hint: 'Remove it, or name another folder.',
  })
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
