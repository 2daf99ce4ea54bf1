import { mkdtemp, readFile, realpath, rm, truncate, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { compressRecord } from '../../src/checkpoint/compressed.ts'
import { systemFiles } from '../../src/checkpoint/files.ts'
import { recordIdOf, ResultsFile, resultsPathOf } from '../../src/checkpoint/results-file.ts'
import { verifyJournal } from '../../src/cli/journal.ts'
import { createOutput, type OutputForm } from '../../src/cli/output.ts'

let folder = ''
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tutti-journal-'))
})
afterAll(async () => {
  await rm(folder, { recursive: true })
})

const ids = { trace_id: 'a'.repeat(32), span_id: 'b'.repeat(16) }

let made = 0
/** Lines of equal content have ids of their own, all of one length. */
const event = (event_type: string, task_id: string | null = null, attributes = {}): string =>
  `${JSON.stringify({
    section: 'event',
    event_id: String(made++).padStart(8, '0'),
    event_type,
    event_time: 1,
    emit_time: 1,
    session_id: 's-1',
    backend: 'local',
    task_id,
    node_id: null,
    attributes,
    ...ids,
  })}\n`

const zeros = `${JSON.stringify({
  section: 'metric',
  checkpoint_time: 1,
  tasks_submitted: 0,
  tasks_started: 0,
  tasks_completed: 0,
  tasks_failed: 0,
  tasks_canceled: 0,
  tasks_running: 0,
})}\n`

async function verify(form: OutputForm, content: string) {
  const path = join(folder, 'journal')
  await writeFile(path, content)
  return await verifyAt(path, form)
}

async function verifyAt(path: string, form: OutputForm = 'text') {
  let text = ''
  const stdout = { write: (part: string) => (text += part) }
  const code = await verifyJournal(path, createOutput(form, stdout, stdout))
  return { code, text }
}

/** Writes next to the record `first`. */
async function keepResult(uid: string): Promise<void> {
  const record = join(folder, 'first')
  await rm(resultsPathOf(record), { force: true })
  const log = { warn() {} }
  const durability = 'os'
  const parts = { record, id: recordIdOf(ids) }
  const results = new ResultsFile({ ...parts, files: systemFiles, log, maxBytes: 9999, durability })
  results.append(uid, 'value')
  await results.close()
}

const noRecord = '  there is no event: this is not the record of a run\n'
const started = event('SessionStarted')

describe('journal verify', () => {
  const cases: readonly [string, string, number, string][] = [
    ['an empty file', '', 1, `0 tasks, 0 events, 1 problem\n${noRecord}`],
    [
      'a file without a line',
      'aaaa',
      1,
      `0 tasks, 0 events, 1 problem, torn tail at line 1, byte 0\n${noRecord}`,
    ],
    [
      'a session that has not ended',
      started + event('TaskCreated', 'a'),
      0,
      '1 task, 2 events, order ok, the session has not ended, 1 task unfinished\n',
    ],
    [
      'a session that has ended',
      started + event('SessionEnded') + zeros,
      0,
      '0 tasks, 2 events, order ok, 1 terminal each, counters agree\n',
    ],
  ]
  it.each(cases)('journal verify: %s', async (_name, content, code, text) => {
    const expected = text.replace(join(tmpdir(), 'FOLDER'), join(folder, 'journal'))
    expect(await verify('text', content)).toEqual({ code, text: expected })
  })

  it('journal verify: a compressed copy that was cut is not sound', async () => {
    const path = join(folder, 'cut.1.telemetry.jsonl')
    const lines = Array.from({ length: 300 }, (_, at) => event('TaskCreated', `t-${at}`)).join('')
    await writeFile(path, started + lines)
    const { path: copy, bytes } = await compressRecord(path, { frameBytes: 20_000 })
    const check = async (): Promise<{ code: number; text: string }> => await verifyAt(copy)
    expect(await check()).toEqual({ code: 0, text: expect.not.stringContaining('seek table') })
    const magic = Buffer.from([0x28, 0xb5, 0x2f, 0xfd])
    const second = (await readFile(copy)).indexOf(magic, 4)
    await truncate(copy, Math.floor(bytes / 2))
    const cut = await check()
    expect([cut.code, cut.text]).toEqual([1, expect.stringContaining('ends within a frame')])
    // Between two frames, nothing else shows that something is missing.
    await truncate(copy, second)
    expect(await check()).toEqual({ code: 0, text: expect.stringContaining('no seek table') })
  })

  it('journal verify: counts all problems, also those it does not keep', async () => {
    const many = Array.from({ length: 301 }, () => event('TaskCreated', 'a')).join('')
    const { code, text } = await verify('text', started + 'bad\n'.repeat(200) + many)
    expect(code).toBe(1)
    expect(text).toContain('1 task, 302 events, 500 problems, ')
    expect(text).toMatch(/\n {2}and 490 more\n.*npx tutti journal repair \S+\n$/)
    expect(text.split('\n')).toHaveLength(14)
  })

  it('journal verify: an event that is there twice is told with both lines', async () => {
    const progress = event('tutti.TaskProgress', 'a')
    const between = `bad\n\n${zeros}${event('TaskCreated', 'b')}`
    const content = started + event('TaskCreated', 'a') + progress + between + progress
    const { code, text } = await verify('json', content)
    expect(code).toBe(1)
    expect(JSON.parse(text)).toMatchObject({
      events: 5,
      problems: [
        `line 4, byte ${content.indexOf('bad')}: invalid JSON`,
        'line 8: tutti.TaskProgress has the event_id of line 3',
      ],
      problem_count: 2,
      bad_lines: 1,
    })
  })

  it('journal verify: repeated events are found within 65,536, also by long ids', async () => {
    const long = (id: string): string => event('x.Note').replace(/\d{8}/, id.repeat(5000))
    const many = Array.from({ length: 65_534 }, () => event('x.Note')).join('')
    const content = long('a') + long('b') + many + long('a')
    const { text } = await verify('json', started + content)
    expect(JSON.parse(text)).toMatchObject({
      problems: ['line 65538: x.Note has the event_id of line 2'],
      problem_count: 1,
    })
  })

  it('journal verify: JSON has snake_case keys and the positions of bad lines', async () => {
    const { text } = await verify('json', `${started}bad\n`)
    expect(JSON.parse(text)).toEqual({
      sound: false,
      tasks: 0,
      events: 1,
      unfinished: 0,
      has_ended: false,
      problems: [`line 2, byte ${started.length}: invalid JSON`],
      problem_count: 1,
      bad_lines: 1,
      torn: null,
      unknown: 0,
      files: [await realpath(join(folder, 'journal'))],
      missing_previous_file: null,
      missing_forerunner: null,
      seek_table: null,
      notes: [],
    })
  })

  const lifeTypes = ['TaskCreated', 'TaskSubmitted', 'TaskStarted', 'TaskCompleted']
  const life = (uid: string): string => lifeTypes.map((type) => event(type, uid)).join('')
  const reused = (uid: string): string =>
    event('TaskCreated', uid) +
    event('TaskSubmitted', uid) +
    event('tutti.ResultReused', uid) +
    event('TaskCompleted', uid, { reused: true, incomplete_lifecycle: true })
  const resumed = event('SessionStarted', null, { resumed_from: 'first' })

  it('journal verify: the files of a resumed run are one run', async () => {
    await writeFile(join(folder, 'first'), started + life('a') + event('TaskCreated', 'b'))
    const { code, text } = await verify('text', resumed + reused('a') + life('b'))
    expect(text).toBe(
      '2 tasks, 15 events, order ok, the session has not ended, 0 tasks unfinished, ' +
        '2 files of one run\n',
    )
    expect(code).toBe(0)
  })

  it('journal verify: files of two sessions are not one run', async () => {
    await writeFile(join(folder, 'first'), started.replace('"s-1"', '"s-2"'))
    const { code, text } = await verify('text', resumed)
    expect(text).toMatch(/journal is of session s-1, not s-2/)
    expect(code).toBe(1)
  })

  it('journal verify: a task that is DONE and runs again in a later session', async () => {
    await writeFile(join(folder, 'first'), `${started + life('a')}bad\n`)
    const unkept = await verify('json', resumed + life('a'))
    expect(JSON.parse(unkept.text)).toMatchObject({ problem_count: 1, bad_lines: 0 })
    await keepResult('a')
    const { code, text } = await verify('text', resumed + life('a'))
    expect(code).toBe(1)
    expect(text.split('\n').slice(1)).toEqual([
      `  first: line 6, byte ${(started + life('a')).length}: invalid JSON`,
      '  a: TaskStarted although an earlier session has it DONE',
      '  a: TaskCompleted although an earlier session has it DONE',
      `copy the readable lines with: npx tutti journal repair ${join(folder, 'first')}`,
      '',
    ])
  })

  it('journal verify: another task of the same uid may run in a later session', async () => {
    const created = (uid: string, definition_hash: string): string =>
      event('TaskCreated', uid, { definition_hash })
    const ran = (uid: string): string => life(uid).slice(event('TaskCreated', uid).length)
    await writeFile(join(folder, 'first'), started + created('a', '1') + ran('a'))
    await keepResult('a')
    const changed = await verify('text', resumed + created('a', '2') + ran('a'))
    expect(changed.code).toBe(0)
    const same = await verify('text', resumed + created('a', '1') + ran('a'))
    expect(same.code).toBe(1)
  })

  it('journal verify: a missing previous file is named, and the rest is checked', async () => {
    await rm(join(folder, 'first'), { force: true })
    const { code, text } = await verify('text', resumed + life('a'))
    expect(text).toContain('1 task, 5 events, 1 problem, the session has not ended')
    expect(text).toContain('\n  the earlier file first of the run is missing\n')
    expect(code).toBe(1)
    const json = await verify('json', resumed + life('a'))
    expect(JSON.parse(json.text)).toMatchObject({
      sound: false,
      problems: ['the earlier file first of the run is missing'],
      missing_previous_file: 'first',
      missing_forerunner: 'first',
    })
  })

  it('journal verify: results that are missing, torn or of another record are noted', async () => {
    const path = join(folder, 's-1.1.telemetry.jsonl')
    const done = event('TaskCompleted', 'a', { result: '1' })
    await writeFile(path, event('SessionStarted') + event('TaskCreated', 'a') + done)
    const notesOf = async (): Promise<unknown> => {
      let text = ''
      const stream = { write: (part: string) => ((text += part), true) }
      expect(await verifyJournal(path, createOutput('json', stream, stream))).toBe(0)
      return (JSON.parse(text) as { notes: unknown }).notes
    }
    const lost = 'its results are lost, and a resume runs their tasks again'
    expect(await notesOf()).toEqual([`s-1.1.results is missing: ${lost}`])
    const keep = async (id: string): Promise<void> => {
      await rm(resultsPathOf(path), { force: true })
      const log = { warn() {} }
      const options = { record: path, id, files: systemFiles, log, maxBytes: 1000 }
      const file = new ResultsFile({ ...options, durability: 'os' })
      file.append('a', 1)
      await file.close()
    }
    await keep(recordIdOf(ids))
    expect(await notesOf()).toEqual([])
    await truncate(resultsPathOf(path), (await readFile(resultsPathOf(path))).length - 3)
    expect(await notesOf()).toEqual([
      expect.stringMatching(/^s-1\.1\.results is torn or damaged from byte \d+ on: /) as string,
    ])
    await keep('another')
    expect(await notesOf()).toEqual([`s-1.1.results is of another record: ${lost}`])
  })

  it('row 91: journal verify escapes control characters of the file', async () => {
    const uid = '\u001B[2Ja\nb\u009B'
    const created = [event('TaskCreated', uid), event('TaskCreated', uid)]
    const { text } = await verify('text', started + created.join(''))
    expect(text).toContain(
      String.raw`  \u001b[2Ja\u000ab\u009b: TaskCreated comes after TaskCreated` + '\n',
    )
  })
})
