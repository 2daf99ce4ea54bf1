/** Bundles of modules on this node: each is unpacked once, for all sessions that use it. */

import { existsSync, rmSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { pathToFileURL } from 'node:url'
import { decodeBundle, parseBundleUrl, unpackBundle } from './bundle.ts'
import type { TaskDefinition } from '../../tasks/define-task.ts'

interface Unpacked {
  /** Sessions that use it. */
  readonly users: Set<string>
  /** `false` when it could not be loaded. */
  readonly ready: Promise<boolean>
  /** Its folder on the driver's machine. */
  root: string | null
}

export class UnpackedBundles {
  /** Under its real path: workers import by it. Created with the first bundle. */
  readonly #folder: string
  readonly #bundles = new Map<string, Unpacked>()

  constructor(folder: string) {
    this.#folder = folder
  }

  /** The bundle that a module of a message is in; `null` for one that this node has itself. */
  digestOf({ module }: TaskDefinition): string | null {
    return parseBundleUrl(module)?.digest ?? null
  }

  /** The definition as workers of this node import it. */
  toLocal(definition: TaskDefinition): TaskDefinition {
    const found = parseBundleUrl(definition.module)
    if (found === null) return definition
    const module = pathToFileURL(join(this.#pathOf(found.digest), found.path)).href
    return { module, name: definition.name }
  }

  /**
   * Loads and unpacks a bundle, unless it is there; resolves with `false` when `load` does not
   * have it. Rejects with what `load` or the disk said.
   */
  use(digest: string, sessionId: string, load: () => Promise<Uint8Array | null>): Promise<boolean> {
    const known = this.#bundles.get(digest)
    if (known !== undefined) {
      known.users.add(sessionId)
      return known.ready
    }
    const ready = this.#load(digest, load)
    this.#bundles.set(digest, { users: new Set([sessionId]), ready, root: null })
    // It is tried again for the next job.
    const forget = (): void => void this.#bundles.delete(digest)
    ready.then((isThere) => (isThere ? null : forget()), forget)
    return ready
  }

  /** The path of a module in its project, which begins at the nearest `package.json`. */
  projectPath(file: string): string | null {
    if (!file.startsWith(`${this.#folder}/`)) return null
    let folder = dirname(file)
    while (!existsSync(join(folder, 'package.json'))) folder = dirname(folder)
    return relative(folder, file)
  }

  /** The text with paths of the driver's machine instead of those of this node. */
  restorePaths(text: string): string {
    if (!text.includes(this.#folder)) return text
    let restored = text
    for (const [digest, { root }] of this.#bundles) {
      if (root === null) continue
      restored = restored.replaceAll(`${this.#pathOf(digest)}/`, root === '/' ? '/' : `${root}/`)
    }
    return restored
  }

  /** Removes what no other session uses. */
  leave(sessionId: string): void {
    for (const [digest, { users }] of this.#bundles) {
      if (!users.delete(sessionId) || users.size > 0) continue
      this.#bundles.delete(digest)
      rmSync(this.#pathOf(digest), { recursive: true, force: true })
    }
  }

  close(): void {
    rmSync(this.#folder, { recursive: true, force: true })
    this.#bundles.clear()
  }

  async #load(digest: string, load: () => Promise<Uint8Array | null>): Promise<boolean> {
    const data = await load()
    const unpacked = this.#bundles.get(digest)
    if (data === null || unpacked === undefined) return false
    const bundle = decodeBundle(data)
    unpackBundle(bundle, this.#pathOf(digest))
    unpacked.root = bundle.root
    return true
  }

  #pathOf(digest: string): string {
    return join(this.#folder, digest)
  }
}
