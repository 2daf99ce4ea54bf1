import { appendFileSync, renameSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { systemClock } from '../../../src/foundation/clock.ts'
import { readingIntervalMs, RecordFold } from '../../../src/dashboard/fold/record-fold.ts'
import type { EventsView, HeadView } from '../../../src/dashboard/protocol.ts'
import { readViews } from '../../../src/record/record-views.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { eventually } from '../../eventually.ts'
import { done, endedRecord, line, resumedFrom, writeRecord } from '../test-dashboard.ts'

const writers = { isWriting: () => Promise.resolve(true) }

async function listEvents(fold: RecordFold): Promise<string[]> {
  const query = { kind: 'events', filter: {}, q: '', limit: 100 } as const
  const { events } = JSON.parse(await fold.answer(query)) as EventsView
  return events.map(({ type, task }) => `${type} ${task}`)
}

it('the latest events are known also if a snapshot saves reading the record', async () => {
  const path = endedRecord(3)
  const whole = new RecordFold({ path, clock: new ManualClock(), writers })
  await whole.refresh()
  const expected = await listEvents(whole)
  expect(expected).toHaveLength(14)
  await readViews(path, { snapshot: 'write' })
  const fold = new RecordFold({ path, clock: new ManualClock(), writers })
  await fold.refresh()
  expect(await listEvents(fold)).toEqual(expected)
})

it('the latest events of a resumed run are also those of its earlier file', async () => {
  const first = endedRecord(3)
  const path = join(dirname(first), 's-1.1700000100.telemetry.jsonl')
  writeFileSync(path, resumedFrom(basename(first)) + done('t4'))
  await readViews(path, { snapshot: 'write' })
  const clock = new ManualClock()
  const fold = new RecordFold({ path, clock, writers })
  await fold.refresh()
  const events = await listEvents(fold)
  expect(events).toHaveLength(14 + 5)
  appendFileSync(path, line('SessionEnded'))
  await clock.advance(250)
  await fold.refresh()
  expect(await listEvents(fold)).toEqual(['SessionEnded null', ...events])
})

it('a growing record is read from where the last reading ended, in intervals', async () => {
  const clock = new ManualClock()
  const path = writeRecord(line('SessionStarted'), done('t1'))
  const fold = new RecordFold({ path, clock, writers })
  const countDone = async (): Promise<number> =>
    (JSON.parse(await fold.answer({ kind: 'head', filter: {} })) as HeadView).counts.done
  const first = await fold.refresh()
  expect(await countDone()).toBe(1)
  appendFileSync(path, done('t2'))
  expect(await fold.refresh()).toBe(first)
  expect(await countDone()).toBe(1)
  await clock.advance(250)
  expect(await fold.refresh()).not.toBe(first)
  expect(await countDone()).toBe(2)
})

it('row 130: a record that is replaced while it is read is read again', async () => {
  const [path, other] = [endedRecord(20_000), endedRecord(5)]
  const fold = new RecordFold({ path, clock: systemClock, writers })
  const readHead = async (): Promise<HeadView> =>
    JSON.parse(await fold.answer({ kind: 'head', filter: {} })) as HeadView
  const reading = fold.refresh()
  while ((await readHead()).counts.done === 0) await nextTurn()
  expect((await readHead()).reading).not.toBeNull()
  renameSync(other, path)
  await reading
  await eventually(async () => {
    await fold.refresh()
    const { counts, missing, reading: left } = await readHead()
    expect([left, counts.done, missing]).toEqual([
      null,
      5,
      [expect.stringContaining('the record was replaced')],
    ])
  })
})

it('a record on a network file system is read at most once a second', () => {
  const [nfs, lustre, ext4, tmpfs] = [0x6969, 0x0bd00bd0, 0xef53, 0x01021994]
  // Some architectures give the type of CIFS as a negative number.
  for (const type of [nfs, lustre, 0xff534d42, 0xff534d42 | 0]) {
    expect(readingIntervalMs(type), type.toString(16)).toBe(1000)
  }
  for (const type of [ext4, tmpfs, undefined]) expect(readingIntervalMs(type)).toBe(250)
})

it('a reading that lasts shows what is read so far, and how much that is', async () => {
  const clock = new ManualClock()
  const path = writeRecord(line('SessionStarted'), done('t1'))
  const fold = new RecordFold({ path, clock, writers })
  const showHead = async (): Promise<HeadView> =>
    JSON.parse(await fold.answer({ kind: 'head', filter: {} })) as HeadView
  const revisions = new Set([await fold.refresh()])
  appendFileSync(path, done('t2').repeat(5000) + done('t3'))
  const parts: HeadView[] = []
  let head = await showHead()
  while (head.counts.done < 3) {
    const refreshed = fold.refresh().then((revision) => revisions.add(revision).size)
    const isOver = clock.advance(250).then(() => -1)
    while ((await Promise.race([refreshed, isOver])) === -1) await clock.advance(250)
    head = await showHead()
    if (head.reading !== null) parts.push(head)
  }
  expect(parts.find(({ counts }) => counts.done === 2)).toMatchObject({
    verdict: expect.stringMatching(/is being read.*first \d+ %/) as string,
  })
  expect(revisions.size).toBeGreaterThan(2)
  await fold.refresh()
  expect((await showHead()).reading).toBeNull()
})
