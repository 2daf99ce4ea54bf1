/** The bundles on this node: each is unpacked once, for all sessions that use it. */

import { existsSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { pathToFileURL } from 'node:url'
import { decodeBundle, parseBundleUrl, unpackBundle } from './bundle.ts'
import type { TaskDefinition } from '../../tasks/define-task.ts'

interface Unpacked {
  readonly users: Set<string>
  /** Resolves with `false` if the bundle could not be loaded. */
  readonly ready: Promise<boolean>
  /** The bundle's root folder on the driver's machine. */
  root: string | null
}

export class UnpackedBundles {
  /** The real path, by which workers import. Created with the first bundle. */
  readonly #folder: string
  readonly #bundles = new Map<string, Unpacked>()
  readonly #remove: (folder: string) => Promise<void>

  /** `remove` removes the folder of a bundle. It never rejects. */
  constructor(folder: string, remove: (folder: string) => Promise<void>) {
    this.#folder = folder
    this.#remove = remove
  }

  /** The digest of a module's bundle; `null` for a module that is a file of this node. */
  digestOf({ module }: TaskDefinition): string | null {
    return parseBundleUrl(module)?.digest ?? null
  }

  /** Converts a definition to the one that workers of this node import. */
  toLocal(definition: TaskDefinition): TaskDefinition {
    const found = parseBundleUrl(definition.module)
    if (found === null) return definition
    const module = pathToFileURL(join(this.#pathOf(found.digest), found.path)).href
    return { module, name: definition.name }
  }

  /**
   * Loads and unpacks a bundle, unless it is present. Resolves with `false` if `load` returns
   * `null`. Rejects with the error of `load` or of the disk.
   */
  use(digest: string, sessionId: string, load: () => Promise<Uint8Array | null>): Promise<boolean> {
    const known = this.#bundles.get(digest)
    if (known !== undefined) {
      known.users.add(sessionId)
      return known.ready
    }
    const ready = this.#load(digest, load)
    this.#bundles.set(digest, { users: new Set([sessionId]), ready, root: null })
    // A failed load is retried for the next job.
    const forget = (): void => {
      this.#bundles.delete(digest)
    }
    ready.then((isThere) => (isThere ? null : forget()), forget)
    return ready
  }

  /**
   * The path of a bundled module relative to its nearest `package.json`, or to the bundle's root if
   * the bundle was removed; `null` for any other file.
   */
  projectPath(file: string): string | null {
    if (!file.startsWith(`${this.#folder}/`)) return null
    const [digest = ''] = relative(this.#folder, file).split('/')
    const root = this.#pathOf(digest)
    let folder = dirname(file)
    while (folder.length > root.length && !existsSync(join(folder, 'package.json'))) {
      folder = dirname(folder)
    }
    return relative(folder, file)
  }

  /** Replaces paths of this node in a text by those of the driver's machine. */
  restorePaths(text: string): string {
    if (!text.includes(this.#folder)) return text
    let restored = text
    for (const [digest, { root }] of this.#bundles) {
      if (root === null) continue
      restored = restored.replaceAll(`${this.#pathOf(digest)}/`, root === '/' ? '/' : `${root}/`)
    }
    return restored
  }

  /** Removes bundles that no other session uses. */
  async leave(sessionId: string): Promise<void> {
    const removals: Promise<void>[] = []
    for (const [digest, { users }] of this.#bundles) {
      if (!users.delete(sessionId) || users.size > 0) continue
      this.#bundles.delete(digest)
      removals.push(this.#remove(this.#pathOf(digest)))
    }
    await Promise.all(removals)
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
