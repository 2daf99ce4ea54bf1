import { execFile } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, rmSync, truncateSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { describe, expect, it, onTestFinished } from 'vitest'
import { MemoStore } from '../../src/workflow/memo-store.ts'

function createFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-store-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

const program = fileURLToPath(new URL('fixtures/fill-memo.ts', import.meta.url))

describe('a store of results', () => {
  it('keeps and finds 1,000 at once in a process that may open 100 files', async () => {
    const script = 'ulimit -n 100 && exec "$@"'
    const args = ['-c', script, 'sh', process.execPath, program, createFolder()]
    const { stdout } = await promisify(execFile)('sh', args)
    expect(stdout).toBe('1000')
  })

  it('takes what is missing or damaged for nothing, and says what cannot be read', async () => {
    const folder = createFolder()
    const store = new MemoStore(folder)
    expect(await store.read('none')).toBe(null)
    await store.write('torn', { long: 'x'.repeat(100) })
    truncateSync(join(folder, 'torn.result'), 50)
    expect(await store.read('torn')).toBe(null)
    mkdirSync(join(folder, 'folder.result'))
    await expect(store.read('folder')).rejects.toMatchObject({ code: 'EISDIR' })
  })

  it('makes the folders that are missing', async () => {
    const store = new MemoStore(join(createFolder(), 'a', 'b'))
    await store.write('key', 1)
    expect(await store.read('key')).toEqual({ value: 1 })
  })

  it.runIf(existsSync('/proc/self'))('says when its folder cannot be made', async () => {
    // In a process of its own: Node's way of making folders would never end there.
    const deadline = { timeout: 20_000, killSignal: 'SIGKILL' } as const
    const filled = promisify(execFile)(process.execPath, [program, '/proc/tutti'], deadline)
    await expect(filled).rejects.toMatchObject({ stderr: expect.stringContaining('ENOENT') })
  })
})
