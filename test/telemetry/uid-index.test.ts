import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { SpillFile, spillChunkBytes } from '../../src/telemetry/metrics/spill-file.ts'
import { UidIndex } from '../../src/telemetry/metrics/uid-index.ts'
import { assertProperty } from '../property.ts'

describe('uid index', () => {
  it('uid index: finds what was set last, for any uids', async () => {
    const uids = fc.array(fc.string({ maxLength: 3 }), { maxLength: 300 })
    await assertProperty(
      fc.asyncProperty(uids, async (given) => {
        const kept: string[] = []
        const index = new UidIndex((value, uid) => kept[value] === uid)
        const expected = new Map<string, number>()
        for (const uid of given) {
          expect(index.get(uid)).toBe(expected.get(uid) ?? -1)
          const value = kept.push(uid) - 1
          index.set(uid, value)
          expected.set(uid, value)
        }
        for (const [uid, value] of expected) expect(index.get(uid)).toBe(value)
      }),
    )
  })
})

describe('spill file', () => {
  it('spill file: reads back what was appended, in memory and in the file', async () => {
    const chunksInMemory = 4
    const sizes = fc.array(fc.integer({ min: 0, max: 3 * spillChunkBytes }), { maxLength: 12 })
    await assertProperty(
      fc.asyncProperty(sizes, async (given) => {
        const file = new SpillFile(chunksInMemory)
        const parts = given.map((size, at) => Buffer.alloc(size, at + 1))
        const positions = parts.map((part) => file.append(part))
        for (const [at, part] of parts.entries()) {
          expect(file.read(positions[at] ?? 0, part.length).equals(part)).toBe(true)
        }
        const total = given.reduce((sum, size) => sum + size, 0)
        expect(file.size).toBe(total)
        const chunks = Math.max(0, Math.floor(total / spillChunkBytes) - chunksInMemory)
        expect(file.bytesInFile).toBe(chunks * spillChunkBytes)
      }),
      { numRuns: 50, longRuns: 300 },
    )
  })
})
