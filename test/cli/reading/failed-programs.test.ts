import { chmodSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { ViewEvent } from '../../../src/views/panel.ts'
import { eventsOf } from '../../views/synthetic-run.ts'
import { viewEvent } from '../../views/view-event.ts'
import { runHere, startCommandIn } from '../run-command.ts'
import { linesOf, recordFolder } from './record-file.ts'

const folder = recordFolder()
afterAll(() => folder.remove())

const read = async (...args: readonly string[]): Promise<string> =>
  (await runHere(folder.path, args)).stdout

beforeAll(async () => {
  const program = join(folder.path, 'simulate')
  writeFileSync(program, '#!/bin/sh\necho "out $1"\necho "err $1" >&2\nexit 3\n')
  chmodSync(program, 0o755)
  const tasks = [
    { uid: 'a', executable: './simulate', arguments: ['1'] },
    { uid: 'b', executable: './simulate', arguments: ['2'] },
    { uid: 'c', executable: 'no-such-program' },
    { uid: 'd', executable: 'sh', arguments: ['-c', 'exit 4', '--password', 'opensesame'] },
  ]
  const file = join(folder.path, 'tasks.jsonl')
  writeFileSync(file, tasks.map((task) => `${JSON.stringify(task)}\n`).join(''))
  await startCommandIn(folder.path, ['run', 'tasks.jsonl']).ended
})

describe('a program that fails', () => {
  it('explain: has the exit code and the output of each task, not only of the first', async () => {
    for (const [uid, n] of [
      ['a', 1],
      ['b', 2],
    ] as const) {
      const text = await read('explain', uid)
      expect(text).toContain('exit code 3')
      expect(text).toMatch(new RegExp(`stderr:\n +err ${n}\n.*stdout:\n +out ${n}\n`))
      expect(text).not.toMatch(/^ +at /m)
      expect(JSON.parse(await read('explain', uid, '--json'))).toMatchObject({
        failure: {
          exit_code: 3,
          signal: null,
          stdout_tail: `out ${n}\n`,
          stderr_tail: `err ${n}\n`,
        },
      })
    }
  })

  it('arguments of a failed program are shown for a shell, without secrets', async () => {
    expect(await read('explain', 'b')).toContain('  command: ./simulate 2\n')
    expect(await read('failures')).toMatch(/  command: \.\/simulate [12]\n/)
    expect(await read('explain', 'd')).toContain("sh -c 'exit 4' --password '[masked]'\n")
    expect(JSON.parse(await read('explain', 'd', '--json'))).toMatchObject({
      failure: { arguments: ['-c', 'exit 4', '--password', '[masked]'] },
    })
    await read('report', '-o', 'page.html')
    const page = readFileSync(join(folder.path, 'page.html'), 'utf8')
    expect(page).toMatch(/<code>\.\/simulate [12]<\/code>/)
  })

  it('failures: what it has printed, and no frames of tutti', async () => {
    const text = await read('failures')
    expect(text).toMatch(
      /2 x simulate: .*\n.*exit code 3\n.*command: .*\n.*stderr:\n +err \d\n.*stdout:\n +out \d\n/,
    )
    expect(text).not.toMatch(/^ +at /m)
  })

  it('row 7: the hint with the searched PATH is in the record and in every view', async () => {
    const hint = `PATH is ${process.env['PATH']}`
    expect(await read('explain', 'c')).toContain(hint.slice(0, 400))
    expect(await read('failures')).toContain(hint.slice(0, 400))
    await read('report', '-o', 'page.html')
    expect(readFileSync(join(folder.path, 'page.html'), 'utf8')).toContain('PATH is ')
    expect(await read('tail', '--task', 'c', '--json')).toContain('"error_hint":"PATH is ')
  })

  it('report: has the output of a program, and no frames of tutti', async () => {
    await read('report', '-o', 'page.html')
    const page = readFileSync(join(folder.path, 'page.html'), 'utf8')
    const section = /<section aria-labelledby="failures".*?<\/section>/s.exec(page)?.[0] ?? ''
    expect(section).toMatch(/>err \d\n<.*>out \d\n</s)
    expect(section).not.toContain('    at ')
  })

  it('tasks: --name takes a name as the table shows it, and in full', async () => {
    for (const name of ['simulate', './simulate']) {
      const { total } = JSON.parse(await read('tasks', '--name', name, '--json')) as {
        total: number
      }
      expect([name, total]).toEqual([name, 2])
    }
  })
})

it('status: a run that was killed has nothing that runs, and no durations', async () => {
  const tasks = [{ uid: 'a', start: 1 }, { uid: 'b' }]
  const told = eventsOf({ nodes: [], tasks, end: 9 }).filter(
    ({ event_type }) => event_type !== 'SessionEnded',
  )
  const path = join(folder.path, 'killed.1.telemetry.jsonl')
  writeFileSync(path, linesOf(told, 'killed'))
  const text = await read('status', path)
  expect(text).toContain('1 interrupted, 1 did not begin')
  expect(text).not.toContain('0.00 ms')
  // It may as well have ended by itself.
  expect(text).toContain('the process was killed, or it ended without closing the session, or')
  expect(JSON.parse(await read('status', path, '--json'))).toMatchObject({
    duration: null,
    names: [{ name: 'simulate', duration: null }],
  })
})

it('status: in a damaged record, a task that has ended counts as submitted', async () => {
  const isLost = ({ event_type, task_id }: ViewEvent): boolean =>
    event_type === 'TaskSubmitted' && task_id !== 'c'
  const tasks = [{ uid: 'a', start: 1, end: 2 }, { uid: 'b', start: 1, end: 2 }, { uid: 'c' }]
  const told = eventsOf({ nodes: [], tasks, end: 9 }).filter((event) => !isLost(event))
  const path = join(folder.path, 'damaged.1.telemetry.jsonl')
  writeFileSync(path, linesOf([...told, viewEvent('TaskCreated', 'd')], 'damaged'))
  const text = await read('status', path)
  expect(text).toMatch(/^4 tasks: 2 done, .*, 1 not submitted$/m)
  expect(JSON.parse(await read('status', path, '--json'))).toMatchObject({ created: 4 })
})

describe('status: the numbers of the tasks add up', () => {
  const tasks = ['a', 'b', 'c', 'd', 'e'].map((uid) => ({ uid, start: 1 }))
  const all = eventsOf({ nodes: [], tasks, end: 9 })
  const lost: Readonly<Record<string, readonly string[]>> = {
    // No line after the submission, none of a submission, none after the creation.
    a: ['TaskQueued', 'TaskStarted'],
    b: ['TaskSubmitted'],
    c: ['TaskSubmitted', 'TaskStarted'],
    d: ['TaskSubmitted', 'TaskQueued', 'TaskStarted'],
  }
  const kept = all.filter(
    ({ event_type, task_id }) => lost[task_id ?? '']?.includes(event_type) !== true,
  )
  const killed = kept.filter(({ event_type }) => event_type !== 'SessionEnded')
  const resumed = viewEvent('SessionStarted', null, { attributes: { resumed_from: 'x' } })
  const ended = viewEvent('SessionEnded', null, { event_time: 9 })
  const rows: readonly [string, readonly ViewEvent[], string][] = [
    ['killed', killed, '2 interrupted, 2 did not begin, 1 not submitted'],
    ['closed', kept, '2 running, 1 queued, 1 submitted, 1 not submitted'],
    ['resumed-killed', [...killed, resumed], '4 interrupted, 1 not submitted'],
    ['resumed', [...killed, resumed, ended], '0 running, 4 interrupted, 1 not submitted'],
  ]
  it.each(rows)('status: of a record with lost lines, session %s', async (name, events, text) => {
    const path = join(folder.path, `${name}.1.telemetry.jsonl`)
    writeFileSync(path, linesOf(events, name))
    expect(await read('status', path)).toContain(`5 tasks: 0 done, 0 failed, 0 canceled, ${text}\n`)
  })
})
