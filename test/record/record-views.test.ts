import {
  appendFileSync,
  closeSync,
  openSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { eventLine, metricLine } from '../../src/checkpoint/format.ts'
import { type EventClass, stampEvent } from '../../src/events/event.ts'
import * as vocabulary from '../../src/events/vocabulary.ts'
import { readViews } from '../../src/record/record-views.ts'
import { SnapshotDamagedError } from '../../src/record/snapshot-parts.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { counts } from '../../src/views/panels/counts.ts'
import { failures } from '../../src/views/panels/failures.ts'
import { lanes } from '../../src/views/panels/lanes.ts'
import { names } from '../../src/views/panels/names.ts'
import { span } from '../checkpoint/read-content.ts'
import { tempFolder } from '../telemetry/open-telemetry.ts'

const clock = new ManualClock()

const classes = {
  SessionStarted: vocabulary.SessionStarted,
  TaskCreated: vocabulary.TaskCreated,
  TaskSubmitted: vocabulary.TaskSubmitted,
  TaskStarted: vocabulary.TaskStarted,
  TaskCompleted: vocabulary.TaskCompleted,
  TaskFailed: vocabulary.TaskFailed,
}

/** One line of an event, one second after the previous one. */
function line(
  type: keyof typeof classes,
  task_id: string | null = null,
  attributes: object = {},
): string {
  void clock.advance(1000)
  const event = stampEvent(classes[type] as unknown as EventClass, clock, {
    session_id: 's-1',
    backend: 'local',
    task_id,
    node_id: 'n1',
    duration_seconds: 1,
    error_type: 'RangeError',
    attributes: { executable: 'simulate', task_type: 'function', ...attributes },
  } as never)
  return eventLine(event, 'a'.repeat(32), 'b'.repeat(16))
}

const begun = (uid: string): string =>
  line('TaskCreated', uid) +
  line('TaskSubmitted', uid) +
  line('TaskStarted', uid, { worker_id: 'n1/local/w1' })
const done = (uid: string): string => begun(uid) + line('TaskCompleted', uid)
const failed = (uid: string): string =>
  begun(uid) + line('TaskFailed', uid, { error_type: 'RangeError', error_message: 'bad seed' })

function writeRecord(folder: string, name: string, ...lines: string[]): string {
  const path = join(folder, name)
  writeFileSync(path, lines.join(''))
  return path
}

const completedIn = async (path: string): Promise<number> =>
  (await readViews(path)).pass.counts.totals.completed

describe('the views of a record', () => {
  it('record: skipped, torn and unknown lines are counted, spans are not read', async () => {
    const lines = [line('SessionStarted'), done('a'), span, span.slice(0, 40), '\n', 'garbage\n']
    const path = writeRecord(
      tempFolder(),
      'a.jsonl',
      ...lines,
      '{"section":"later"}\n',
      metricLine(5, { tasks_completed: 1 }),
      '{"section":"ev',
    )
    const bad: string[] = []
    const views = await readViews(path, { onBadLine: ({ reason }) => bad.push(reason) })
    expect(views).toMatchObject({ lines: 7, bad: 2, unknown: 1, missing: null, files: [path] })
    expect(bad).toEqual(['invalid JSON', 'invalid JSON'])
    expect(views.torn).toMatchObject({ line: 11 })
    expect(views.metrics).toMatchObject({ tasks_completed: 1 })
    expect(counts.show(views.pass.counts)).toMatchObject({ tasks: 1, completed: 1, open: 0 })
  })

  it('record: the next reader goes on from the snapshot, and so does the next one', async () => {
    const path = writeRecord(tempFolder(), 'a.jsonl', line('SessionStarted'), done('a'))
    const size = statSync(path).size
    expect((await readViews(path, { snapshot: 'write' })).bytesRead).toBe(size)
    const again = await readViews(path, { snapshot: 'write' })
    expect(again).toMatchObject({ bytesRead: 0, lines: 5 })
    const more = done('b')
    appendFileSync(path, more)
    const third = await readViews(path, { snapshot: 'write' })
    expect(third).toMatchObject({ bytesRead: more.length, lines: 9 })
    expect(counts.show(third.pass.counts)).toMatchObject({ completed: 2 })
    expect((await readViews(path)).bytesRead).toBe(0)
  })

  it.each<[string, (view: Buffer, path: string) => Buffer]>([
    ['a flipped byte', (view) => Buffer.concat([view.subarray(0, -1), Buffer.from([1])])],
    ['a cut', (view) => view.subarray(0, view.length - 10)],
    ['nothing in it', () => Buffer.alloc(0)],
    ['text', () => Buffer.from('{}\n')],
    ['another version', (view) => replaced(view, '"version":', '"version":1')],
    ['another library', (view) => replaced(view, '"library":"0.1.0"', '"library":"0.0.9"')],
    ['another file', (view) => replaced(view, '"name":"a.jsonl"', '"name":"b.jsonl"')],
  ])('record: a snapshot with %s is thrown away', async (_, damage) => {
    const path = writeRecord(tempFolder(), 'a.jsonl', line('SessionStarted'), done('a'))
    await readViews(path, { snapshot: 'write' })
    writeFileSync(`${path}.view`, damage(readFileSync(`${path}.view`), path))
    const views = await readViews(path)
    expect(views.bytesRead).toBe(statSync(path).size)
    expect(views.pass.counts.totals.completed).toBe(1)
  })

  it('record: no changed byte in the head of a snapshot changes what is shown', async () => {
    const path = writeRecord(tempFolder(), 'a.jsonl', line('SessionStarted'), done('a'))
    await readViews(path, { snapshot: 'write' })
    const view = readFileSync(`${path}.view`)
    // Every so often in the head, then each byte of its end and of the checksum behind it.
    const headStart = view.indexOf('{"magic"')
    // In place: rewriting the file for each byte takes longer than reading the record.
    const file = openSync(`${path}.view`, 'r+')
    onTestFinished(() => closeSync(file))
    for (let at = headStart; at < view.length; at += at > view.length - 400 ? 1 : 97) {
      writeSync(file, Buffer.of((view[at] ?? 0) ^ 1), 0, 1, at)
      const views = await readViews(path)
      writeSync(file, view, at, 1, at)
      expect([views.lines, views.bad, views.unknown, views.metrics]).toEqual([5, 0, 0, null])
      expect(counts.show(views.pass.counts)).toMatchObject({ tasks: 1, completed: 1 })
    }
  })

  it('record: on demand, only the states that somebody asks for are read', async () => {
    const path = writeRecord(tempFolder(), 'a.jsonl', line('SessionStarted'), done('a'))
    const whole = await readViews(path, { snapshot: 'write' })
    writeFileSync(`${path}.view`, damagedIn(readFileSync(`${path}.view`), 'lanes', 'durations'))
    const views = await readViews(path, { onDemand: true })
    expect(views.bytesRead).toBe(0)
    expect(counts.show(views.pass.counts)).toEqual(counts.show(whole.pass.counts))
    const query = { durations: false }
    expect(names.show(views.pass.states.names, query)).toEqual(
      names.show(whole.pass.states.names, query),
    )
    expect(() => views.pass.states.lanes).toThrow(SnapshotDamagedError)
    expect(() => views.pass.states.names.durations).toThrow(SnapshotDamagedError)
    // A reader of the whole snapshot gets nothing from a damaged one.
    expect((await readViews(path)).bytesRead).toBe(statSync(path).size)
    await readViews(path, { snapshot: 'renew' })
    expect((await readViews(path)).bytesRead).toBe(0)
  })

  it('record: on demand, a snapshot that is removed meanwhile counts as damaged', async () => {
    const path = writeRecord(tempFolder(), 'a.jsonl', line('SessionStarted'), done('a'))
    await readViews(path, { snapshot: 'write' })
    const views = await readViews(path, { onDemand: true })
    rmSync(`${path}.view`)
    expect(() => views.pass.states.lanes).toThrow(SnapshotDamagedError)
  })

  it('record: on demand, a record that went on is read on from the snapshot', async () => {
    const path = writeRecord(tempFolder(), 'a.jsonl', line('SessionStarted'), done('a'))
    await readViews(path, { snapshot: 'write' })
    const more = failed('b') + begun('c')
    appendFileSync(path, more)
    const views = await readViews(path, { onDemand: true })
    const whole = await readViews(path, { snapshot: 'ignore' })
    expect(views.bytesRead).toBe(more.length)
    expect(views.pass.states).toEqual(whole.pass.states)
    expect(views.pass.counts).toEqual(whole.pass.counts)
  })

  it('record: a snapshot of a file that was written anew or cut is thrown away', async () => {
    const path = writeRecord(tempFolder(), 'a.jsonl', line('SessionStarted'), done('a'), done('b'))
    await readViews(path, { snapshot: 'write' })
    const text = readFileSync(path, 'utf8')
    writeFileSync(path, text.replace('simulate', 'estimate'))
    expect((await readViews(path)).bytesRead).toBe(text.length)
    writeFileSync(path, text.slice(0, -1000))
    expect(await completedIn(path)).toBe(1)
    writeFileSync(path, text)
    expect((await readViews(path)).bytesRead).toBe(0)
  })

  it('record: a folder that cannot be written gets no snapshot and harms nothing', async () => {
    const path = writeRecord(tempFolder(), 'a.jsonl', line('SessionStarted'), done('a'))
    // A folder of that name stands in the way, for every user.
    rmSync(`${path}.view`, { force: true, recursive: true })
    const inTheWay = join(`${path}.view`, 'x')
    await import('node:fs/promises').then(({ mkdir }) => mkdir(inTheWay, { recursive: true }))
    const views = await readViews(path, { snapshot: 'write' })
    expect(views.pass.counts.totals.completed).toBe(1)
  })
})

describe('a run of several sessions', () => {
  it('chain: DONE stays DONE; what failed or was interrupted counts as it ended last', async () => {
    const folder = tempFolder()
    writeRecord(
      folder,
      'a.jsonl',
      line('SessionStarted'),
      done('a'),
      failed('b'),
      failed('c'),
      begun('d'),
      begun('e'),
    )
    const path = writeRecord(
      folder,
      'b.jsonl',
      line('SessionStarted', null, { resumed_from: 'a.jsonl' }),
      line('TaskCreated', 'a'),
      line('TaskSubmitted', 'a'),
      line('TaskCompleted', 'a', { reused: true, incomplete_lifecycle: true }),
      done('b'),
      done('d'),
      begun('f'),
    )
    const { pass, files } = await readViews(path)
    expect(files).toHaveLength(2)
    expect(counts.show(pass.counts)).toMatchObject({
      tasks: 6,
      submitted: 6,
      started: 6,
      completed: 3,
      failed: 1,
      canceled: 0,
      running: 1,
      open: 2,
    })
    expect(names.show(pass.states.names, { durations: true })).toMatchObject([
      { total: 6, running: 1, completed: 3, failed: 1 },
    ])
    expect(failures.show(pass.states.failures, { limit: 5 }).groups).toMatchObject([{ count: 1 }])
    const shown = lanes.show(pass.states.lanes, { limit: 100 })
    expect(shown.segments.map(({ task, outcome }) => `${task} ${outcome}`)).toEqual([
      '0 completed',
      '1 failed',
      '2 failed',
      '3 lost',
      '4 lost',
      '1 completed',
      '3 completed',
      '5 running',
    ])
  })

  it('chain: the snapshot of a previous file serves, and a missing one is named', async () => {
    const folder = tempFolder()
    const first = writeRecord(folder, 'a.jsonl', line('SessionStarted'), done('a'))
    await readViews(first, { snapshot: 'write' })
    const resumed = line('SessionStarted', null, { resumed_from: 'a.jsonl' })
    const path = writeRecord(folder, 'b.jsonl', resumed, done('b'))
    const views = await readViews(path)
    expect(views).toMatchObject({ bytesRead: statSync(path).size, missing: null })
    expect(views.pass.counts.totals.completed).toBe(2)
    rmSync(first)
    const alone = await readViews(path)
    expect(alone).toMatchObject({ missing: 'a.jsonl', files: [path] })
    expect(alone.pass.counts.totals.completed).toBe(1)
  })
})

/** One byte is wrong in each part of a snapshot whose path ends so. */
function damagedIn(view: Buffer, ...lastKeys: readonly string[]): Buffer {
  const damaged = Buffer.from(view)
  const headStart = view.indexOf('{"magic"')
  const { parts } = JSON.parse(view.toString('utf8', headStart, view.lastIndexOf('}') + 1)) as {
    parts: { path: string[]; offset: number }[]
  }
  for (const { path, offset } of parts) {
    if (lastKeys.includes(path.at(-1) ?? '')) damaged[offset] = (damaged[offset] ?? 0) ^ 1
  }
  return damaged
}

function replaced(view: Buffer, from: string, to: string): Buffer {
  const at = view.indexOf(from)
  expect(at).toBeGreaterThan(0)
  return Buffer.concat([view.subarray(0, at), Buffer.from(to), view.subarray(at + from.length)])
}
