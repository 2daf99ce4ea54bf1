import { execFile } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, rmSync, truncateSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { describe, expect, it, onTestFinished } from 'vitest'
import { MemoStore } from '../../../src/workflow/memo/memo.ts'
import { hangMs } from '../../long-run.ts'

function createFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-store-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

const program = fileURLToPath(new URL('../fixtures/fill-memo.ts', import.meta.url))

describe('memo store', () => {
  it('memo store: 1,000 writes and reads at once need fewer than 100 open files', async () => {
    const script = 'ulimit -n 100 && exec "$@"'
    const args = ['-c', script, 'sh', process.execPath, program, createFolder()]
    const { stdout } = await promisify(execFile)('sh', args)
    expect(stdout).toBe('1000')
  })

  it('memo store: missing and damaged files are no result, unreadable ones reject', async () => {
    const folder = createFolder()
    const store = new MemoStore(folder)
    expect(await store.read('none')).toBe(null)
    await store.write('torn', { long: 'x'.repeat(100) })
    truncateSync(join(folder, 'torn.result'), 50)
    expect(await store.read('torn')).toBe(null)
    mkdirSync(join(folder, 'folder.result'))
    await expect(store.read('folder')).rejects.toMatchObject({ code: 'EISDIR' })
  })

  it('memo store: missing folders are created', async () => {
    const store = new MemoStore(join(createFolder(), 'a', 'b'))
    await store.write('key', 1)
    expect(await store.read('key')).toEqual({ value: 1 })
  })

  it.runIf(existsSync('/proc/self'))(
    'memo store: a folder that cannot be created rejects',
    async () => {
      // In a process of its own: Node's recursive mkdir would never return there.
      const deadline = { timeout: hangMs / 2, killSignal: 'SIGKILL' } as const
      const filled = promisify(execFile)(process.execPath, [program, '/proc/tutti'], deadline)
      await expect(filled).rejects.toMatchObject({ stderr: expect.stringContaining('ENOENT') })
    },
  )
})
