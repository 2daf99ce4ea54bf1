import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { FakeDisk } from './fake-disk.ts'
import { openWriter, tempFolder, wholeLines } from './open-writer.ts'
import { assertProperty } from '../property.ts'

const steps = fc.array(
  fc.oneof(
    { weight: 6, arbitrary: fc.record({ text: fc.string({ unit: 'binary', maxLength: 40 }) }) },
    { weight: 3, arbitrary: fc.constant('write' as const) },
    { weight: 2, arbitrary: fc.constant('wait' as const) },
  ),
  { maxLength: 60 },
)
const answers = fc.array(
  fc.oneof(
    { weight: 3, arbitrary: fc.constantFrom('ENOSPC', 'EIO', 'EFBIG') },
    { weight: 1, arbitrary: fc.constantFrom('EINTR', 'EAGAIN') },
    { weight: 2, arbitrary: fc.integer({ min: 0, max: 50 }) },
    { weight: 1, arbitrary: fc.constant(Infinity) },
  ),
  { maxLength: 40 },
)

describe('any results of system calls', () => {
  it('row 49: any short writes and errors leave whole lines and exact counters', async () => {
    const folder = tempFolder()
    await assertProperty(
      fc.asyncProperty(
        steps,
        answers,
        fc.integer({ min: 1, max: 8 }),
        async (plan, script, limit) => {
          const files = new FakeDisk()
          const left = [...script]
          files.answer = () => left.shift() ?? Infinity
          const { writer, clock, reports } = openWriter({ folder, files, maxPendingLines: limit })
          const appended: string[] = []
          for (const [at, step] of plan.entries()) {
            if (step === 'write') writer.write()
            else if (step === 'wait') await clock.advance(500)
            else {
              appended.push(JSON.stringify([at, step.text]))
              writer.append(`${appended.at(-1)}\n`)
            }
            expect(writer.linesWritten + writer.linesLost + writer.linesPending).toBe(
              appended.length,
            )
          }
          files.answer = () => Infinity
          await writer.close()
          const lines = wholeLines(files.text)
          expect(lines).toEqual(appended.filter((line) => lines.includes(line)))
          expect(writer.linesWritten).toBe(lines.length)
          expect(writer.linesLost).toBe(appended.length - lines.length)
          expect(reports.map((text) => text.split(' ')[0])).toEqual(
            reports.map((_, index) => (index % 2 === 0 ? 'degraded' : 'recovered')),
          )
          expect(reports.length % 2).toBe(0)
          const lost = reports
            .filter((text) => text.startsWith('recovered'))
            .map((text) => Number(text.slice(10)))
          expect(lost.reduce((sum, count) => sum + count, 0)).toBe(writer.linesLost)
        },
      ),
      { numRuns: 100, longRuns: 300 },
    )
  })
})
