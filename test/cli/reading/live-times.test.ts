import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, it, onTestFinished } from 'vitest'
import { acquireLock, lockPathOf } from '../../../src/checkpoint/lock.ts'
import { readViews } from '../../../src/record/record-views.ts'
import { eventually } from '../../eventually.ts'
import { eventsOf, type SyntheticRun } from '../../views/synthetic-run.ts'
import { runHere } from '../run-command.ts'
import { linesOf, recordFolder, writeRecord } from './record-file.ts'

const folder = recordFolder()
afterAll(() => folder.remove())

const readJson = async <T>(...args: readonly string[]): Promise<T> =>
  JSON.parse((await runHere(folder.path, [...args, '--json'])).stdout) as T

/** A session that said its last word 140 seconds ago: `runs` runs, `waits` waits for the core. */
const begun = Date.now() / 1000 - 150
const run: SyntheticRun = {
  nodes: [{ nodeId: 'n1', cores: 1 }],
  tasks: [
    { uid: 'runs', created: 0, start: 1 },
    { uid: 'waits', created: 10 },
  ],
  end: 10,
}
const told = eventsOf(run)
  .filter(({ event_type }) => event_type !== 'SessionEnded')
  .map((event) => ({ ...event, event_time: event.event_time + begun }))
writeFileSync(join(folder.path, 's-1.1790000000.telemetry.jsonl'), linesOf(told))

interface Status {
  readonly state: string
  readonly duration_seconds: number
  readonly running_tasks: readonly { readonly seconds: number }[]
}

interface Reported {
  readonly verdict: string
  readonly duration_seconds: number
  readonly slot_seconds: { readonly ran: number; readonly noTaskReady: number }
  readonly critical_path: { readonly seconds: number }
}

/** The data in the page of the report, and its timeline. */
async function readReport(): Promise<{ data: Reported; html: string }> {
  const { stdout: html } = await runHere(folder.path, ['report', '-o', '-'])
  const [, json = ''] = /<script type="application\/json"[^>]*>(.*?)<\/script>/s.exec(html) ?? []
  return { data: JSON.parse(json) as Reported, html }
}

interface Explained {
  readonly waiting_seconds: number | null
  readonly task: { readonly waited_seconds: number; readonly running_seconds: number | null }
}

describe('the times of a session between two of its events', () => {
  it('status, top, tasks, explain: go on with the clock while its process lives', async () => {
    const lock = acquireLock(lockPathOf(folder.path, 's-1'))
    try {
      const first = await readJson<Status>('top')
      expect(first.state).toBe('running')
      expect(first.duration_seconds).toBeGreaterThan(149)
      expect(first.running_tasks[0]?.seconds).toBeGreaterThan(148)
      await eventually(async () => {
        const later = await readJson<Status>('status')
        expect(later.duration_seconds).toBeGreaterThan(first.duration_seconds)
      })
      const { waiting_seconds: waiting, task } = await readJson<Explained>('explain', 'waits')
      expect(waiting).toBeGreaterThan(139)
      expect(task.waited_seconds).toBeGreaterThan(139)
      const runs = await readJson<Explained>('explain', 'runs')
      expect(runs.task.running_seconds).toBeGreaterThan(148)
      const listed = await runHere(folder.path, ['tasks'])
      expect(listed.stdout).toMatch(/runs +RUNNING +simulate +\S+ \S+ +\d m \d\d s so far/)
    } finally {
      lock.release()
    }
  })

  it('report: goes on with the clock while its process lives, then stands still', async () => {
    const lock = acquireLock(lockPathOf(folder.path, 's-1'))
    try {
      const { data, html } = await readReport()
      expect(data.verdict).toMatch(/^The run is in progress: after \d m \d\d s/)
      expect(data.duration_seconds).toBeGreaterThan(149)
      expect(data.slot_seconds.ran).toBeGreaterThan(148)
      expect(data.critical_path.seconds).toBeGreaterThan(148)
      expect(html).toMatch(/runs simulate: running, \d m \d\d s/)
    } finally {
      lock.release()
    }
    const { data, html } = await readReport()
    expect(data.verdict).toMatch(/^The run has no end: after 10.0 s/)
    expect(data.duration_seconds).toBeCloseTo(10, 3)
    expect(data.slot_seconds.ran).toBeCloseTo(9, 3)
    expect(html).toContain('runs simulate: running, 9.00 s')
  })

  it('status, top, tasks, explain: stand still once its process is gone', async () => {
    const over = await readJson<Status>('top')
    expect(over.state).toBe('interrupted')
    expect(over.duration_seconds).toBeCloseTo(10, 3)
    expect(over.running_tasks[0]?.seconds).toBeCloseTo(9, 3)
    const { task } = await readJson<Explained>('explain', 'waits')
    expect(task.waited_seconds).toBeCloseTo(0, 3)
    const runs = await readJson<Explained>('explain', 'runs')
    expect(runs.task.running_seconds).toBeNull()
  })
})

describe('snapshots beside a record', () => {
  it('journal compress: leaves no snapshot of what it has replaced', async () => {
    const place = join(folder.path, 'compressed')
    mkdirSync(place)
    const record = writeRecord(place, { ...run, end: 20 }, { sessionId: 's-2' })
    await readViews(record, { snapshot: 'write' })
    // Of a process that was killed while it wrote a snapshot; no process has such a number.
    writeFileSync(`${record}.view.2147483646.tmp`, 'half')
    writeFileSync(`${record}.zst.view`, 'of a copy that was there before')
    expect((await runHere(place, ['journal', 'compress'])).code).toBe(0)
    rmSync(record)
    expect(readdirSync(place)).toEqual(['s-2.1790000000.telemetry.jsonl.zst'])
  })

  it('a snapshot that is written removes the drafts of processes that are gone', async () => {
    const place = join(folder.path, 'drafts')
    mkdirSync(place)
    const record = writeRecord(place, { ...run, end: 20 }, { sessionId: 's-3' })
    const [gone, alive] = [`${record}.view.2147483646.tmp`, `${record}.view.${process.ppid}.tmp`]
    for (const file of [gone, alive]) writeFileSync(file, 'half')
    await readViews(record, { snapshot: 'write' })
    expect([existsSync(gone), existsSync(alive)]).toEqual([false, true])
  })
})

describe('a task that runs longer than others of its name', () => {
  it('status, explain: its time so far is the longest, and what is usual is said', async () => {
    const own = recordFolder()
    onTestFinished(() => own.remove())
    const quick = ['a', 'b', 'c'].map((uid, at) => ({ uid, start: at, end: at + 1 }))
    const events = eventsOf({ ...run, tasks: [...quick, { uid: 'slow', start: 3 }] })
      .filter(({ event_type }) => event_type !== 'SessionEnded')
      .map((event) => ({ ...event, event_time: event.event_time + begun }))
    writeFileSync(join(own.path, 's-1.1790000000.telemetry.jsonl'), linesOf(events))
    const read = async (...args: readonly string[]): Promise<string> =>
      (await runHere(own.path, args)).stdout
    const lock = acquireLock(lockPathOf(own.path, 's-1'))
    try {
      expect(await read('status')).toMatch(/\nsimulate .* 1\.00 s +\d+ m \d\d s +\d+ m \d\d s\n/)
      expect(await read('explain', 'slow')).toContain('  usual for its name: 1.00 s (median)\n')
      expect(await read('explain', 'a')).not.toContain('usual')
    } finally {
      lock.release()
    }
    expect(await read('status')).toMatch(/\nsimulate .* 1\.00 s +1\.00 s +\S+ s\n/)
  })
})
