import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'

it('handles that nobody keeps are let go when they end', async () => {
  const fixture = join(import.meta.dirname, 'fixtures', 'drop-handles.ts')
  const { stdout } = await promisify(execFile)(process.execPath, ['--expose-gc', fixture])
  expect(JSON.parse(stdout)).toEqual({ left: 0, ancestors: 0 })
})
