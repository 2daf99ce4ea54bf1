import { closeSync, openSync, readFileSync, writeFileSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { startChild } from './child.ts'
import { openWriter, tempFolder } from './open-writer.ts'
import { fieldOf, metric, readFile, span, taskCreated } from './read-content.ts'
import { assertProperty } from '../property.ts'

describe('row 55: large and damaged files', () => {
  it('row 55: a file of 200 MB with a line of 100 MB is read in little memory', async () => {
    const path = join(tempFolder(), 'large.telemetry.jsonl')
    const piece = taskCreated('x'.repeat(60)).repeat(2000)
    const file = openSync(path, 'w')
    const pieces = Math.ceil(100e6 / piece.length)
    for (let count = 0; count < pieces; count++) writeSync(file, piece)
    for (let count = 0; count < 100; count++) writeSync(file, 'x'.repeat(1e6))
    writeSync(file, `\n${metric(1)}`)
    closeSync(file)
    const nodeArguments = ['--max-old-space-size=64']
    const child = startChild('count-lines.ts', [path], { nodeArguments })
    const summary = JSON.parse(await child.nextLine())
    expect(await child.ended).toBe(0)
    expect(summary).toMatchObject({ lines: pieces * 2000 + 1, bad: 1, unknown: 0, torn: null })
    expect(summary.bytes).toBeGreaterThan(200e6)
    expect(summary.peakBytes).toBeLessThan(150e6)
  })

  it('row 55: a file cut at any byte loses only its torn last line', async () => {
    const path = join(tempFolder(), 'cut.telemetry.jsonl')
    const lines = [taskCreated('ä€😀\u2028'), metric(1), span, taskCreated('\n')]
    const whole = Buffer.from(lines.join(''))
    for (let cut = 0; cut <= whole.length; cut++) {
      writeFileSync(path, whole.subarray(0, cut))
      const { lines: read, summary } = await readFile(path)
      const ended = whole.subarray(0, cut).filter((byte) => byte === 0x0a).length
      expect(summary).toMatchObject({ bad: 0, unknown: 0, bytes: cut })
      expect(read).toEqual(lines.slice(0, read.length).map((line) => JSON.parse(line)))
      expect(read.length + (summary.torn === null ? 0 : 1)).toBeGreaterThanOrEqual(ended)
      expect([ended, ended + 1]).toContain(read.length)
    }
  })

  it('row 55: flipped bits damage only the lines they hit, and nothing throws', async () => {
    const path = join(tempFolder(), 'flip.telemetry.jsonl')
    const lines = Array.from({ length: 20 }, (_, at) => taskCreated(`task-${at}`))
    const flips = fc.array(fc.tuple(fc.nat(), fc.nat({ max: 7 })), { minLength: 1, maxLength: 5 })
    await assertProperty(
      fc.asyncProperty(flips, async (all) => {
        const bytes = Buffer.from(lines.join(''))
        for (const [at, bit] of all) {
          const index = at % bytes.length
          bytes[index] = (bytes[index] ?? 0) ^ (1 << bit)
        }
        writeFileSync(path, bytes)
        const { summary, bad } = await readFile(path)
        expect(summary.bytes).toBe(bytes.length)
        expect(bad).toHaveLength(summary.bad)
        // A flip damages its line, and the next one when it adds or removes a newline.
        expect(summary.lines).toBeGreaterThanOrEqual(lines.length - 2 * all.length)
      }),
      { numRuns: 60, longRuns: 200 },
    )
  })
})

describe('row 58: any text', () => {
  it('row 58: the reader returns what the writer wrote, for any text', async () => {
    const texts = fc.array(
      fc.oneof(
        fc.string({ unit: 'binary' }),
        fc.string({ unit: 'grapheme' }),
        fc.constantFrom(
          '\n',
          '\r\n',
          '\u2028\u2029',
          '\uD800',
          '\uDC00x',
          '😀',
          '\0',
          '\uFEFF',
          '"\\',
        ),
      ),
      { maxLength: 30 },
    )
    const folder = tempFolder()
    await assertProperty(
      fc.asyncProperty(texts, async (all) => {
        const { writer } = openWriter({ folder })
        const lines = all.map(taskCreated)
        for (const line of lines) writer.append(line)
        await writer.close()
        const { lines: read, summary } = await readFile(writer.path)
        expect(read).toEqual(lines.map((line) => JSON.parse(line)))
        expect(read.map((line) => fieldOf(line, 'task_id'))).toEqual(all)
        expect(summary).toMatchObject({ bad: 0, unknown: 0, torn: null })
        expect(readFileSync(writer.path).filter((byte) => byte === 0x0a)).toHaveLength(all.length)
      }),
      { numRuns: 60, longRuns: 200 },
    )
  })
})
