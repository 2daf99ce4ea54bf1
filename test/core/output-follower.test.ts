import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { captureBytes } from '../../src/backends/captured-text.ts'
import { OutputCapture } from '../../src/backends/local/programs/output-capture.ts'
import type { Entry } from '../../src/core/entry.ts'
import { FollowedProgram } from '../../src/core/output-follower.ts'
import { workFolder } from '../cli/run/work-folder.ts'

it('followed program: beyond 16 MB, its file begins again and says so', async () => {
  const capture = new OutputCapture({ headBytes: captureBytes, tailBytes: captureBytes })
  const entry = {
    record: { hasEnded: false },
    job: { spec: { kind: 'program' } },
    connection: {
      output: async () => ({
        stdout: capture.text(),
        ...(capture.isTruncated ? { stdoutTruncated: true } : {}),
      }),
    },
    addEndListener() {},
  } as unknown as Entry
  const folder = workFolder()
  const program = new FollowedProgram(folder, 'a', () => entry)
  const line = `${'x'.repeat(63)}\n`
  const steps = 300
  for (let step = 0; step < steps; step++) {
    capture.push(Buffer.from(line.repeat(captureBytes / line.length)))
    await program.update()
  }
  const text = readFileSync(join(folder, 'a.stdout'), 'utf8')
  const beginning = '[... the beginning was left out ...]\n'
  expect(text.slice(0, beginning.length)).toBe(beginning)
  const max = 16 * 1024 * 1024
  expect(text.length - beginning.length).toBe(steps * captureBytes - max)
  expect(readFileSync(join(folder, 'a.stderr'), 'utf8')).toBe('')
})
