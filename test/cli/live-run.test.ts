import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { readCheckpoint } from '../../src/checkpoint/reader.ts'
import { startProgram } from './run-command.ts'

const program = fileURLToPath(new URL('fixtures/live-run.ts', import.meta.url))
let folder = ''
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tutti-live-'))
})
afterAll(async () => {
  await rm(folder, { recursive: true })
})

async function eventsIn(place: string): Promise<string[]> {
  const name = (await readdir(place)).find((one) => one.endsWith('.jsonl')) ?? ''
  const types: string[] = []
  for await (const line of readCheckpoint(join(place, name))) {
    if (line.section === 'event') types.push(line.event_type)
  }
  return types
}

describe('a live run', () => {
  it('row 26: a second SIGINT ends the process at once, with everything written', async () => {
    const place = join(folder, 'twice')
    const run = startProgram(program, ['hang', place])
    await run.seen('running')
    run.child.kill('SIGINT')
    await run.seen('stopping cleanly')
    run.child.kill('SIGINT')
    const end = await run.ended
    expect(end.code).toBe(130)
    expect(end.stderr).toContain('\nresume  how to go on\n')
    expect(await eventsIn(place)).toContain('TaskCanceled')
  })

  it('row 26: a live run reports how it ended after the session is closed', async () => {
    const run = startProgram(program, ['linger', join(folder, 'linger')])
    await run.seen('running')
    run.child.kill('SIGINT')
    expect((await run.ended).stdout).toBe('ended by SIGINT\n')
  })

  it('row 27: an uncaught error is printed with the record and how to resume it', async () => {
    const place = join(folder, 'thrown')
    const end = await startProgram(program, ['throw', place]).ended
    expect(end.code).toBe(1)
    expect(end.stderr).toContain('nobody caught me')
    expect(end.stderr).toMatch(/\neverything so far is in .*\nresume {2}how to go on\n/)
    expect(await eventsIn(place)).toEqual([
      'SessionStarted',
      'TaskCreated',
      'TaskSubmitted',
      'TaskQueued',
      'TaskStarted',
    ])
  })
})
