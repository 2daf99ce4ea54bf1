/**
 * The files of a module and of its imports, as one piece of data. The folder layout is preserved,
 * so that Node resolves imports as before.
 */

import { existsSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, isAbsolute, join, normalize, sep } from 'node:path'
import { fileURLToPath } from 'node:url'
import { deserialize, serialize } from 'node:v8'
import { gunzipSync, gzipSync } from 'node:zlib'

/** Paths are relative to `root`, a folder on the driver's machine. */
export interface Bundle {
  readonly root: string
  /** The path at which the driver has this package. The agent links its own copy there. */
  readonly ownPackage: string
  readonly files: readonly BundledFile[]
  readonly links: readonly { readonly path: string; readonly target: string }[]
}

export interface BundledFile {
  readonly path: string
  readonly data: Uint8Array
}

export const maxBundleBytes = 64 * 2 ** 20

export const encodeBundle = (bundle: Bundle): Buffer => gzipSync(serialize(bundle))

export const decodeBundle = (data: Uint8Array): Bundle =>
  deserialize(gunzipSync(data, { maxOutputLength: 2 * maxBundleBytes })) as Bundle

const bundleScheme = 'bundle:'
/** The prefix of the names of bundles in the object store. */
export const bundlePrefix = 'bundles'

/** Returns the URL of a module in a bundle. Drivers send it to agents. */
export const toBundleUrl = (digest: string, path: string): string =>
  `${bundleScheme}${digest}/${path}`

/** Returns the digest and the path in a URL of `toBundleUrl`, or `null` for any other URL. */
export function parseBundleUrl(
  url: string,
): { readonly digest: string; readonly path: string } | null {
  // The cheap test of the prefix comes first, because every arriving function is tested.
  if (!url.startsWith(bundleScheme)) return null
  const found = /^bundle:([0-9a-f]{64})\/(.+)$/s.exec(url)
  const [, digest, path] = found ?? []
  return digest === undefined || path === undefined ? null : { digest, path }
}

/** The folder of this package's code, which is `src` or `dist`. `packageFolder` is its parent. */
export const codeFolder = fileURLToPath(new URL('../../', import.meta.url))
export const packageFolder = dirname(codeFolder.slice(0, -1))

export function unpackBundle({ ownPackage, files, links }: Bundle, folder: string): void {
  const createParent = (path: string): string => {
    const target = join(folder, normalizeInside(path))
    mkdirSync(dirname(target), { recursive: true })
    return target
  }
  for (const { path, data } of files) writeFileSync(createParent(path), data)
  for (const { path, target } of links)
    symlinkSync(join(folder, normalizeInside(target)), createParent(path))
  for (const name of ['package.json', 'dist', 'src']) {
    const ownPath = join(packageFolder, name)
    const link = createParent(join(ownPackage, name))
    if (existsSync(ownPath) && !existsSync(link)) symlinkSync(ownPath, link)
  }
  // Node's search for a package.json ends here, so that it does not find one outside of the bundle.
  const outermost = join(folder, 'package.json')
  if (!existsSync(outermost)) writeFileSync(outermost, '{}\n')
}

function normalizeInside(path: string): string {
  const normalized = normalize(path)
  if (isAbsolute(normalized) || normalized === '..' || normalized.startsWith(`..${sep}`)) {
    throw new Error(`the bundle has a path outside of it: ${path}`)
  }
  return normalized
}
