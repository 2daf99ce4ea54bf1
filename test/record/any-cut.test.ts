import { appendFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { eventLine, metricLine } from '../../src/checkpoint/format.ts'
import type { BaseEvent } from '../../src/events/event.ts'
import { makeEvent } from '../../src/events/make-event.ts'
import { SessionStarted } from '../../src/events/vocabulary.ts'
import { readViews, type RecordViews } from '../../src/record/record-views.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { createRunPass, type RunPass } from '../../src/views/all-panels.ts'
import { assertProperty } from '../property.ts'
import { openTelemetry, tempFolder } from '../telemetry/open-telemetry.ts'
import { anyEvents, condensed, type Draft, toEvent } from '../views/any-events.ts'

const statesOf = ({ counts, states }: RunPass) => condensed({ counts, ...states })
const everythingOf = (views: RecordViews) => ({
  ...views,
  pass: statesOf(views.pass),
  bytesRead: null,
})

const lineOf = (event: BaseEvent): string => eventLine(event, 'a'.repeat(32), 'b'.repeat(16))

function linesOf(drafts: readonly Draft[], resumedFrom: string | null): string {
  const clock = new ManualClock()
  const attributes = resumedFrom === null ? {} : { resumed_from: resumedFrom }
  const start = makeEvent(SessionStarted, { session_id: 's1', backend: 'tutti', attributes })
  const events = drafts.map((draft) => {
    void clock.advance(250)
    return lineOf(toEvent(draft, clock))
  })
  return [lineOf(start), ...events, metricLine(1, { tasks_submitted: 3 })].join('')
}

it('snapshot: any cut of any run into a snapshot and the rest gives the same views', async () => {
  // `fc.double` would give numbers next to 0 almost always.
  const cut = fc.nat(1000).map((thousandths) => thousandths / 1000)
  const cuts = fc.array(cut, { maxLength: 3 })
  const folder = tempFolder()
  let shortened = 0
  await assertProperty(
    fc.asyncProperty(
      fc.array(anyEvents, { minLength: 1, maxLength: 3 }),
      cuts,
      async (runs, at) => {
        const texts = runs.map((drafts, file) =>
          linesOf(drafts, file === 0 ? null : `${file - 1}.jsonl`),
        )
        const paths = texts.map((_, file) => join(folder, `${file}.jsonl`))
        for (const [file, text] of texts.entries()) {
          const path = paths[file] ?? ''
          writeFileSync(path, '')
          let written = 0
          // Anywhere, also inside of a line and of a character.
          for (const part of at.toSorted((a, b) => a - b)) {
            const end = Math.floor(part * text.length)
            appendFileSync(path, text.slice(written, end))
            written = Math.max(written, end)
            await readViews(path, { snapshot: 'write' })
          }
          appendFileSync(path, text.slice(written))
        }
        const last = paths.at(-1) ?? ''
        const continued = await readViews(last)
        const whole = await readViews(last, { snapshot: 'ignore' })
        expect(everythingOf(continued)).toEqual(everythingOf(whole))
        if (continued.bytesRead < whole.bytesRead) shortened++
        for (const name of readdirSync(folder)) rmSync(join(folder, name))
      },
    ),
    { numRuns: 60, longRuns: 2000 },
  )
  // Otherwise the snapshots would not be used.
  expect(shortened).toBeGreaterThan(10)
})

it('views: live, from the file and in replay at any time, any run gives the same', async () => {
  await assertProperty(
    fc.asyncProperty(anyEvents, fc.nat(80), async (drafts, stop) => {
      const { telemetry, clock, folder } = openTelemetry()
      const live = createRunPass()
      const seen: BaseEvent[] = []
      telemetry.subscribe((event) => {
        live.take(event)
        seen.push(event)
      })
      await telemetry.start()
      for (const draft of drafts) {
        telemetry.emit(toEvent(draft, clock))
        await clock.advance(500)
      }
      await telemetry.stop()
      const path = join(folder, readdirSync(folder)[0] ?? '')
      expect(statesOf((await readViews(path)).pass)).toEqual(statesOf(live))
      const until = seen[Math.min(stop, seen.length - 1)]?.emit_time ?? 0
      const then = createRunPass()
      for (const event of seen) if (event.emit_time <= until) then.take(event)
      expect(statesOf((await readViews(path, { until })).pass)).toEqual(statesOf(then))
    }),
    { numRuns: 30, longRuns: 500 },
  )
})
