/** The bundles on this node: each is unpacked once, for all sessions that use it. */

import { existsSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { pathToFileURL } from 'node:url'
import { decodeBundle, parseBundleUrl, unpackBundle } from './bundle.ts'
import type { TaskDefinition } from '../../tasks/define-task.ts'

interface UnpackedBundle {
  readonly users: Set<string>
  /** Resolves with `false` if the bundle could not be loaded. */
  readonly ready: Promise<boolean>
  /** The bundle's root folder on the driver's machine; `null` until the bundle is unpacked. */
  root: string | null
}

export class UnpackedBundles {
  /** The folder of all bundles, with symbolic links resolved. Created with the first bundle. */
  readonly #folder: string
  readonly #bundles = new Map<string, UnpackedBundle>()
  readonly #remove: (folder: string) => Promise<void>

  /** `remove` removes the folder of a bundle. It never rejects. */
  constructor(folder: string, remove: (folder: string) => Promise<void>) {
    this.#folder = folder
    this.#remove = remove
  }

  /** Returns the digest of the module's bundle, or `null` if the module is a file of this node. */
  findDigest({ module }: TaskDefinition): string | null {
    return parseBundleUrl(module)?.digest ?? null
  }

  toLocal(definition: TaskDefinition): TaskDefinition {
    const found = parseBundleUrl(definition.module)
    if (found === null) return definition
    const module = pathToFileURL(join(this.#toPath(found.digest), found.path)).href
    return { module, name: definition.name }
  }

  /**
   * Unpacks a bundle once. Resolves with `false` if `load` returns `null`. Rejects if `load` or the
   * disk fails.
   */
  acquire(
    digest: string,
    sessionId: string,
    load: () => Promise<Uint8Array | null>,
  ): Promise<boolean> {
    const known = this.#bundles.get(digest)
    if (known !== undefined) {
      known.users.add(sessionId)
      return known.ready
    }
    const ready = this.#load(digest, load)
    this.#bundles.set(digest, { users: new Set([sessionId]), ready, root: null })
    // If loading fails, the next job tries again.
    const forget = (): void => {
      this.#bundles.delete(digest)
    }
    ready.then((isThere) => (isThere ? null : forget()), forget)
    return ready
  }

  /**
   * Returns the path of a bundle's file, relative to the nearest folder with a `package.json` or
   * else to the bundle's root; `null` if the file belongs to no bundle.
   */
  projectPath(file: string): string | null {
    if (!file.startsWith(`${this.#folder}/`)) return null
    const [digest = ''] = relative(this.#folder, file).split('/')
    const root = this.#toPath(digest)
    let folder = dirname(file)
    while (folder.length > root.length && !existsSync(join(folder, 'package.json'))) {
      folder = dirname(folder)
    }
    return relative(folder, file)
  }

  /** Replaces the paths of unpacked bundles in a text by the paths on the driver's machine. */
  restorePaths(text: string): string {
    if (!text.includes(this.#folder)) return text
    let restored = text
    for (const [digest, { root }] of this.#bundles) {
      if (root === null) continue
      restored = restored.replaceAll(`${this.#toPath(digest)}/`, root === '/' ? '/' : `${root}/`)
    }
    return restored
  }

  async release(sessionId: string): Promise<void> {
    const removals: Promise<void>[] = []
    for (const [digest, { users }] of this.#bundles) {
      if (!users.delete(sessionId) || users.size > 0) continue
      this.#bundles.delete(digest)
      removals.push(this.#remove(this.#toPath(digest)))
    }
    await Promise.all(removals)
  }

  async #load(digest: string, load: () => Promise<Uint8Array | null>): Promise<boolean> {
    const data = await load()
    const unpacked = this.#bundles.get(digest)
    if (data === null || unpacked === undefined) return false
    const bundle = decodeBundle(data)
    unpackBundle(bundle, this.#toPath(digest))
    unpacked.root = bundle.root
    return true
  }

  #toPath(digest: string): string {
    return join(this.#folder, digest)
  }
}
