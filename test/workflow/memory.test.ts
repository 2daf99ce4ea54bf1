import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'

it('memory: ended handles that nobody references are collected', async () => {
  const fixture = join(import.meta.dirname, 'fixtures', 'drop-handles.ts')
  const { stdout } = await promisify(execFile)(process.execPath, ['--expose-gc', fixture])
  expect(JSON.parse(stdout)).toEqual({ left: 0, ancestors: 0 })
})
