import { readdirSync } from 'node:fs'
import { expect, it } from 'vitest'
import type { AnyTask } from '../../src/backends/backend.ts'
import { ConcurrentBackend } from '../../src/backends/local/concurrent-backend.ts'
import type { ResumeOptions } from '../../src/core/resume/resumption.ts'
import { WorkflowEngine } from '../../src/workflow/workflow-engine.ts'
import { readViews } from '../../src/record/record-views.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { counts } from '../../src/views/panels/counts.ts'
import { failures } from '../../src/views/panels/failures.ts'
import { findTasks } from '../../src/views/tasks.ts'
import { tempFolder } from '../checkpoint/open-writer.ts'
import { runHere } from '../cli/run-command.ts'

/**
 * Prints how many programs of the folder have started, itself included; fails as the `failing`th.
 */
const numbered = (folder: string, failing: number): ComputeTask<unknown> =>
  new ComputeTask({
    executable: '/bin/sh',
    arguments: [
      '-c',
      'n=1; until mkdir "$n" 2>/dev/null; do n=$((n+1)); done; echo $n; test $n != "$1"',
      'sh',
      String(failing),
    ],
    cwd: folder,
  })

const said = (word: string, code = 0): ComputeTask<unknown> =>
  new ComputeTask({ executable: '/bin/sh', arguments: ['-c', `echo ${word}; exit ${code}`] })

/** One program at a time, in the order of the tasks. */
async function run(
  tasks: readonly AnyTask[],
  { folder, record, how }: { folder: string; record?: string; how?: ResumeOptions },
): Promise<string> {
  const backend = await ConcurrentBackend.create({ workers: 1, maxProcesses: 1, cores: 2 })
  await using session = new Session([backend])
  if (record !== undefined) await session.resume(record, how)
  const telemetry = await session.startTelemetry({ checkpointPath: folder, keepResults: true })
  await session.submitTasks(tasks)
  await session.waitTasks(tasks)
  return telemetry.checkpointFile ?? ''
}

const outputs = (tasks: readonly ComputeTask<unknown>[]): string[] =>
  tasks.map(({ stdout }) => (stdout ?? '').trim())

const begun = (folder: string): number =>
  readdirSync(folder).filter((name) => /^\d+$/.test(name)).length

/** Uid, output or error, and state of every task of the run, as readers show them. */
async function shown(record: string) {
  const { pass } = await readViews(record, { snapshot: 'ignore' })
  const { tasks } = findTasks(pass, { limit: 100 })
  const { completed, failed, canceled, open, tasks: all } = counts.show(pass.counts)
  const groups = failures.show(pass.states.failures, { limit: 10 }).groups
  return {
    counts: { tasks: all, completed, failed, canceled, open },
    states: tasks.map(({ uid, state }) => `${uid} ${state}`),
    failures: groups.map(({ count }) => count),
  }
}

it('resume: equal tasks keep their values over several resumes, whichever ran again', async () => {
  const folder = tempFolder()
  const make = () => Array.from({ length: 3 }, () => numbered(folder, 2))
  let record = await run(make(), { folder })
  const second = make()
  record = await run(second, { folder, record })
  expect(outputs(second)).toEqual(['1', '4', '3'])
  const third = [...make(), numbered(folder, 2)]
  record = await run(third, { folder, record })
  expect(outputs(third)).toEqual(['1', '4', '3', '5'])
  const fourth = [...make(), numbered(folder, 2)]
  record = await run(fourth, { folder, record })
  expect(outputs(fourth)).toEqual(['1', '4', '3', '5'])
  expect(begun(folder)).toBe(5)
  expect(await shown(record)).toMatchObject({ counts: { tasks: 4, completed: 4 }, failures: [] })
  await expect(runHere(process.cwd(), ['journal', 'verify', record])).resolves.toMatchObject({
    code: 0,
  })
})

it('resume: equal calls of a workflow keep their values over several resumes', async () => {
  const folder = tempFolder()
  let record: string | undefined
  const calls: string[][] = []
  for (const expected of [
    ['1', '', '3'],
    ['1', '4', '3'],
    ['1', '4', '3'],
  ]) {
    const backend = await ConcurrentBackend.create({ workers: 1, maxProcesses: 1 })
    const flow = await WorkflowEngine.create({ backend })
    if (record !== undefined) await flow.resume(record)
    const telemetry = await flow.startTelemetry({ checkpointPath: folder, keepResults: true })
    const next = flow.executableTask((failing: number) => {
      const { executable, arguments: given } = numbered(folder, failing)
      return { executable: executable ?? '', arguments: given, cwd: folder }
    })
    const ends = await Promise.allSettled([next(2), next(2), next(2)])
    await flow.shutdown()
    record = telemetry.checkpointFile ?? ''
    calls.push(ends.map((end) => (end.status === 'fulfilled' ? end.value.stdout.trim() : '')))
    expect(calls.at(-1)).toEqual(expected)
  }
  expect(await shown(record ?? '')).toMatchObject({ counts: { tasks: 3, completed: 3 } })
})

it('readers: a generated uid of a later file is another task unless told otherwise', async () => {
  const folder = tempFolder()
  let record = await run([said('a'), said('b', 1), said('c')], { folder })
  // Another order, one that is new, and `b` is not made again.
  const second = [said('new'), said('c'), said('a')]
  record = await run(second, { folder, record })
  expect(outputs(second)).toEqual(['new', 'c', 'a'])
  expect(await shown(record)).toMatchObject({
    counts: { tasks: 4, completed: 3, failed: 1, open: 0 },
    failures: [1],
  })
  const third = [said('b', 1), said('a'), said('new'), said('other', 1)]
  record = await run(third, { folder, record })
  const { counts: totals, states, failures: groups } = await shown(record)
  expect(totals).toEqual({ tasks: 5, completed: 3, failed: 2, canceled: 0, open: 0 })
  expect(groups.reduce((sum, count) => sum + count, 0)).toBe(2)
  const [b, a, added, other] = third
  const [, c] = second
  for (const [task, state] of [
    [a, 'DONE'],
    [b, 'FAILED'],
    [added, 'DONE'],
    [other, 'FAILED'],
  ]) {
    expect(states).toContain(`${(task as AnyTask | undefined)?.uid} ${String(state)}`)
  }
  expect(states).toContain(`${c?.uid} DONE`)
  await expect(runHere(process.cwd(), ['journal', 'verify', record])).resolves.toMatchObject({
    code: 0,
  })
})

it('readers: a task that is run anew counts as it ends then, not as it was DONE', async () => {
  const folder = tempFolder()
  const make = (code: number) =>
    new ComputeTask({ uid: 'a', executable: '/bin/sh', arguments: ['-c', `exit ${code}`] })
  let record = await run([make(0)], { folder })
  record = await run([make(1)], { folder, record, how: { changed: 'rerun' } })
  expect(await shown(record)).toEqual({
    counts: { tasks: 1, completed: 0, failed: 1, canceled: 0, open: 0 },
    states: ['a FAILED'],
    failures: [1],
  })
  const kept = make(1)
  record = await run([kept], { folder, record, how: { keepFailed: true } })
  expect(kept.state).toBe('FAILED')
  const reverted = make(0)
  record = await run([reverted], { folder, record })
  expect(reverted.state).toBe('DONE')
  expect(await shown(record)).toMatchObject({ counts: { tasks: 1, completed: 1, failed: 0 } })
  await expect(runHere(process.cwd(), ['journal', 'verify', record])).resolves.toMatchObject({
    code: 0,
  })
})

const scaledOptions = (factor: number) => ({
  function: (x: number) => x * factor,
  args: [10] as [number],
})

const scaled = (factor: number): ComputeTask<unknown> => new ComputeTask(scaledOptions(factor))

it('resume: of several functions of equal source in a submission none has a value', async () => {
  const folder = tempFolder()
  const record = await run([scaled(2)], { folder })
  const second = [scaled(3), scaled(2)]
  await run(second, { folder, record })
  expect(second.map(({ returnValue }) => returnValue)).toEqual([30, 20])
})

it('resume: a later function of equal source fails, and the next resume runs all', async () => {
  const folder = tempFolder()
  const oneByOne = async (factors: readonly number[], record: string) => {
    await using session = new Session([await ConcurrentBackend.create({ workers: 1 })])
    await session.resume(record)
    const telemetry = await session.startTelemetry({ checkpointPath: folder, keepResults: true })
    const tasks = factors.map(scaled)
    for (const task of tasks) {
      await session.submitTasks([task])
      await session.waitTasks([task])
    }
    // An own uid makes the difference.
    const named = new ComputeTask({ ...scaledOptions(4), uid: 'by-four' })
    await session.submitTasks([named])
    expect(await named).toBe(40)
    return { tasks, record: telemetry.checkpointFile ?? '' }
  }
  const first = await run([scaled(2)], { folder })
  const second = await oneByOne([2, 3], first)
  expect(second.tasks.map(({ returnValue }) => returnValue)).toEqual([20, undefined])
  expect(second.tasks[1]?.error?.cause).toMatchObject({
    name: 'StateError',
    code: 'AmbiguousFunctionError',
    message: expect.stringContaining('got the recorded value of task-') as string,
  })
  const third = await oneByOne([2, 3], second.record)
  expect(third.tasks.map(({ returnValue }) => returnValue)).toEqual([20, 30])
  await expect(runHere(process.cwd(), ['journal', 'verify', third.record])).resolves.toMatchObject({
    code: 0,
  })
})

it('resume: what was made from arguments changed after its submission runs again', async () => {
  const folder = tempFolder()
  const make = (late: number, uid?: string) => {
    const given = { x: 1 }
    const resources = { cores: 2 }
    // The other one waits for its cores.
    const change = (): void => void (given.x = late)
    const first = new ComputeTask({ function: change, resources, priority: 1 })
    const read = new ComputeTask({
      function: (one: { x: number }) => one.x,
      args: [given],
      resources,
      ...(uid && { uid }),
    })
    return { tasks: [first, read], read }
  }
  for (const uid of [undefined, 'own']) {
    const [first, second] = [make(2, uid), make(3, uid)]
    const record = await run(first.tasks, { folder })
    await run(second.tasks, { folder, record })
    expect([first.read.returnValue, second.read.returnValue]).toEqual([2, 3])
  }
})
