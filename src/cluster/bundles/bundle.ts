/**
 * The files of a module and of its imports, as one piece of data. The folder layout is preserved,
 * so that Node resolves imports as before and every module has its own URL.
 */

import { existsSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, isAbsolute, join, normalize, sep } from 'node:path'
import { fileURLToPath } from 'node:url'
import { deserialize, serialize } from 'node:v8'
import { gunzipSync, gzipSync } from 'node:zlib'

/**
 * The files and links of a module. All paths are relative to `root`, a folder of the driver's
 * machine.
 */
export interface Bundle {
  readonly root: string
  /** The path of the driver's installation of this package, where the agent links its own. */
  readonly ownPackage: string
  readonly files: readonly BundledFile[]
  /** Symbolic links, such as package managers create in `node_modules`. */
  readonly links: readonly { readonly path: string; readonly target: string }[]
}

export interface BundledFile {
  readonly path: string
  readonly data: Uint8Array
}

/** The maximum total size of a bundle's files. */
export const maxBundleBytes = 64 * 2 ** 20

export const encodeBundle = (bundle: Bundle): Buffer => gzipSync(serialize(bundle))

export const decodeBundle = (data: Uint8Array): Bundle =>
  deserialize(gunzipSync(data, { maxOutputLength: 2 * maxBundleBytes })) as Bundle

const scheme = 'bundle:'
/** The prefix of the names of bundles in the object store. */
export const bundlePrefix = 'bundles'

/** The URL of a module inside a bundle, as agents get it. */
export const toBundleUrl = (digest: string, path: string): string => `${scheme}${digest}/${path}`

/** The inverse of `toBundleUrl`; `null` for any other URL. */
export function parseBundleUrl(
  url: string,
): { readonly digest: string; readonly path: string } | null {
  // A cheap test first: this is called for every function that arrives.
  if (!url.startsWith(scheme)) return null
  const found = /^bundle:([0-9a-f]{64})\/(.+)$/s.exec(url)
  const [, digest, path] = found ?? []
  return digest === undefined || path === undefined ? null : { digest, path }
}

/** The folder of this package's code, `src` or `dist`, and the folder of the package. */
export const ownCodeFolder = fileURLToPath(new URL('../../', import.meta.url))
export const ownPackageFolder = dirname(ownCodeFolder.slice(0, -1))

/** Writes the files of the bundle into a new folder. */
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
  // Stops Node's search for a package.json here, so that it does not find a file of this node.
  const outermost = join(folder, 'package.json')
  if (!existsSync(outermost)) writeFileSync(outermost, '{}\n')
}

/** Returns the normalized path; throws if it leaves the folder. */
function inside(path: string): string {
  const normal = normalize(path)
  if (isAbsolute(normal) || normal === '..' || normal.startsWith(`..${sep}`)) {
    throw new Error(`the bundle has a path outside of it: ${path}`)
  }
  return normal
}
