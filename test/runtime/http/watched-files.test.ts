import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { WatchedFiles } from '../../../src/runtime/http/watched-files.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { eventually } from '../../eventually.ts'

it('row 129: a file that is being written is read when it no longer changes', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-watched-'))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  const file = join(folder, 'keys')
  writeFileSync(file, 'old')
  const clock = new ManualClock()
  const read: string[] = []
  const watched = await WatchedFiles.open({
    files: [file],
    parse: ([bytes]) => String(bytes),
    onChange: (text) => read.push(text),
    onError: (error) => {
      throw error
    },
    clock,
  })
  onTestFinished(() => watched.close())
  const check = async (): Promise<void> => {
    await clock.advance(1000)
    await eventually(() => expect(clock.pendingTimers).toBe(1))
  }
  writeFileSync(file, 'half')
  await check()
  writeFileSync(file, 'half and the rest')
  await check()
  expect([watched.value, read]).toEqual(['old', []])
  await check()
  await check()
  expect([watched.value, read]).toEqual(['half and the rest', ['half and the rest']])
})
