/** Finds the files that a module loads, and those that Node reads to resolve imports. */

import { lstatSync, readFileSync, realpathSync, statSync } from 'node:fs'
import { basename, dirname, isAbsolute, join, relative, resolve, sep } from 'node:path'
import { fileURLToPath } from 'node:url'
import { isRegularFile } from '../../foundation/regular-file.ts'
import { type Bundle, maxBundleBytes, codeFolder, packageFolder } from './bundle.ts'

/** An import: the specifier, the importing module (`parent`), and the URL that Node resolved. */
export interface Import {
  readonly specifier: string
  readonly parent: string
  readonly url: string
}

/** Thrown if a module cannot be sent to other machines. */
export class UnbundleableError extends Error {
  override readonly name = 'UnbundleableError'
  readonly hint: string

  constructor(message: string, hint: string) {
    super(message)
    this.hint = hint
  }
}

/** Returns the module's file and all files that it imports, without the code of this package. */
export function reachableFiles(module: string, imports: readonly Import[]): ReadonlySet<string> {
  const byParent = Map.groupBy(imports, ({ parent }) => removeQuery(parent))
  const files = new Set<string>()
  const waiting = [removeQuery(module)]
  for (let url = waiting.pop(); url !== undefined; url = waiting.pop()) {
    if (!url.startsWith('file:')) continue
    const file = fileURLToPath(url)
    if (files.has(file) || file.startsWith(codeFolder)) continue
    files.add(file)
    for (const one of byParent.get(url) ?? []) waiting.push(removeQuery(one.url))
  }
  return files
}

const removeQuery = (url: string): string => url.replace(/[?#].*$/s, '')

/** Reads the files. Throws `UnbundleableError` for native add-ons and beyond `maxBundleBytes`. */
export function createBundle(files: ReadonlySet<string>, imports: readonly Import[]): Bundle {
  const addOn = [...files].find((file) => file.endsWith('.node'))
  if (addOn !== undefined) {
    throw new UnbundleableError(
      `it loads the native add-on ${addOn}`,
      'Native add-ons fit one kind of machine: install the module on all nodes, at the same ' +
        "path, and use `modules: 'shared'`.",
    )
  }
  const all = new Set(files)
  for (const file of files) for (const one of findPackageFiles(file)) all.add(one)
  const links = findLinks(files, imports)
  const root = commonFolder([...all, ...links.values(), ...links.keys(), packageFolder])
  const toRelative = (path: string): string => relative(root, path)
  expectBundleSize(all)
  return {
    root,
    ownPackage: toRelative(packageFolder),
    files: [...all]
      .toSorted()
      .map((file) => ({ path: toRelative(file), data: readFileSync(file) })),
    links: [...links.keys()].toSorted().map((path) => ({
      path: toRelative(path),
      target: toRelative(links.get(path) ?? ''),
    })),
  }
}

function expectBundleSize(files: ReadonlySet<string>): void {
  const sizes = Array.from(files, (file) => ({ file, bytes: statSync(file).size }))
  const bytes = sizes.reduce((sum, one) => sum + one.bytes, 0)
  if (bytes <= maxBundleBytes) return
  const largest = sizes.toSorted((a, b) => b.bytes - a.bytes)[0]
  const max = maxBundleBytes / 2 ** 20
  throw new UnbundleableError(
    `it and its imports have ${Math.ceil(bytes / 2 ** 20)} MiB, at most ${max} can be sent ` +
      `(the largest file is ${largest?.file})`,
    "Import less, or install it on all nodes and use `modules: 'shared'`.",
  )
}

/** Finds each `package.json` that determines how a file is loaded and how its package is found. */
function findPackageFiles(file: string): string[] {
  const found: string[] = []
  for (let folder = dirname(file); ; folder = dirname(folder)) {
    const candidate = join(folder, 'package.json')
    if (isRegularFile(candidate)) {
      found.push(candidate)
      if (!folder.includes(`${sep}${modulesFolder}${sep}`)) return found
    }
    const parent = dirname(folder)
    const isPackage =
      basename(parent) === modulesFolder || basename(dirname(parent)) === modulesFolder
    if (parent === folder || (isPackage && found.length > 0)) return found
  }
}

const modulesFolder = 'node_modules'

function findLinks(files: ReadonlySet<string>, imports: readonly Import[]): Map<string, string> {
  const links = new Map<string, string>()
  const seen = new Set<string>()
  for (const { specifier, parent } of imports) {
    if (!parent.startsWith('file:')) continue
    const from = fileURLToPath(removeQuery(parent))
    const path = files.has(from) ? findImportPath(specifier, from) : null
    if (path !== null) addLinks(path, links, seen)
  }
  return links
}

/** The path that Node tries first: a file, or a folder in the nearest `node_modules`. */
function findImportPath(specifier: string, from: string): string | null {
  if (/^\.{0,2}\//.test(specifier)) return resolve(dirname(from), specifier)
  const name = /^(?:@[^/]+\/)?[^/:#]+/.exec(specifier)?.[0]
  if (name === undefined || specifier.includes(':')) return null
  for (let folder = dirname(from); ; folder = dirname(folder)) {
    const candidate = join(folder, modulesFolder, name)
    if (lstatSync(candidate, { throwIfNoEntry: false }) !== undefined) return candidate
    if (dirname(folder) === folder) return null
  }
}

function addLinks(path: string, links: Map<string, string>, seen: Set<string>): void {
  if (!isAbsolute(path)) return
  let current: string = sep
  for (const [at, part] of path.split(sep).filter(Boolean).entries()) {
    const next = join(current, part)
    if (seen.has(next)) {
      current = links.get(next) ?? next
      continue
    }
    const stat = lstatSync(next, { throwIfNoEntry: false })
    if (stat === undefined) return
    seen.add(next)
    if (stat.isSymbolicLink()) {
      const target = realpathSync(next)
      // A top-level link of the machine, such as /tmp, is not part of the bundle.
      if (at > 0) links.set(next, target)
      current = target
    } else current = next
  }
}

function commonFolder(paths: readonly string[]): string {
  const folders = paths.map((path) => dirname(path).split(sep))
  const [first = []] = folders
  let length = first.length
  for (const segments of folders) {
    let commonLength = 0
    while (commonLength < length && segments[commonLength] === first[commonLength]) commonLength++
    length = commonLength
  }
  const folder = first.slice(0, length).join(sep)
  return folder === '' ? sep : folder
}
