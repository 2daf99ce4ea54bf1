import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { ConcurrentBackend } from '../../../src/backends/local/concurrent-backend.ts'
import { ExecutableFailedError } from '../../../src/foundation/task-errors.ts'
import type { Log } from '../../../src/foundation/log.ts'
import {
  WorkflowEngine,
  type WorkflowEngineOptions,
} from '../../../src/workflow/workflow-engine.ts'
import { rejection, turns, typesOf } from '../../session/open-session.ts'
import { openEngine } from '../open-engine.ts'

function createFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-memo-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

const openLocal = async (options: Partial<WorkflowEngineOptions>): Promise<WorkflowEngine> =>
  WorkflowEngine.create({ backend: await ConcurrentBackend.create(), ...options })

/** Counts its runs outside of itself, so that its source text stays the same. */
function counted() {
  const runs: unknown[] = []
  const body = (given: unknown): unknown => {
    runs.push(given)
    return { given, at: new Date(0) }
  }
  return { runs, body }
}

describe('a task with `cache`', () => {
  it('cache: equal calls run once, also in a later engine, with tutti.ResultReused', async () => {
    const cacheDir = createFolder()
    const { runs, body } = counted()
    const results: unknown[] = []
    for (const given of [
      { b: 2, a: [1] },
      { a: [1], b: 2 },
      { a: [1], b: 3 },
    ]) {
      await using flow = await openLocal({ cacheDir })
      results.push(await flow.functionTask(body, { name: 'f', cache: true })(given))
    }
    expect(runs).toEqual([
      { b: 2, a: [1] },
      { a: [1], b: 3 },
    ])
    expect(results[1]).toEqual({ given: { b: 2, a: [1] }, at: new Date(0) })
  })

  it('cache: a stored result that cannot be read is a warning, and the task runs', async () => {
    const cacheDir = createFolder()
    const { runs, body } = counted()
    for (let at = 0; at < 2; at++) {
      const warnings: string[] = []
      const log = { warn: (code: string) => void warnings.push(code) }
      await using flow = await openLocal({ cacheDir, log })
      await flow.functionTask(body, { name: 'f', cache: true })(1)
      await flow.shutdown()
      if (at === 1) expect(warnings).toContain('ResultNotRead')
      const [file = ''] = readdirSync(cacheDir)
      rmSync(join(cacheDir, file), { recursive: true })
      mkdirSync(join(cacheDir, file))
    }
    expect(runs).toEqual([1, 1])
  })

  const others: readonly [string, (path: string) => void][] = [
    ['a FIFO', (path) => void execFileSync('mkfifo', [path])],
    ['a folder', (path) => mkdirSync(path)],
    ['a device', (path) => symlinkSync('/dev/zero', path)],
  ]
  it.each(others)(
    'row 115: %s in place of stored results counts as absent, with one warning',
    async (_, create) => {
      const cacheDir = createFolder()
      const { runs, body } = counted()
      const call = async (log: Log): Promise<void> => {
        await using flow = await openLocal({ cacheDir, log })
        const f = flow.functionTask(body, { name: 'f', cache: true })
        await Promise.all([f(1), f(2)])
      }
      await call({ warn() {} })
      for (const file of readdirSync(cacheDir)) {
        rmSync(join(cacheDir, file))
        create(join(cacheDir, file))
      }
      const warnings: string[] = []
      await call({ warn: (code) => void warnings.push(code) })
      expect(runs.toSorted((a, b) => Number(a) - Number(b))).toEqual([1, 1, 2, 2])
      expect(warnings.filter((code) => code === 'ResultNotRead')).toHaveLength(1)
    },
  )

  it('cache: a reused result is DONE without RUNNING, and its dependents run', async () => {
    const cacheDir = createFolder()
    const { flow, eventsOf, backend } = await openEngine({ cacheDir })
    const f = flow.functionTask((n: number) => n, { cache: true })
    const first = f(1)
    await flowed(() => backend.jobs.length === 1)
    backend.complete(first, 'kept')
    await flowed(() => readdirSync(cacheDir).some((name) => name.endsWith('.result')))
    await turns()
    const second = f(1)
    const next = flow.functionTask((_before: unknown) => 2)(second)
    expect(await second).toBe('kept')
    const events = await eventsOf(second)
    expect(typesOf(events)).toEqual([
      'TaskCreated',
      'TaskSubmitted',
      'tutti.ResultReused',
      'TaskCompleted',
    ])
    expect(events[2]).toMatchObject({ source: 'stored', key: expect.stringMatching(/^\w{64}$/) })
    expect(events.slice(1).map((event) => event.backend)).toEqual(['local', 'local', 'local'])
    expect(events.at(-1)).toMatchObject({ duration_seconds: 0 })
    expect(events.at(-1)?.attributes).toMatchObject({ incomplete_lifecycle: true, reused: true })
    await turns()
    expect(backend.jobs.map(({ uid }) => uid)).toEqual([first.uid, next.uid])
  })

  it('cache: results are stored beside the checkpoint by default', async () => {
    const checkpointPath = createFolder()
    await using flow = await openLocal({})
    await flow.startTelemetry({ checkpointPath })
    await flow.functionTask((n: number) => n, { cache: true })(1)
    await flow.shutdown()
    expect(readdirSync(join(checkpointPath, 'results'))).toHaveLength(1)
    expect(readdirSync(join(checkpointPath, 'results'))[0]).toMatch(/^\w{64}\.result$/)
  })

  it('cache: without a folder the task fails with a hint', async () => {
    const { flow } = await openEngine()
    const lost = flow.functionTask((n: number) => n, { cache: true })(1)
    expect(await rejection(lost)).toMatchObject({
      cause: { name: 'StateError', hint: expect.stringContaining('cacheDir') },
    })
  })

  it('cache: equal calls during a run share it', async () => {
    const { flow, backend, eventsOf } = await openEngine({ cacheDir: createFolder() })
    const f = flow.functionTask((n: number) => n, { cache: true })
    const [first, second, third] = [f(1), f(1), f(1), f(2)] as const
    await flowed(() => backend.jobs.length === 2)
    expect(third.cancel()).toBe(true)
    backend.complete(first, 'shared')
    expect(await second).toBe('shared')
    expect((await eventsOf(second))[2]).toMatchObject({ source: 'shared' })
    expect(third.state).toBe('CANCELED')
    // The result may not be in its file yet.
    expect(await f(1)).toBe('shared')
    expect(backend.jobs).toHaveLength(2)
  })

  it('cache: equal calls share a failure; after a cancellation the next one runs', async () => {
    const { flow, backend } = await openEngine({ cacheDir: createFolder() })
    const f = flow.functionTask((n: number) => n, { cache: true })
    const [one, two, three] = [f(1), f(1), f(1)]
    // While the store is asked.
    await Promise.resolve()
    one.cancel('not me')
    await flowed(() => backend.jobs.length === 1)
    expect(backend.jobs[0]?.uid).toBe(two.uid)
    backend.report(backend.jobOf(two), { kind: 'cancel', reason: 'nor me' })
    await flowed(() => backend.jobs.length === 2)
    const again = f(1)
    await turns()
    const cause = new RangeError('bad')
    backend.fail(three, cause)
    expect(await rejection(again)).toMatchObject({ cause, uid: again.uid })
    const later = f(1)
    await flowed(() => backend.jobs.length === 3)
    expect(backend.jobs[2]?.uid).toBe(later.uid)
  })

  it('cache: equal calls share the failure of a program', async () => {
    await using flow = await openLocal({ cacheDir: createFolder() })
    const run = flow.executableTask((code: number) => ['sh', '-c', `exit ${code}`], { cache: true })
    const [one, two] = [run(3), run(3)]
    expect(await rejection(one)).toBeInstanceOf(ExecutableFailedError)
    expect(await rejection(two)).toMatchObject({ uid: two.uid, cause: one.error })
  })

  it.each([
    ['torn', (bytes: Buffer) => bytes.subarray(0, bytes.length - 3)],
    ['empty', () => Buffer.alloc(0)],
    ['changed', (bytes: Buffer) => bytes.fill(0x20, 40, 44)],
  ])('cache: a stored result that is %s is computed again and replaced', async (_, damage) => {
    const cacheDir = createFolder()
    const { runs, body } = counted()
    const ask = async (): Promise<unknown> => {
      await using flow = await openLocal({ cacheDir })
      return await flow.functionTask(body, { name: 'f', cache: true })('x')
    }
    await ask()
    const [file = ''] = readdirSync(cacheDir)
    const whole = readFileSync(join(cacheDir, file))
    writeFileSync(join(cacheDir, file), damage(Buffer.from(whole)))
    await ask()
    expect(runs).toHaveLength(2)
    expect(readFileSync(join(cacheDir, file))).toEqual(whole)
    await ask()
    expect(runs).toHaveLength(2)
    expect(readdirSync(cacheDir)).toEqual([file])
  })

  it('cache: with a key only the key counts; without one, functions are refused', async () => {
    const { flow, backend } = await openEngine({ cacheDir: createFolder() })
    const body = (_callback: () => void, n: number): number => n
    const keyed = flow.functionTask(body, { cache: { key: (_callback, n) => String(n % 2) } })
    const [one, three] = [keyed(() => {}, 1), keyed(() => {}, 3)]
    await flowed(() => backend.jobs.length === 1)
    backend.complete(one, 'odd')
    expect(await three).toBe('odd')
    const refused = flow.functionTask(body, { cache: true })(() => {}, 1)
    expect(await rejection(refused)).toMatchObject({ cause: { field: 'args.0' } })
  })

  it('cache: a result that cannot be stored is a warning, and the task is DONE', async () => {
    const warnings: string[] = []
    const log = { warn: (code: string) => void warnings.push(code) }
    const cacheDir = createFolder()
    const flow = await openLocal({ cacheDir, log })
    const value = await flow.functionTask(() => ({ call: () => 1 }), { cache: true })()
    expect(value.call()).toBe(1)
    await flow.shutdown()
    expect([warnings, readdirSync(cacheDir)]).toEqual([['ResultNotKept'], []])
  })
})

/** Waits, turn by turn, for what files and other processes make true. */
async function flowed(isTrue: () => boolean): Promise<void> {
  while (!isTrue()) await turns(1)
}
