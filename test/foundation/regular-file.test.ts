import { execFileSync } from 'node:child_process'
import { closeSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import {
  openRegularFile,
  openRegularFileSync,
  readRegularFileSync,
  readTextFileSync,
} from '../../src/foundation/regular-file.ts'
import { makeSocket } from '../make-socket.ts'
import { tempFolder } from '../telemetry/open-telemetry.ts'

const openFiles = (): number => readdirSync('/proc/self/fd').length

describe('regular files', () => {
  const others: readonly [string, string, (path: string) => void][] = [
    ['a pipe', 'ENOTSUP', (path) => void execFileSync('mkfifo', [path])],
    ['a device', 'ENOTSUP', (path) => symlinkSync('/dev/zero', path)],
    ['a socket', 'ENOTSUP', makeSocket],
    ['a folder', 'EISDIR', (path) => mkdirSync(path)],
  ]
  it.each(others)('row 121: %s is refused at once, and closed', async (got, code, create) => {
    const path = join(tempFolder(), 'other')
    create(path)
    const before = openFiles()
    const error = { code, message: `${code}: expected a regular file, got ${got}` }
    await expect(openRegularFile(path)).rejects.toMatchObject(error)
    for (const read of [openRegularFileSync, readRegularFileSync, readTextFileSync]) {
      expect(() => read(path)).toThrow(expect.objectContaining(error))
    }
    expect(openFiles()).toBe(before)
  })

  it('a regular file is opened, also through a link, and read up to the limit', async () => {
    const folder = tempFolder()
    const path = join(folder, 'link')
    writeFileSync(join(folder, 'file'), 'four', { mode: 0o640 })
    symlinkSync('file', path)
    await using file = await openRegularFile(path)
    expect(await file.readFile('utf8')).toBe('four')
    closeSync(openRegularFileSync(path))
    expect(readTextFileSync(path)).toBe('four')
    const { bytes, mode } = readRegularFileSync(path, 4)
    expect([bytes.toString(), mode & 0o777]).toEqual(['four', 0o640])
    expect(() => readRegularFileSync(path, 3)).toThrow('EFBIG: expected at most 3 bytes, got 4')
    expect(() => readTextFileSync(join(folder, 'none'))).toThrow('ENOENT')
  })
})
