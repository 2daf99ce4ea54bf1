/**
 * A child process of the driver that imports one module, records which files were loaded for it,
 * and packs these files. The module's code runs here as it would in a worker.
 */

import { closeSync, readFileSync } from 'node:fs'
import { registerHooks } from 'node:module'
import { relative } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { messageOf } from '../../foundation/errors.ts'
import { openRegularFileSync } from '../../foundation/regular-file.ts'
import { connectToParent } from '../../runtime/child-program.ts'
import { digestOf } from '../broker/stored-objects.ts'
import { encodeBundle } from './bundle.ts'
import { createBundle, type Import, reachableFiles, UnbundleableError } from './module-graph.ts'

export type ToBundleProgram = { readonly kind: 'pack'; readonly module: string }

export type FromBundleProgram =
  | {
      readonly kind: 'packed'
      readonly data: Uint8Array
      readonly digest: string
      readonly path: string
    }
  | { readonly kind: 'failed'; readonly message: string; readonly hint: string | null }

const imports: Import[] = []
/** Files that code refers to by `new URL`, without loading them. */
const named = new Set<string>()

registerHooks({
  resolve(specifier, context, nextResolve) {
    const resolved = nextResolve(specifier, context)
    const { parentURL: parent = '' } = context
    imports.push({ specifier, parent, url: resolved.url })
    return resolved
  },
})

const parent = connectToParent<ToBundleProgram, FromBundleProgram>({
  onMessage({ module }) {
    // Sending the failure failed as well. The driver reports the exit.
    pack(module).catch(() => process.exit(1))
  },
  onEnd: () => process.exit(0),
  runsForeignCode: true,
})

async function pack(module: string): Promise<void> {
  try {
    await import(module)
    await importLater(module)
    const files = new Set([...reachableFiles(module, imports), ...named])
    const bundle = createBundle(files, imports)
    const data = encodeBundle(bundle)
    const path = relative(bundle.root, fileURLToPath(module))
    parent.send({ kind: 'packed', data, digest: digestOf(data), path })
  } catch (error) {
    const hint = error instanceof UnbundleableError ? error.hint : null
    parent.send({ kind: 'failed', message: messageOf(error), hint })
  }
}

const dynamicImport = /\b(?:import|require)\(\s*(['"])([^'"\n]+)\1\s*\)/g
const namedFile = /\bnew URL\(\s*(['"])(\.{1,2}\/[^'"\n]+)\1\s*,\s*import\.meta\.url\s*\)/g

/**
 * Imports modules that functions would import only when called, if the specifier is a literal in
 * their source. Also records files that they name relative to `import.meta.url`. Skips code of
 * packages.
 */
async function importLater(module: string): Promise<void> {
  const read = new Set<string>()
  for (let isNew = true; isNew;) {
    isNew = false
    for (const file of reachableFiles(module, imports)) {
      if (read.has(file) || file.includes('/node_modules/') || !/\.[cm]?[jt]s$/.test(file)) continue
      read.add(file)
      isNew = true
      const source = readFileSync(file, 'utf8')
      const base = pathToFileURL(file).href
      for (const [, , path = ''] of source.matchAll(namedFile)) noteFile(new URL(path, base))
      for (const [, , specifier = ''] of source.matchAll(dynamicImport)) {
        await importFrom(specifier, base)
      }
    }
  }
}

/** Ignores failures: such an import would also fail on the node, or is not reached there. */
async function importFrom(specifier: string, from: string): Promise<void> {
  try {
    const url = import.meta.resolve(specifier, from)
    if (url.startsWith('node:')) return
    imports.push({ specifier, parent: from, url })
    await import(url)
  } catch {
    // The function that needs this module will report the failure.
  }
}

function noteFile(url: URL): void {
  try {
    const file = fileURLToPath(url)
    closeSync(openRegularFileSync(file))
    named.add(file)
  } catch {
    // The URL is a folder, or the file does not exist.
  }
}
