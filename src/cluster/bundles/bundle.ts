/**
 * The files of a module and of what it imports, as one piece of data. Their layout is kept, so that
 * Node resolves them as before and every module has a URL of its own.
 */

import { existsSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, isAbsolute, join, normalize, sep } from 'node:path'
import { fileURLToPath } from 'node:url'
import { deserialize, serialize } from 'node:v8'
import { gunzipSync, gzipSync } from 'node:zlib'

/** All paths are relative to `root`, which is a folder of the driver's machine. */
export interface Bundle {
  readonly root: string
  /** Where the driver's installation of this package is; the agent puts its own there. */
  readonly ownPackage: string
  readonly files: readonly BundledFile[]
  /** As package managers create them in `node_modules`. */
  readonly links: readonly { readonly path: string; readonly target: string }[]
}

export interface BundledFile {
  readonly path: string
  readonly data: Uint8Array
}

/** Of all files together. */
export const largestBundleBytes = 64 * 2 ** 20

export const encodeBundle = (bundle: Bundle): Buffer => gzipSync(serialize(bundle))

export const decodeBundle = (data: Uint8Array): Bundle =>
  deserialize(gunzipSync(data, { maxOutputLength: 2 * largestBundleBytes })) as Bundle

const scheme = 'bundle:'
/** Of the names of bundles in the object store. */
export const bundlePrefix = 'bundles'

/** The URL of a module inside a bundle, as agents get it. */
export const toBundleUrl = (digest: string, path: string): string => `${scheme}${digest}/${path}`

/** The inverse; `null` for any other URL. */
export function parseBundleUrl(
  url: string,
): { readonly digest: string; readonly path: string } | null {
  // A look at the first letters: it is asked of every function that comes.
  if (!url.startsWith(scheme)) return null
  const found = /^bundle:([0-9a-f]{64})\/(.+)$/s.exec(url)
  const [, digest, path] = found ?? []
  return digest === undefined || path === undefined ? null : { digest, path }
}

/** The folder of this package's code, `src` or `dist`, and that of the package. */
export const ownCodeFolder = fileURLToPath(new URL('../../', import.meta.url))
export const ownPackageFolder = dirname(ownCodeFolder.slice(0, -1))

/** Creates the files below a new folder. */
export function unpackBundle({ ownPackage, files, links }: Bundle, folder: string): void {
  const place = (path: string): string => {
    const target = join(folder, inside(path))
    mkdirSync(dirname(target), { recursive: true })
    return target
  }
  for (const { path, data } of files) writeFileSync(place(path), data)
  for (const { path, target } of links) symlinkSync(join(folder, inside(target)), place(path))
  for (const name of ['package.json', 'dist', 'src']) {
    const own = join(ownPackageFolder, name)
    const link = place(join(ownPackage, name))
    if (existsSync(own) && !existsSync(link)) symlinkSync(own, link)
  }
  // The search for a package ends here, and not at a file of this node.
  const outermost = join(folder, 'package.json')
  if (!existsSync(outermost)) writeFileSync(outermost, '{}\n')
}

/** A path that stays below its folder. */
function inside(path: string): string {
  const normal = normalize(path)
  if (isAbsolute(normal) || normal === '..' || normal.startsWith(`..${sep}`)) {
    throw new Error(`the bundle has a path outside of it: ${path}`)
  }
  return normal
}
