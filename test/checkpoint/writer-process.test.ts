import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { readCheckpoint } from '../../src/checkpoint/reader.ts'
import { startChild } from './child.ts'
import { tempFolder, wholeLines } from './open-writer.ts'
import { fieldOf } from './read-content.ts'
import { byRun, chooseSeed, createRandom, hangMs } from '../long-run.ts'

const kills = byRun(10, 500)

describe('faults of a real process', () => {
  it('row 49: lines beyond `ulimit -f` are kept and written when the limit is raised', async () => {
    const count = 500
    const args = [tempFolder(), String(count)]
    const child = startChild('hit-file-limit.ts', args, { shell: 'ulimit -S -f 4; exec "$@"' })
    const path = await child.nextLine()
    expect(await child.nextLine()).toBe('degraded EFBIG')
    const cut = readFileSync(path, 'utf8')
    expect(cut).toHaveLength(4096)
    expect(cut).not.toMatch(/\n$/)
    execFileSync('prlimit', ['--pid', String(child.pid), '--fsize=unlimited:'])
    expect(await child.nextLine()).toBe('recovered 0')
    expect(await child.nextLine()).toBe(`[${count},0]`)
    expect(await child.ended).toBe(0)
    const values = wholeLines(readFileSync(path, 'utf8')).map((line) => JSON.parse(line).value)
    expect(values).toEqual(Array.from({ length: count }, (_, value) => value))
  })

  it(
    `row 53: ${kills} kills at random moments lose no acknowledged line and tear at most the last`,
    async () => {
      const random = createRandom(chooseSeed())
      for (let kill = 0; kill < kills; kill++) {
        const child = startChild('write-until-killed.ts', [tempFolder(), String(random())])
        const path = await child.nextLine()
        let acknowledged = 0
        const enough = Math.ceil(random() * 30_000)
        while (acknowledged < enough) acknowledged = Number(await child.nextLine())
        child.process.kill('SIGKILL')
        expect(await child.ended).toBe('SIGKILL')
        const reading = readCheckpoint(path)
        let next = await reading.next()
        let value = 0
        for (; next.done !== true; next = await reading.next()) {
          if (fieldOf(next.value, 'value') !== value++)
            throw new Error(`line ${value} is out of order`)
        }
        expect(next.value.bad).toBe(0)
        expect(next.value.lines).toBeGreaterThanOrEqual(acknowledged)
      }
    },
    byRun(1, 20) * hangMs,
  )
})
