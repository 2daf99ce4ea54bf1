/**
 * The program of a child process, which imports a module, records the loaded files, and packs them.
 */

import { closeSync, readFileSync } from 'node:fs'
import { registerHooks } from 'node:module'
import { relative } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { messageOf } from '../../foundation/errors.ts'
import { openRegularFileSync } from '../../foundation/regular-file.ts'
import { connectToParent } from '../../runtime/child-program.ts'
import { sha256 } from '../broker/stored-objects.ts'
import { encodeBundle } from './bundle.ts'
import { createBundle, type Import, reachableFiles, UnbundleableError } from './module-graph.ts'

export type BundleProgramInput = { readonly kind: 'pack'; readonly module: string }

export type BundleProgramOutput =
  | {
      readonly kind: 'packed'
      readonly data: Uint8Array
      readonly digest: string
      readonly path: string
    }
  | { readonly kind: 'failed'; readonly message: string; readonly hint: string | null }

const imports: Import[] = []
/** Files that the code refers to by `new URL` but does not load. */
const namedFiles = new Set<string>()

registerHooks({
  resolve(specifier, context, nextResolve) {
    const resolved = nextResolve(specifier, context)
    const { parentURL: parent = '' } = context
    imports.push({ specifier, parent, url: resolved.url })
    return resolved
  },
})

const parent = connectToParent<BundleProgramInput, BundleProgramOutput>({
  onMessage({ module }) {
    // The failure could not be sent to the parent process, which reports the exit instead.
    packBundle(module).catch(() => process.exit(1))
  },
  onEnd: () => process.exit(0),
  runsUserCode: true,
})

async function packBundle(module: string): Promise<void> {
  try {
    await import(module)
    await importDynamicModules(module)
    const files = new Set([...reachableFiles(module, imports), ...namedFiles])
    const bundle = createBundle(files, imports)
    const data = encodeBundle(bundle)
    const path = relative(bundle.root, fileURLToPath(module))
    parent.send({ kind: 'packed', data, digest: sha256(data), path })
  } catch (error) {
    const hint = error instanceof UnbundleableError ? error.hint : null
    parent.send({ kind: 'failed', message: messageOf(error), hint })
  }
}

const dynamicImportPattern = /\b(?:import|require)\(\s*(['"])([^'"\n]+)\1\s*\)/g
const fileUrlPattern = /\bnew URL\(\s*(['"])(\.{1,2}\/[^'"\n]+)\1\s*,\s*import\.meta\.url\s*\)/g

/**
 * Imports the modules of `import('…')` and `require('…')` calls, so that the bundle contains them.
 * Only calls with a literal are found. Also adds the files of `new URL('…', import.meta.url)`.
 */
async function importDynamicModules(module: string): Promise<void> {
  const read = new Set<string>()
  for (let isNew = true; isNew;) {
    isNew = false
    for (const file of reachableFiles(module, imports)) {
      if (read.has(file) || file.includes('/node_modules/') || !/\.[cm]?[jt]s$/.test(file)) continue
      read.add(file)
      isNew = true
      const source = readFileSync(file, 'utf8')
      const base = pathToFileURL(file).href
      for (const [, , path = ''] of source.matchAll(fileUrlPattern))
        addNamedFile(new URL(path, base))
      for (const [, , specifier = ''] of source.matchAll(dynamicImportPattern)) {
        await tryImport(specifier, base)
      }
    }
  }
}

/** Ignores failures: the import would also fail on the node, or is never reached there. */
async function tryImport(specifier: string, from: string): Promise<void> {
  try {
    const url = import.meta.resolve(specifier, from)
    if (url.startsWith('node:')) return
    imports.push({ specifier, parent: from, url })
    await import(url)
  } catch {
    // The function that imports this module reports the failure when it is called.
  }
}

function addNamedFile(url: URL): void {
  try {
    const file = fileURLToPath(url)
    closeSync(openRegularFileSync(file))
    namedFiles.add(file)
  } catch {
    // The URL names a folder, or the file does not exist.
  }
}
