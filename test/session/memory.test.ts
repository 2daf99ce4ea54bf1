import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'

it('memory: the heap does not grow with finished tasks', async () => {
  const fixture = join(import.meta.dirname, 'fixtures', 'drop-tasks.ts')
  const { stdout } = await promisify(execFile)(process.execPath, ['--expose-gc', fixture])
  const { growthMb, left } = JSON.parse(stdout) as { growthMb: number; left: number }
  expect(left).toBe(0)
  // 100,000 tasks that stayed would be more than 30 MB.
  expect(growthMb).toBeLessThan(6)
})
