import { mkdtempSync, writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { acquireLock, lockPathOf } from '../../../src/checkpoint/lock.ts'
import { runHere } from '../run-command.ts'
import { linesOf, recordFolder, writeRecord } from './record-file.ts'
import { eventsOf } from '../../views/synthetic-run.ts'

const folder = recordFolder()
afterAll(() => folder.remove())

const run = {
  nodes: [
    { nodeId: 'n1', cores: 4 },
    { nodeId: 'idle', cores: 1 },
  ],
  tasks: [{ uid: 'a', name: '/bin/simulate', start: 1, end: 4, worker: 'n1/local/w1' }],
  end: 10,
}
const path = writeRecord(folder.path, run)
const read = (...args: readonly string[]) => runHere(folder.path, args)

describe('names', () => {
  it('status: two programs of one last name are told apart', async () => {
    const tasks = [
      { uid: 'a', name: 'sh', start: 1, end: 2 },
      { uid: 'b', name: '/opt/sh', start: 2, end: 3 },
      { uid: 'c', name: '/opt/bin/echo', start: 3, end: 4 },
    ]
    const other = writeRecord(folder.path, { ...run, tasks }, { sessionId: 'named' })
    const { stdout } = await read('status', other)
    expect(stdout).toMatch(/\nsh +1 .*\n\/opt\/sh +1 .*\necho +1 /)
  })
})

describe('names that people gave', () => {
  it('tasks, status, explain: shown whole, and equal last names of programs apart', async () => {
    const names = ['train/step', 'test/step', 'name/of/7', '/bin/sh', '/opt/sh', '/opt/echo']
    const tasks = names.map((name, at) => ({ uid: `t${at}`, name, start: at, end: at + 1 }))
    const named = writeRecord(folder.path, { ...run, tasks }, { sessionId: 'given' })
    const shown = ['train/step', 'test/step', 'name/of/7', '/bin/sh', '/opt/sh', 'echo']
    const { stdout } = await read('tasks', named)
    const cells = stdout.split('\n').slice(1, 7)
    expect(cells.map((line) => line.split(/ {2,}/)[2])).toEqual(shown)
    const status = await read('status', named)
    for (const name of shown) expect(status.stdout).toContain(`\n${name} `)
    expect((await read('explain', 't2', named)).stdout).toContain('t2  name/of/7  DONE')
    const found = await read('tasks', named, '--name', 'test/step', '--json')
    expect(JSON.parse(found.stdout)).toMatchObject({ total: 1, tasks: [{ uid: 't1' }] })
  })
})

describe('very long names', () => {
  it('status, tasks: a cell of a table is cut also without a terminal', async () => {
    const long = 'x'.repeat(200_000)
    const tasks = Array.from({ length: 50 }, (_, at) => ({
      uid: `t${at}`,
      name: at === 0 ? long : at === 1 ? '\u202E'.repeat(1000) : `f${at}`,
      start: at,
      end: at + 1,
    }))
    const named = writeRecord(folder.path, { ...run, tasks, end: 60 }, { sessionId: 'long' })
    for (const command of ['status', 'tasks']) {
      const { code, stdout } = await read(command, named)
      const longest = Math.max(...stdout.split('\n').map(({ length }) => length))
      expect([command, code, longest]).toEqual([command, 0, expect.any(Number)])
      expect(longest).toBeLessThan(400)
      expect(stdout).toContain(`${'x'.repeat(100)}…${'x'.repeat(99)} `)
    }
  })
})

describe('errors of tasks', () => {
  it('tasks: rows in JSON have the type of the error, and null without one', async () => {
    const events = eventsOf({
      ...run,
      tasks: [
        { uid: 'late', start: 1, end: 2, endType: 'TaskFailed' as const },
        { uid: 'wrong', start: 2, end: 3, endType: 'TaskFailed' as const },
        { uid: 'right', start: 3, end: 4 },
      ],
    }).map((event) =>
      event.event_type === 'TaskFailed'
        ? { ...event, error_type: event.task_id === 'late' ? 'TimeoutError' : 'RangeError' }
        : event,
    )
    writeFileSync(join(folder.path, 's-8.1790000000.telemetry.jsonl'), linesOf(events, 's-8'))
    const { stdout } = await read('tasks', 's-8', '--json')
    const { tasks } = JSON.parse(stdout) as { tasks: { uid: string; error_type: unknown }[] }
    expect(tasks.map(({ uid, error_type: type }) => [uid, type])).toEqual([
      ['late', 'TimeoutError'],
      ['wrong', 'RangeError'],
      ['right', null],
    ])
  })
})

describe('what a command tells to type', () => {
  it('failures, status: name the record so that it is found from here', async () => {
    const far = mkdtempSync(join(folder.path, 'far '))
    const failed = { endType: 'TaskFailed' as const, start: 1, end: 2 }
    const tasks = ['a', 'b'].map((uid) => ({ uid, ...failed }))
    const other = writeRecord(far, { ...run, tasks }, { sessionId: 's-7' })
    const path7 = `'${relative(folder.path, other)}'`
    expect((await read('status', other)).stdout).toContain(`npx tutti failures ${path7}\n`)
    expect((await read('failures', other)).stdout).toContain(`npx tutti explain TASK ${path7}\n`)
    writeRecord(folder.path, { ...run, tasks }, { sessionId: 's-6' })
    expect((await read('status', 's-6')).stdout).toContain('npx tutti failures s-6\n')
  })
})

describe('tasks that are not there', () => {
  it('row 95: a name or node that no task has ends with 2 and the nearest', async () => {
    const name = await read('tasks', path, '--name', 'simulat')
    expect([name.code, name.stdout]).toEqual([2, ''])
    expect(name.stderr).toMatch(/--name: no task .* "simulat"; did you mean "simulate"\?/)
    const node = await read('tasks', path, '--node', 'n2')
    expect([node.code, node.stderr]).toEqual([2, expect.stringContaining('--node: no task')])
    expect((await read('tasks', path, '--node', 'idle')).code).toBe(0)
    // Both are there, but no such task failed.
    const none = await read('tasks', path, '--name', 'simulate', '--state', 'FAILED')
    expect([none.code, none.stdout]).toEqual([0, 'no such task\n'])
  })

  it('tasks: in a run that goes on a name may still come', async () => {
    const file = join(folder.path, 's-9.1790000000.telemetry.jsonl')
    writeFileSync(file, linesOf(eventsOf(run).slice(0, -1), 's-9'))
    const lock = acquireLock(lockPathOf(folder.path, 's-9'))
    const live = await read('tasks', 's-9', '--name', 'later')
    lock.release()
    expect([live.code, live.stdout]).toEqual([0, 'no such task\n'])
    expect((await read('tasks', 's-9', '--name', 'later')).code).toBe(2)
  })

  it('explain: of a task that is not there says how to list those of this record', async () => {
    const { code, stderr } = await read('explain', 'nope', path)
    expect([code, stderr]).toEqual([2, expect.stringContaining('npx tutti tasks s-1\n')])
  })
})
