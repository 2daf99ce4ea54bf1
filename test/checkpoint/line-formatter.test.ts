import * as fc from 'fast-check'
import { closeSync, openSync, readFileSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { ChunkWriter } from '../../src/checkpoint/writing/chunk-writer.ts'
import { FrameRing } from '../../src/checkpoint/writing/frame-ring.ts'
import { LineFormatter, writeTime } from '../../src/checkpoint/writing/line-formatter.ts'
import { MainLock } from '../../src/checkpoint/writing/main-lock.ts'
import { lockStates, SharedRecord } from '../../src/checkpoint/writing/shared-record.ts'
import { cutTemplate, holeKinds, isTemplateTime } from '../../src/checkpoint/writing/template.ts'
import { DerivedIds, newIdKey } from '../../src/events/derived-ids.ts'
import { assertProperty } from '../property.ts'
import { tempFolder } from './open-writer.ts'

describe('times in templates', () => {
  it('line formatter: 18 characters identify every time of a template', async () => {
    const bytes = Buffer.alloc(18)
    const times = fc.oneof(
      fc.double({ min: 1e9, max: 2 ** 32, maxExcluded: true, noNaN: true }),
      // A quarter of a microsecond is the distance of neighboring times today.
      fc.integer({ min: 0, max: 2 ** 22 - 1 }).map((part) => 1_763_500_000 + part / 2 ** 22),
    )
    await assertProperty(
      fc.asyncProperty(times, async (time) => {
        expect(isTemplateTime(time)).toBe(true)
        writeTime(bytes, 0, time)
        expect(bytes.toString()).toMatch(/^[1-9]\d{9}\.\d{7}$/)
        expect(JSON.parse(bytes.toString())).toBe(time)
      }),
      { numRuns: 1000, longRuns: 100_000 },
    )
  })

  it('template: a sample that does not occur exactly once gives no template', () => {
    const sample = { text: 'abc', kind: holeKinds.uid, value: 0 }
    expect(cutTemplate('x abc y', [sample])).toHaveLength(2)
    expect(cutTemplate('x', [sample])).toBe(null)
    expect(cutTemplate('abc abc', [sample])).toBe(null)
  })
})

describe('row 126: the end of the ring', () => {
  it('row 126: a frame that is refused at the end of the ring leaves the ring empty', () => {
    const ids = new DerivedIds(newIdKey())
    const record = SharedRecord.create(4096)
    const ring = new FrameRing(record)
    const fd = openSync(join(tempFolder(), 'lines'), 'a')
    const main = new ChunkWriter(record, ids, { write: writeSync }, fd)
    record.tryLock(record.lock, lockStates.main)
    const refused = { template: 0, values: new Float64Array(6), count: 5, uid: 'é', text: 'text' }
    for (let line = 0; line < 300; line++) {
      expect(ring.putLine('a line\n', 7)).toBe(true)
      ring.publish()
      while (main.writeHeld());
      expect(ring.putValues(refused)).toBe(null)
      expect(ring.isEmpty).toBe(true)
    }
    closeSync(fd)
  })
})

describe('row 126: a thread that dies in a write', () => {
  it('row 126: the written part of a chunk is counted, and the rest follows', async () => {
    await assertProperty(
      fc.asyncProperty(fc.nat(), fc.nat(3), async (cut, shortWrites) => {
        const path = join(tempFolder(), 'lines')
        const fd = openSync(path, 'a')
        const ids = new DerivedIds(newIdKey())
        const record = SharedRecord.create(65_536)
        const ring = new FrameRing(record)
        const main = new ChunkWriter(record, ids, { write: writeSync }, fd)
        const lock = new MainLock(record, main, fd)
        const lines = Array.from({ length: 300 }, (_, at) => `${at}${'x'.repeat(at % 50)}\n`)
        for (const line of lines) expect(ring.putLine(line, line.length)).toBe(true)
        ring.publish()
        lock.isKept = false
        lock.release()
        // The thread writes some chunks as it should, then a part of one, and never returns.
        const write = (to: number, bytes: Uint8Array, from: number, length: number): number =>
          writeSync(to, bytes, from, Math.min(length, 700))
        const thread = new ChunkWriter(record, ids, { write }, fd)
        for (let count = 0; count < shortWrites; count++) thread.writeNext()
        const { tail, skip } = record.progress
        const formatter = new LineFormatter(record, ids)
        const length = formatter.format(tail, skip, record.head)
        expect(record.tryLock(record.lock, lockStates.writing)).toBe(true)
        writeSync(fd, formatter.bytes, 0, cut % (length + 1))
        expect(lock.acquire()).toBe(null)
        while (main.writeHeld());
        closeSync(fd)
        expect(readFileSync(path, 'utf8')).toBe(lines.join(''))
        expect(record.linesWritten).toBe(lines.length)
      }),
      { numRuns: 60, longRuns: 1000 },
    )
  })
})
