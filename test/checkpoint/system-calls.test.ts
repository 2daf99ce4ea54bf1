import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { describe, expect } from 'vitest'
import { needs, requireCommand } from '../require.ts'

const run = promisify(execFile)
const program = fileURLToPath(new URL('fixtures/flush-repeatedly.ts', import.meta.url))
const flushes = 10

async function countSyncs(durability: 'os' | 'fsync'): Promise<number> {
  const folder = await mkdtemp(join(tmpdir(), 'tutti-strace-'))
  const trace = join(folder, 'trace')
  const traced = [process.execPath, program, folder, durability, String(flushes)]
  await run('strace', ['-f', '-qq', '-e', 'trace=fdatasync', '-o', trace, ...traced])
  const calls = (await readFile(trace, 'utf8')).match(/fdatasync\(\d+/g) ?? []
  await rm(folder, { recursive: true })
  return calls.length
}

describe('system calls of a writer', () => {
  needs(requireCommand('strace'))(
    'row 54: durability `fsync` syncs every flush, and its lines share one sync',
    async () => {
      const syncs = await countSyncs('fsync')
      expect(syncs).toBeGreaterThanOrEqual(flushes)
      expect(syncs).toBeLessThan(flushes * 5)
    },
  )

  needs(requireCommand('strace'))(
    'row 54: a writer without durability `fsync` syncs nothing',
    async () => {
      expect(await countSyncs('os')).toBe(0)
    },
  )
})
