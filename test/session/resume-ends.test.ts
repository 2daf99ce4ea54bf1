import { execFileSync } from 'node:child_process'
import { copyFileSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { type Clock, systemClock } from '../../src/foundation/clock.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { tempFolder } from '../checkpoint/open-writer.ts'
import { rejection } from './open-session.ts'
import { eventsIn, newCalls, note, noted, run } from './recorded-runs.ts'

describe('the ends of a resumed run', () => {
  it('resume: keepFailed leaves a task DONE that failed before it was done', async () => {
    const folder = tempFolder()
    const positive = (value: number): number => {
      if (value < 0) throw new RangeError('negative')
      return value
    }
    const make = (value: number) => [
      new ComputeTask({ uid: 'mended', function: positive, args: [value] }),
    ]
    const first = await run({ folder }, make(-1))
    const second = await run({ folder, resume: first.record }, make(2))
    const last = make(2)
    const keepFailed = { folder, resume: second.record, how: { keepFailed: true } }
    const { resumed } = await run(keepFailed, last)
    expect(resumed).toMatchObject({ done: 1, failed: 0 })
    expect(last.map(({ state, returnValue }) => [state, returnValue])).toEqual([['DONE', 2]])
  })

  it('resume: a refused one leaves no file, and does not say what was not made', async () => {
    const folder = tempFolder()
    const { record } = await run({ folder }, [noted('a', 1, 'a'), noted('b', 1, 'b')])
    const before = readdirSync(folder)
    const warnings: string[] = []
    const log = { warn: (code: string) => void warnings.push(code) }
    const changed = [noted('a', 2, 'a'), noted('b', 1, 'b')]
    const refused = run({ folder, resume: record, session: { log } }, changed)
    expect(await rejection(refused)).toMatchObject({ code: 'DefinitionChangedError' })
    expect(readdirSync(folder)).toEqual(before)
    expect(warnings).toEqual([])
    newCalls()
    await run({ folder, resume: record }, [noted('a', 1, 'a'), noted('b', 1, 'b')])
    expect(newCalls()).toEqual([])
  })

  it('row 57: a run has one continuation, whatever the clock says', async () => {
    const folder = tempFolder()
    const make = () => [noted('a', 1, 'a')]
    const first = await run({ folder }, make())
    const empty = await run({ folder, resume: first.record }, [])
    const clock: Clock = {
      now: () => systemClock.now() - 3600,
      monotonicMs: () => systemClock.monotonicMs(),
      after: (ms, callback, options) => systemClock.after(ms, callback, options),
      nextTurn: (callback) => systemClock.nextTurn(callback),
    }
    const early = { session: { clock } }
    const third = await run({ folder, resume: empty.record, ...early }, make())
    const continued = { code: 'CheckpointContinuedError', path: third.record }
    newCalls()
    for (const resume of [first.record, empty.record]) {
      expect(await rejection(run({ folder, resume }, make()))).toMatchObject(continued)
    }
    rmSync(third.record)
    const sibling = await run({ folder, resume: first.record }, make())
    expect(await rejection(run({ folder, resume: empty.record }, make()))).toMatchObject({
      ...continued,
      path: sibling.record,
      message:
        `${basename(sibling.record)} continues ${basename(first.record)} ` +
        `as well as ${basename(empty.record)}`,
    })
    expect(newCalls()).toEqual([])
  })

  it('resume: a record that has a task twice is damaged, and refused', async () => {
    const folder = tempFolder()
    const first = await run({ folder }, [noted('a', 1), noted('b', 2)])
    const created = (record: string) =>
      eventsIn(record).filter((one) => one.event_type === 'TaskCreated')
    const damage = (record: string, from: unknown, to: unknown): void => {
      const text = readFileSync(record, 'utf8')
      writeFileSync(record, text.replaceAll(JSON.stringify(from), JSON.stringify(to)))
    }
    const refusal = { code: 'CheckpointDamagedError', path: first.record }
    const [a, b] = created(first.record).map((one) => one.task_id)
    const sound = readFileSync(first.record)
    damage(first.record, b, a)
    expect(await rejection(run({ folder, resume: first.record }, []))).toMatchObject(refusal)
    writeFileSync(first.record, sound)
    const make = () => [noted('a', 1), noted('b', 2)]
    const second = await run({ folder, resume: first.record }, make())
    const origins = created(second.record).map(({ attributes }) => attributes['origin_uid'])
    expect(origins).toEqual([a, b])
    damage(second.record, b, a)
    expect(await rejection(run({ folder, resume: second.record }, make()))).toMatchObject({
      ...refusal,
      path: second.record,
    })
  })

  it('row 121: resume refuses a pipe at once', async () => {
    const folder = tempFolder()
    const pipe = join(folder, 'pipe.telemetry.jsonl')
    execFileSync('mkfifo', [pipe])
    expect(await rejection(run({ folder, resume: pipe }, []))).toMatchObject({
      name: 'CheckpointError',
      message: expect.stringMatching(/pipe\.telemetry\.jsonl: ENOTSUP: expected a regular file/),
    })
  })

  it('resume: the results of another run are not taken', async () => {
    const folder = tempFolder()
    const make = (value: number) => [noted('a', value, 'a')]
    const [one, other] = [await run({ folder }, make(1)), await run({ folder }, make(2))]
    const resultsOf = ({ record }: { record: string }): string =>
      record.replace('.telemetry.jsonl', '.results')
    copyFileSync(resultsOf(one), resultsOf(other))
    newCalls()
    const tasks = make(2)
    const { resumed } = await run({ folder, resume: other.record }, tasks)
    expect(resumed).toMatchObject({ done: 1, notKept: 1 })
    expect(tasks[0]?.returnValue).toBe(2)
    expect(newCalls()).toEqual(['a'])
  })

  it('resume: functions that captured other values never get the old ones', async () => {
    const folder = tempFolder()
    const captured = (seeds: readonly number[]) =>
      seeds.map((seed) => new ComputeTask({ function: () => noteCall(seed) }))
    const bound = (seeds: readonly number[]) =>
      seeds.map((seed) => new ComputeTask({ function: noteCall.bind(null, seed), args: [] }))
    const both = (seeds: readonly number[]) =>
      seeds.map(
        (seed) => new ComputeTask({ function: (by: number) => noteCall(seed * by), args: [1] }),
      )
    for (const make of [captured, bound, both]) {
      const first = await run({ folder }, make([1, 2, 3]))
      const tasks = make([3, 12])
      const second = await run({ folder, resume: first.record }, tasks)
      expect(tasks.map(({ returnValue }) => returnValue)).toEqual([3, 12])
      expect(second.resumed).toMatchObject({ done: 3, notKept: 3 })
      expect(second.warnings).toEqual([
        expect.stringMatching(/^(TasksNotKnown|ResultsNotKept): 3 /),
      ])
    }
  })

  it('resume: a task is known by its uid whatever its function captured', async () => {
    const folder = tempFolder()
    const make = () =>
      [1, 2].map((seed) => new ComputeTask({ uid: `s-${seed}`, function: () => noteCall(seed) }))
    const { record } = await run({ folder }, make())
    newCalls()
    const tasks = make().toReversed()
    await run({ folder, resume: record }, tasks)
    expect(tasks.map(({ returnValue }) => returnValue)).toEqual([2, 1])
    expect(newCalls()).toEqual([])
  })

  it('resume: tasks of two packages with equal modules are told apart', async () => {
    const folder = tempFolder()
    const functions = await Promise.all(
      [10, 20].map(async (factor) => {
        const home = join(folder, `package-${factor}`)
        mkdirSync(home)
        writeFileSync(join(home, 'package.json'), '{ "type": "module" }')
        writeFileSync(join(home, 'factor.js'), `export const factor = ${factor}`)
        const defining = new URL('../../src/tasks/define-task.ts', import.meta.url).href
        const source = `import { factor } from './factor.js'
import { defineTask } from '${defining}'
export const scale = defineTask(import.meta.url, function scale(x) { return x * factor })`
        const file = join(home, 'tasks.js')
        writeFileSync(file, source)
        const module = (await import(file)) as { readonly scale: (x: number) => number }
        return module.scale
      }),
    )
    const make = () => functions.map((body) => new ComputeTask({ function: body, args: [1] }))
    const { record } = await run({ folder }, make())
    const tasks = make().toReversed()
    const { resumed } = await run({ folder, resume: record }, tasks)
    expect(tasks.map(({ returnValue }) => returnValue)).toEqual([20, 10])
    expect(resumed).toMatchObject({ done: 2, notKept: 2 })
  })

  it('resume: fields of a list in the arguments count', async () => {
    const folder = tempFolder()
    const indexIn = (found: RegExpExecArray | null) => found?.index
    const make = (text: string) => [
      new ComputeTask({ uid: 'a', function: indexIn, args: [/b/.exec(text)] }),
    ]
    const { record } = await run({ folder }, make('b'))
    const changed = { code: 'DefinitionChangedError' }
    expect(await rejection(run({ folder, resume: record }, make('aab')))).toMatchObject(changed)
  })
})

function noteCall(value: number): number {
  note(String(value), null)
  return value
}
