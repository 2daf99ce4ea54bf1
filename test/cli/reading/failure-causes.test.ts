import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, expect, it } from 'vitest'
import { ComputeTask, ConcurrentBackend, Session, TaskFailedError } from '../../../src/index.ts'
import { runHere } from '../run-command.ts'
import { recordFolder } from './record-file.ts'

const folder = recordFolder()
afterAll(() => folder.remove())

const read = async (...args: readonly string[]): Promise<string> =>
  (await runHere(folder.path, args)).stdout

function failBoth(): never {
  const first = new RangeError('first\nof two lines', { cause: 'a word' })
  throw new AggregateError([first, new TypeError('second')], 'both', {
    cause: new Error('the disk is <full>'),
  })
}

async function runFailing(from?: string): Promise<{ path: string; task: ComputeTask }> {
  const known = new Set(readdirSync(folder.path))
  const session = new Session([await ConcurrentBackend.create({ workers: 1 })])
  if (from !== undefined) await session.resume(from, { keepFailed: true })
  await session.startTelemetry({ checkpointPath: folder.path })
  const task = new ComputeTask({ function: failBoth, uid: 'a' })
  await session.submitTasks([task])
  await session.waitTasks([task])
  await session.close()
  const isNew = (name: string): boolean => name.endsWith('.jsonl') && !known.has(name)
  return { path: join(folder.path, readdirSync(folder.path).find(isNew) ?? ''), task }
}

const causes = [
  { path: 'cause', error_type: 'Error', message: 'the disk is <full>' },
  { path: 'errors[0]', error_type: 'RangeError', message: 'first\nof two lines' },
  { path: 'errors[1]', error_type: 'TypeError', message: 'second' },
  { path: 'errors[0].cause', error_type: 'unknown', message: 'a word' },
]

it('failures, explain, report: the errors within an error are shown', async () => {
  const { path } = await runFailing()
  for (const text of [await read('failures', path), await read('explain', 'a', path)]) {
    expect(text).toContain('AggregateError "both"')
    expect(text).toMatch(/\n {2}cause: Error "the disk is <full>"\n {4}at failBoth \(/)
    expect(text).toContain('\n  errors[0]: RangeError "first"\n    first\n    of two lines\n    at')
    expect(text).toContain('\n  errors[1]: TypeError "second"\n')
    expect(text).toContain('\n  errors[0].cause: unknown "a word"\n')
  }
  const { groups } = JSON.parse(await read('failures', path, '--json')) as {
    groups: { example: { causes: unknown } }[]
  }
  expect(groups[0]?.example.causes).toMatchObject(causes)
  const { failure } = JSON.parse(await read('explain', 'a', path, '--json')) as { failure: object }
  expect(failure).toMatchObject({ causes })
  const page = await read('report', path, '-o', '-')
  expect(page).toMatch(/<code>cause<\/code>: .*Error.*the disk is &lt;full&gt;/)
})

it('resume: a failure that is kept has the errors within it', async () => {
  const { path } = await runFailing()
  const { path: later, task } = await runFailing(path)
  expect(readFileSync(later, 'utf8')).not.toContain('"TaskStarted"')
  const error = TaskFailedError.isInstance(task.error) ? task.error.cause : null
  expect(error).toMatchObject({
    message: 'both',
    cause: { message: 'the disk is <full>' },
    errors: [{ message: 'first\nof two lines' }, { message: 'second' }],
  })
  const { failure } = JSON.parse(await read('explain', 'a', later, '--json')) as { failure: object }
  expect(failure).toMatchObject({ causes })
})
