import { describe, expect, it } from 'vitest'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { tempFolder } from '../checkpoint/open-writer.ts'
import { run } from './recorded-runs.ts'

describe('the ends of a resumed run', () => {
  it('resume: keepFailed leaves a task DONE that failed before or after it was done', async () => {
    const folder = tempFolder()
    const positive = (value: number): number => {
      if (value < 0) throw new RangeError('negative')
      return value
    }
    const task = (uid: string, value: number) =>
      new ComputeTask({ uid, function: positive, args: [value] })
    const first = await run({ folder }, [task('mended', -1), task('again', 1)])
    const how = { changed: 'rerun' } as const
    const tasks = [task('mended', 2), task('again', -1)]
    const second = await run({ folder, resume: first.record, how }, tasks)
    expect(tasks.map(({ state }) => state)).toEqual(['DONE', 'FAILED'])
    const last = [task('mended', 2), task('again', 1)]
    const keepFailed = { folder, resume: second.record, how: { keepFailed: true } }
    const { resumed } = await run(keepFailed, last)
    expect(resumed).toMatchObject({ done: 2, failed: 0 })
    expect(last.map(({ state, returnValue }) => [state, returnValue])).toEqual([
      ['DONE', 2],
      ['DONE', 1],
    ])
  })
})
