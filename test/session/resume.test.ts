import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { ConcurrentBackend } from '../../src/backends/local/concurrent-backend.ts'
import { Session } from '../../src/session/session.ts'
import { readViews } from '../../src/record/record-views.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { counts } from '../../src/views/panels/counts.ts'
import { tempFolder } from '../checkpoint/open-writer.ts'
import { rejection } from './open-session.ts'
import { eventsIn, eventsOf, newCalls, note, noted, run } from './recorded-runs.ts'

beforeEach(() => void newCalls())

describe('resume of a session', () => {
  it('resume: what is DONE is not run again and has its value, and the rest runs', async () => {
    const folder = tempFolder()
    const values = [new Map([[1, { a: new Date(5) }]]), undefined, Buffer.from('abc'), Number.NaN]
    const make = (error: boolean): ComputeTask<unknown>[] => [
      ...values.map((value, at) => noted(`v${at}`, value, `value-${at}`)),
      noted('unsteady', error ? new RangeError('not yet') : 'now', 'unsteady'),
    ]
    const first = await run({ folder }, make(true))
    expect(newCalls()).toHaveLength(5)
    const again = make(false)
    const second = await run({ folder, resume: first.record }, again)
    expect(newCalls()).toEqual(['unsteady'])
    expect(again.map(({ state }) => state)).toEqual(Array(5).fill('DONE'))
    expect(again.map(({ returnValue }) => returnValue)).toEqual([...values, 'now'])
    expect(second.resumed).toEqual({
      sessionId: first.id,
      files: [first.record],
      done: 4,
      failed: 1,
      canceled: 0,
      unfinished: 0,
      notKept: 0,
      unnamed: 0,
    })
    expect(second.warnings).toEqual([])
    expect(second.id).toBe(first.id)
    expect(dirname(second.record)).toBe(folder)
    expect(eventsIn(second.record)[0]?.attributes['resumed_from']).toBe(basename(first.record))

    const [created, submitted, reused, completed, ...more] = eventsOf(second.record, 'value-0')
    expect(more).toEqual([])
    expect(created).toMatchObject({ event_type: 'TaskCreated', session_id: first.id })
    expect(submitted).toMatchObject({ event_type: 'TaskSubmitted', backend: 'concurrent' })
    expect(reused).toMatchObject({
      event_type: 'tutti.ResultReused',
      backend: 'concurrent',
      key: 'value-0',
      source: 'record',
    })
    expect(completed).toMatchObject({
      event_type: 'TaskCompleted',
      duration_seconds: 0,
      attributes: { incomplete_lifecycle: true, reused: true },
    })
  })

  it('resume: the third run of a chain finds what the first and the second have done', async () => {
    const folder = tempFolder()
    const first = await run({ folder }, [noted('a', 1, 'a')])
    const second = await run({ folder, resume: first.record }, [
      noted('a', 1, 'a'),
      noted('b', 2, 'b'),
    ])
    expect(newCalls()).toEqual(['a', 'b'])
    const tasks = [noted('a', 1, 'a'), noted('b', 2, 'b'), noted('c', 3, 'c')]
    const third = await run({ folder, resume: second.record }, tasks)
    expect(newCalls()).toEqual(['c'])
    expect(tasks.map(({ returnValue }) => returnValue)).toEqual([1, 2, 3])
    expect(third.resumed).toMatchObject({ done: 2, files: [first.record, second.record] })
  })

  it('resume: counts the ends of a chain as the views do: the first DONE of a uid', async () => {
    const folder = tempFolder()
    const failing = (uid: string) => noted(uid, new Error('no'), uid)
    const first = await run({ folder }, [noted('a', 1, 'a'), failing('b'), failing('c')])
    const tasks = [noted('a', 1, 'a'), noted('b', 2, 'b'), failing('c')]
    const { record } = await run({ folder, resume: first.record }, tasks)
    const { pass } = await readViews(record)
    expect(counts.show(pass.counts)).toMatchObject({ tasks: 3, completed: 2, failed: 1 })
    const { resumed } = await run({ folder, resume: record }, [])
    expect(resumed).toMatchObject({ done: 2, failed: 1, canceled: 0, unfinished: 0 })
  })

  it('resume: tasks with generated uids are known by what they are, in any order', async () => {
    const folder = tempFolder()
    const first = await run({ folder }, [
      ...['a', 'b', 'c'].map((name) => noted(name, name)),
      noted('same', 'same'),
      noted('same', 'same'),
    ])
    expect(newCalls()).toHaveLength(5)
    const names = ['same', 'c', 'b', 'new', 'same', 'a', 'same']
    const tasks = names.map((name) => noted(name, name))
    const second = await run({ folder, resume: first.record }, tasks)
    expect(newCalls()).toEqual(['new', 'same'])
    expect(tasks.map(({ returnValue }) => returnValue)).toEqual(names)
    expect(eventsIn(second.record).filter(({ attributes }) => attributes['reused'])).toHaveLength(5)
  })

  it('row 57: a DONE task that has changed is refused, kept or run again', async () => {
    const folder = tempFolder()
    const make = (value: number) => [noted('a', value, 'a'), noted('b', 1, 'b'), noted('c', value)]
    const { record } = await run({ folder }, make(1))
    newCalls()
    const error = await rejection(run({ folder, resume: record }, make(2)))
    expect(error).toMatchObject({
      code: 'DefinitionChangedError',
      message:
        '1 task is DONE in the record and has changed since: input of 1\n' +
        'tasks[0].uid: "a" (note) is DONE in the record, but its input changed since',
      hint: expect.stringContaining('keep') as string,
    })
    expect(newCalls()).toEqual([])
    const kept = make(2)
    const second = await run({ folder, resume: record, how: { changed: 'keep' } }, kept)
    expect(newCalls()).toEqual(['c'])
    expect(kept.map(({ returnValue }) => returnValue)).toEqual([1, 1, 2])
    // A kept value is not refused again, and still belongs to another definition.
    const third = await run({ folder, resume: second.record }, make(2))
    expect(newCalls()).toEqual([])
    const rerun = make(2)
    const how = { changed: 'rerun' } as const
    const fourth = await run({ folder, resume: third.record, how }, rerun)
    expect(newCalls()).toEqual(['a'])
    expect(rerun.map(({ returnValue }) => returnValue)).toEqual([2, 1, 2])
    const fifth = await run({ folder, resume: fourth.record, how }, make(2))
    expect(newCalls()).toEqual([])
    expect(await rejection(run({ folder, resume: fifth.record }, make(1)))).toMatchObject({
      code: 'DefinitionChangedError',
    })
  })

  it('resume: a record that a newer file continues is refused until that is gone', async () => {
    const folder = tempFolder()
    const make = () => [noted('a', 1, 'a')]
    const first = await run({ folder }, make())
    const second = await run({ folder, resume: first.record }, make())
    const third = await run({ folder, resume: second.record }, make())
    newCalls()
    const last = basename(third.record)
    expect(await rejection(run({ folder, resume: first.record }, make()))).toMatchObject({
      name: 'CheckpointError',
      code: 'CheckpointContinuedError',
      message: `${first.record} was continued by ${last}`,
      path: third.record,
      hint: `Resume the last file of the run: ${third.record}`,
    })
    expect(await rejection(run({ folder, resume: second.record }, make()))).toMatchObject({
      message: `${second.record} was continued by ${last}`,
    })
    expect(readdirSync(folder).filter((name) => name.endsWith('.jsonl'))).toHaveLength(3)
    for (const file of [third.record, third.record.replace('.telemetry.jsonl', '.results')]) {
      rmSync(file)
    }
    const again = await run({ folder, resume: second.record }, make())
    expect(again.resumed).toMatchObject({ done: 1, files: [first.record, second.record] })
    expect(newCalls()).toEqual([])
    // A process that was killed before its first line was whole has continued nothing.
    writeFileSync(again.record, '{"section":"event","event_type":"SessionSt')
    await run({ folder, resume: second.record }, make())
    expect(newCalls()).toEqual([])
  })

  it('resume: what the program no longer makes is listed and not run', async () => {
    const folder = tempFolder()
    const { record } = await run({ folder }, [noted('a', 1, 'a'), noted('b', 1, 'b')])
    newCalls()
    const { warnings } = await run({ folder, resume: record }, [noted('b', 1, 'b')])
    expect(newCalls()).toEqual([])
    expect(warnings).toEqual([
      'TasksNotMade: 1 task of the record was not created again and did not run: a',
    ])
  })

  it('resume: values that were not kept are counted before anything starts', async () => {
    const folder = tempFolder()
    const values = [1, new URL('http://x'), 'x'.repeat(2000)]
    const make = () => values.map((value, at) => noted(`v${at}`, value, `v${at}`))
    const telemetry = { keepResultsMb: 0.001 }
    const { record } = await run({ folder, telemetry }, make())
    newCalls()
    const second = await run({ folder, resume: record }, make())
    expect(newCalls()).toEqual(['v1', 'v2'])
    expect(second.resumed).toMatchObject({ done: 3, notKept: 2 })
    expect(second.warnings).toEqual([
      'ResultsNotKept: 2 tasks are DONE in the record, but without a kept result; they run again',
    ])
  })

  it('resume: with keepFailed a task that FAILED stays so', async () => {
    const folder = tempFolder()
    const make = () => [
      noted('bad', new RangeError('seed 17'), 'bad'),
      new ComputeTask({ executable: 'sh', arguments: ['-c', 'echo no >&2; exit 3'], uid: 'sh' }),
    ]
    const { record } = await run({ folder }, make())
    newCalls()
    const tasks = make()
    const kept = await run({ folder, resume: record, how: { keepFailed: true } }, tasks)
    expect(newCalls()).toEqual([])
    expect(tasks.map(({ state }) => state)).toEqual(['FAILED', 'FAILED'])
    expect(tasks[0]?.error?.cause).toMatchObject({ name: 'RangeError', message: 'seed 17' })
    expect(tasks[1]?.error).toMatchObject({ name: 'ExecutableFailedError', exitCode: 3 })
    const [before, again] = [record, kept.record].map((file) => eventsOf(file, 'sh').at(-1))
    expect(again).toMatchObject({ event_type: 'TaskFailed', error_type: before?.['error_type'] })
    const told = ['exit_code', 'stderr_tail', 'error_stack', 'error_message']
    for (const key of told) expect(again?.attributes[key]).toEqual(before?.attributes[key])
    expect(again?.attributes).toMatchObject({ exit_code: 3, stderr_tail: 'no\n' })
    await run({ folder, resume: kept.record }, make())
    expect(newCalls()).toEqual(['bad'])
  })

  it('resume: an id of its own that is not the one of the record is refused', async () => {
    const folder = tempFolder()
    const { record } = await run({ folder, session: { id: 'mine' } }, [noted('a', 1, 'a')])
    const error = await rejection(run({ folder, resume: record, session: { id: 'other' } }, []))
    expect(error).toMatchObject({
      name: 'StateError',
      message: 'the session has the id "other", but the record has "mine"',
    })
    const { id } = await run({ folder, resume: record, session: { id: 'mine' } }, [])
    expect(id).toBe('mine')
  })

  it('resume: comes first, once, and to a record that is there', async () => {
    const folder = tempFolder()
    const { record } = await run({ folder }, [noted('a', 1, 'a')])
    newCalls()
    const create = async (): Promise<Session> => {
      const session = new Session([await ConcurrentBackend.create({ workers: 1 })])
      onTestFinished(() => session.close())
      return session
    }
    const comesFirst = 'resume() must be called before startTelemetry() and the first submission'
    const observed = await create()
    await observed.startTelemetry()
    await expect(observed.resume(record)).rejects.toThrow(comesFirst)
    const used = await create()
    await used.submitTasks([noted('x')])
    await expect(used.resume(record)).rejects.toThrow(comesFirst)
    const session = await create()
    await expect(session.resume(join(folder, 'missing'))).rejects.toThrow('Cannot read')
    await expect(session.resume(record, { changed: 'no' } as never)).rejects.toThrow('`changed`')
    const misspelt = session.resume(record, { keepFail: true } as never)
    await expect(misspelt).rejects.toThrow('did you mean "keepFailed"?')
    const resuming = session.resume(record)
    await expect(session.submitTasks([noted('x')])).rejects.toThrow('resume() has not finished')
    await expect(session.startTelemetry()).rejects.toThrow('resume() has not finished')
    await resuming
    await expect(session.resume(record)).rejects.toThrow('already resumes a record')
    const elsewhere = { checkpointPath: tempFolder() }
    await expect(session.startTelemetry(elsewhere)).rejects.toThrow('the resumed record is in')
  })

  it('row 57: two sessions cannot continue one record at once', async () => {
    const folder = tempFolder()
    const { record } = await run({ folder }, [noted('a', 1, 'a')])
    newCalls()
    const first = new Session([await ConcurrentBackend.create({ workers: 1 })])
    onTestFinished(() => first.close())
    await first.resume(record)
    const locked = { code: 'CheckpointLockedError', pid: process.pid }
    expect(await rejection(run({ folder, resume: record }, []))).toMatchObject(locked)
    const { checkpointFile } = await first.startTelemetry({ keepResults: true })
    expect(await rejection(run({ folder, resume: record }, []))).toMatchObject(locked)
    await first.close()
    const tasks = [noted('a', 1, 'a')]
    await run({ folder, resume: checkpointFile ?? '' }, tasks)
    expect(newCalls()).toEqual([])
    expect(readdirSync(folder).filter((name) => name.includes('lock'))).toEqual([])
  })

  it('row 56: a damaged line in the middle and a missing previous file are refused', async () => {
    const folder = tempFolder()
    const first = await run({ folder }, [noted('a', 1, 'a'), noted('b', 2, 'b')])
    const second = await run({ folder, resume: first.record }, [noted('a', 1, 'a')])
    newCalls()
    const lines = readFileSync(first.record, 'utf8').split('\n')
    const offset = Buffer.byteLength(lines.slice(0, 3).join('\n')) + 1
    const damaged = lines.with(3, (lines[3] ?? '').replace('"section"', '"section'))
    const file = join(folder, 'damaged.telemetry.jsonl')
    writeFileSync(file, damaged.join('\n'))
    expect(await rejection(run({ folder, resume: file }, []))).toMatchObject({
      code: 'CheckpointDamagedError',
      message: `${file} is damaged: line 4, byte ${offset.toLocaleString('en')}: invalid JSON`,
      hint: expect.stringContaining('tutti journal repair') as string,
    })
    const elsewhere = join(tempFolder(), basename(second.record))
    writeFileSync(elsewhere, readFileSync(second.record))
    expect(
      await rejection(run({ folder: dirname(elsewhere), resume: elsewhere }, [])),
    ).toMatchObject({ code: 'CheckpointMissingError', path: basename(first.record) })
    expect(newCalls()).toEqual([])
  })

  it('resume: only the user may read what is kept, and only if that was asked for', async () => {
    const folder = tempFolder()
    const { record } = await run({ folder }, [noted('a', 1, 'a')])
    const results = record.replace('.telemetry.jsonl', '.results')
    expect(statSync(results).mode & 0o777).toBe(0o600)
    const plain = await run({ folder, telemetry: { keepResults: false } }, [noted('a', 1, 'a')])
    expect(existsSync(plain.record.replace('.telemetry.jsonl', '.results'))).toBe(false)
  })

  it('resume: attempts are numbered on from the record, and retries begin anew', async () => {
    const folder = tempFolder()
    const make = () => new ComputeTask({ ...fails, retries: 1 })
    const fails = { function: note, args: ['bad', new Error('no')], uid: 'bad' } as const
    const first = await run({ folder }, [make()])
    const second = await run({ folder, resume: first.record }, [make()])
    expect(newCalls()).toHaveLength(4)
    const attempts = (record: string): unknown[] =>
      eventsOf(record, 'bad').flatMap(({ event_type, attributes, attempt }) => {
        return ['TaskStarted', 'TaskFailed'].includes(event_type) ? attributes['attempt'] : attempt
      })
    const numbers = (record: string) => attempts(record).filter((one) => one !== undefined)
    expect(numbers(first.record)).toEqual([1, 1, 2, 2])
    expect(numbers(second.record)).toEqual([3, 3, 4, 4])
  })

  it('resume: a retry begins before the tasks that the earlier session has left', async () => {
    const folder = tempFolder()
    const log = join(folder, 'log')
    const make = (name: string): ComputeTask =>
      new ComputeTask({
        uid: name,
        executable: 'sh',
        arguments: ['-c', `echo ${name} >> '${log}'; test -e '${join(folder, name)}'`],
        retries: 1,
      })
    const names = ['bad', 'a', 'b']
    const options = { folder, backend: { maxProcesses: 1 } }
    const first = await run(options, names.map(make))
    for (const name of ['a', 'b']) writeFileSync(join(folder, name), '')
    writeFileSync(log, '')
    await run({ ...options, resume: first.record }, names.map(make))
    expect(readFileSync(log, 'utf8')).toBe('bad\nbad\na\nb\n')
  })
})
