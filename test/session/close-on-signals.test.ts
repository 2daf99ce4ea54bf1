import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { readCheckpoint } from '../../src/checkpoint/reader.ts'
import { ValueError } from '../../src/foundation/errors.ts'
import { closeOnSignals } from '../../src/session/close-on-signals.ts'
import { startProgram } from '../cli/run-command.ts'
import { tempFolder } from '../telemetry/open-telemetry.ts'

const program = join(import.meta.dirname, 'fixtures', 'signaled.ts')

/** The event types of each record in the folder. */
async function recordsIn(folder: string): Promise<string[][]> {
  const names = readdirSync(folder).filter((name) => name.endsWith('.jsonl'))
  return Promise.all(
    names.map(async (name) => {
      const types: string[] = []
      for await (const line of readCheckpoint(join(folder, name))) {
        if (line.section === 'event') types.push(line.event_type)
      }
      return types
    }),
  )
}

async function signaled(how: string, signal: NodeJS.Signals = 'SIGTERM') {
  const folder = tempFolder()
  const run = startProgram(program, [how, folder])
  await run.seen('running')
  run.child.kill(signal)
  if (how === 'twice') {
    await run.seen('signaled')
    run.child.kill(signal)
  }
  const { code, stdout, stderr } = await run.ended
  return { code, stdout, stderr, records: await recordsIn(folder) }
}

describe('closeOnSignals', () => {
  it.each([
    ['SIGTERM', 143],
    ['SIGINT', 130],
    ['SIGHUP', 129],
  ] as const)('row 26: %s closes the session and exits with %i', async (signal, exitCode) => {
    const { code, stderr, records } = await signaled('wait', signal)
    expect([code, stderr]).toEqual([exitCode, ''])
    expect(records[0]).toEqual(expect.arrayContaining(['TaskCanceled', 'SessionEnded']))
  })

  it('row 26: a signal shuts a workflow engine down, too', async () => {
    const { code, records } = await signaled('workflow')
    expect(code).toBe(143)
    expect(records).toHaveLength(2)
    for (const types of records) {
      expect(types).toEqual(expect.arrayContaining(['TaskCanceled', 'SessionEnded']))
    }
  })

  it('row 26: a second signal exits at once, with everything emitted in the record', async () => {
    const { code, records } = await signaled('twice')
    expect(code).toBe(143)
    expect(records[0]).toContain('TaskCanceled')
    expect(records[0]).not.toContain('SessionEnded')
  })

  it("row 26: a signal that the command and the script's group both send counts once", async () => {
    const folder = tempFolder()
    const run = startProgram(program, ['passed-on', folder], { TUTTI_RUN: join(folder, 'none') })
    await run.seen('running')
    run.child.kill('SIGTERM')
    await Promise.race([run.seen('signaled again'), run.ended])
    run.child.kill('SIGHUP')
    expect((await run.ended).code).toBe(129)
    const [types = []] = await recordsIn(folder)
    expect(types).toContain('TaskCanceled')
  })

  it('row 26: after the grace the process exits, closed or not', async () => {
    const { code, records } = await signaled('grace')
    expect([code, records[0]?.includes('SessionEnded')]).toEqual([143, false])
  })

  it('the process waits for all sessions that a signal closes', async () => {
    const { code, records } = await signaled('two')
    expect(code).toBe(143)
    expect(records.map((types) => types.at(-1))).toEqual(['SessionEnded', 'SessionEnded'])
  })

  it('a program that removes the handlers after its own close() ends by itself', async () => {
    const { code, stdout } = await signaled('speak')
    expect([code, stdout.endsWith('last words\n')]).toEqual([143, true])
  })

  it('row 27: an error of the application while it closes is not hidden', async () => {
    const { code, stderr } = await signaled('throw')
    expect(code).toBe(1)
    expect(stderr).toContain('RangeError: a mistake of the application')
  })

  it('closeOnSignals leaves no handler behind, and names wrong options', () => {
    const session = { close: async () => {} }
    const before = process.listenerCount('SIGTERM')
    const remove = closeOnSignals(session, { signals: ['SIGTERM'] })
    expect(process.listenerCount('SIGTERM')).toBe(before + 1)
    remove()
    remove()
    expect(process.listenerCount('SIGTERM')).toBe(before)
    for (const options of [{ signals: ['SIGKILL'] }, { signals: ['x'] }, { grace: 1 }]) {
      expect(() => closeOnSignals(session, options as never)).toThrow(ValueError)
    }
    expect(() => closeOnSignals(session, { graceSeconds: -1 })).toThrow(/graceSeconds/)
    expect(() => closeOnSignals({} as never)).toThrow(/`session` to be a session/)
  })
})
