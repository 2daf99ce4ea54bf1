import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { atExit } from '../../src/runtime/at-exit.ts'
import { byRun } from '../long-run.ts'
import { eventsIn, openTelemetry, tempFolder } from './open-telemetry.ts'

const runs = byRun(2, 100)
const program = join(import.meta.dirname, 'fixtures', 'exit-after-failure.ts')

async function exitCodeOf(how: string, folder: string): Promise<number | null> {
  const child = spawn(process.execPath, [program, how, folder], {
    stdio: 'ignore',
  })
  const [code] = (await once(child, 'close')) as [number | null]
  return code
}

describe('the record at the end of the process', () => {
  const ways: readonly [how: string, code: number][] = [
    ['exit', 7],
    ['throw', 1],
    ['end', 0],
    ['subscriber', 7],
  ]
  it.each(ways)(
    'row 111: every emitted event is in the file: %s',
    async (how, code) => {
      for (let run = 0; run < runs; run++) {
        const folder = tempFolder()
        expect(await exitCodeOf(how, folder)).toBe(code)
        const events = eventsIn(folder)
        const marks = events.flatMap((event) =>
          event['mark'] === undefined ? [] : [event['mark']],
        )
        const many = Array.from({ length: 10 }, (_, at) => `mark ${at}`)
        expect(events.filter(({ event_type: type }) => type === 'TaskFailed')).toHaveLength(1)
        expect(new Set(marks)).toEqual(new Set([...many, 'last', 'at exit']))
        expect(marks).toHaveLength(12)
        expect(marks.at(-1)).toBe('at exit')
      }
    },
    runs * 30_000,
  )

  it.each(['older listener throws', 'first listener throws'])(
    'row 111: events emitted before the exit are in the file: %s',
    async (how) => {
      const folder = tempFolder()
      expect(await exitCodeOf(how, folder)).not.toBe(0)
      const events = eventsIn(folder)
      expect(events.filter(({ event_type: type }) => type === 'TaskFailed')).toHaveLength(1)
      expect(events.filter((event) => event['mark'] === 'last')).toHaveLength(1)
    },
  )

  it('row 111: open checkpoints share one listener, which goes with the last one', async () => {
    const before = process.listenerCount('exit')
    const monitors = process.listenerCount('uncaughtExceptionMonitor')
    const managers = Array.from({ length: 20 }, () => openTelemetry().telemetry)
    await Promise.all(managers.map((telemetry) => telemetry.start()))
    expect(process.listenerCount('exit')).toBe(before + 1)
    await Promise.all(managers.map((telemetry) => telemetry.stop()))
    expect(process.listenerCount('exit')).toBe(before)
    expect(process.listenerCount('uncaughtExceptionMonitor')).toBe(monitors)
  })

  it('a callback at exit that throws does not keep the others from running', () => {
    const ran: string[] = []
    const removals = [
      atExit(() => {
        throw new Error('broken')
      }),
      atExit(() => ran.push('second')),
    ]
    process.listeners('exit').at(0)?.(0)
    for (const remove of removals) remove()
    expect(ran).toEqual(['second'])
  })
})
