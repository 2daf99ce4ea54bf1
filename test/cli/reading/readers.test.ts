import { cpSync, mkdirSync, readFileSync, realpathSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { zstdCompressSync } from 'node:zlib'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { acquireLock, lockPathOf } from '../../../src/checkpoint/lock.ts'
import { readViews } from '../../../src/record/record-views.ts'
import { eventsOf, type SyntheticRun } from '../../views/synthetic-run.ts'
import { type CommandEnd, runHere, startCommandIn } from '../run-command.ts'
import { linesOf, recordFolder, writeRecord } from './record-file.ts'
import { viewEvent } from '../../views/view-event.ts'

const folder = recordFolder()
afterAll(() => folder.remove())

const gpu = { cores: 1, gpus: 1, memory_mb: 0, ranks: 1 }
const run: SyntheticRun = {
  nodes: [{ nodeId: 'n1', cores: 4, gpus: 1 }],
  tasks: [
    { uid: 'sim-1', start: 1, end: 4, worker: 'n1/local/w1' },
    { uid: 'sim-2', start: 1, end: 3, worker: 'n1/local/w2', endType: 'TaskFailed' },
    { uid: 'sim-3', start: 2, end: 9, worker: 'n1/local/w3', resources: gpu },
    { uid: 'sum', name: 'reduce', ready: 4, start: 5, end: 6, dependencies: ['sim-1'] },
  ],
  end: 10,
}
/** A run whose process was killed: tasks wait for a GPU, for each other, and for nothing. */
const killed: SyntheticRun = {
  nodes: [{ nodeId: 'n1', cores: 4, gpus: 1 }],
  tasks: [
    { uid: 'holds', start: 1, worker: 'n1/local/w1', resources: gpu },
    { uid: 'first', created: 1, resources: gpu },
    { uid: 'second', created: 2, resources: gpu },
    { uid: 'last', name: 'reduce', created: 3, dependencies: ['second'] },
  ],
  end: 20,
}

let path = ''
beforeAll(() => {
  path = writeRecord(folder.path, run)
  mkdirSync(join(folder.path, 'telemetry'))
  const told = eventsOf(killed).filter(({ event_type }) => event_type !== 'SessionEnded')
  writeFileSync(join(folder.path, 's-2.1790000000.telemetry.jsonl'), linesOf(told, 's-2'))
})

const read = (...args: readonly string[]): Promise<CommandEnd> => runHere(folder.path, args)
const readJson = async (...args: readonly string[]): Promise<Record<string, unknown>> =>
  JSON.parse((await read(...args, '--json')).stdout) as Record<string, unknown>

describe('the record that a command names', () => {
  it('the named record is a file, folder, session, prefix of its id, or the latest', async () => {
    const latest = join(folder.path, 'telemetry')
    writeRecord(latest, run, { sessionId: 'x-9', seconds: 1_790_000_005 })
    const sessions = await Promise.all(
      [[path], [latest], ['s-1'], ['x'], ['latest'], []].map(
        async (args) => (await readJson('status', ...args))['session_id'],
      ),
    )
    expect(sessions).toEqual(['s-1', 'x-9', 's-1', 'x-9', 'x-9', 'x-9'])
  })

  it('the named record is read itself where its cached views are damaged', async () => {
    const other = recordFolder()
    const record = writeRecord(other.path, run)
    const commands = [['status'], ['tasks'], ['failures'], ['explain', 'sum'], ['top']]
    const all = (): Promise<CommandEnd[]> =>
      Promise.all(commands.map(async (args) => await read(...args, record, '--json')))
    const before = await all()
    await readViews(record, { snapshot: 'write' })
    const view = readFileSync(`${record}.view`)
    expect(await all()).toEqual(before)
    // Everything behind the head, which has a checksum of its own.
    writeFileSync(`${record}.view`, view.fill(1, view.indexOf('\n') + 1))
    expect(await all()).toEqual(before)
    expect(before.map(({ code }) => code)).toEqual([0, 0, 0, 0, 0])
    other.remove()
  })

  it('the named record is read from a pipe, also if it has several zstd frames', async () => {
    const bytes = readFileSync(path)
    const half = bytes.indexOf('\n', bytes.length / 2) + 1
    const frames = [bytes.subarray(0, half), bytes.subarray(half)].map((one) =>
      zstdCompressSync(one),
    )
    const command = startCommandIn(folder.path, ['status', '-', '--json'])
    command.child.stdin?.end(Buffer.concat(frames))
    expect(JSON.parse((await command.ended).stdout)).toMatchObject({
      session_id: 's-1',
      skipped_lines: 0,
      tasks: { submitted: 4, completed: 3, failed: 1, canceled: 0, running: 0 },
    })
  })

  it('the named record is read from stdin when it is -', async () => {
    const command = startCommandIn(folder.path, ['status', '-', '--json'])
    command.child.stdin?.end(readFileSync(path))
    expect(JSON.parse((await command.ended).stdout)).toMatchObject({
      session_id: 's-1',
      tasks: { submitted: 4, completed: 3, failed: 1, canceled: 0, running: 0 },
    })
  })

  it('row 95: a record of another name in a folder is named', async () => {
    const place = recordFolder()
    cpSync(path, join(place.path, 'a.telemetry.jsonl'))
    const end = await read('status', place.path)
    expect([end.code, end.stderr]).toEqual([
      2,
      expect.stringMatching(/hint: Name the file itself: .*a\.telemetry\.jsonl/),
    ])
    place.remove()
  })

  const wrong: readonly [readonly string[], string, RegExp][] = [
    [['status', 's-'], 'AmbiguousRecordError', /beginning of 2 sessions.*s-1, s-2/s],
    [['tasks', 's-11'], 'RecordNotFoundError', /did you mean "s-1"/],
    [['failures', './nowhere'], 'CheckpointError', /ENOENT/],
    [['top', 'y'.repeat(5000)], 'RecordNotFoundError', /there is no file, folder or session/],
    [['status', 'package.txt'], 'NotARecordError', /not a record/],
    [['explain', 'sim', 's-1'], 'TaskNotFoundError', /beginning of 3 tasks/],
    [['explain', 'summ', 's-1'], 'TaskNotFoundError', /did you mean "sum"/],
    [['tasks', '--state', 'FAILD', 's-1'], 'ValueError', /did you mean "FAILED"/],
    [['tail', '-n', 'x', 's-1'], 'UsageError', /whole number/],
    [['tasks', '--sort', 'run', 's-1'], 'UsageError', /expected ran or waited/],
  ]
  it.each(wrong)('row 95: %j ends with 2 and says what there is', async (args, code, message) => {
    writeFileSync(join(folder.path, 'package.txt'), 'something\nelse\n')
    const end = await read(...args, '--json')
    expect([end.code, end.stdout]).toEqual([2, ''])
    const { error } = JSON.parse(end.stderr) as { error: Record<string, string> }
    expect(error['code']).toBe(code)
    expect(`${error['message']} ${error['hint']}`).toMatch(message)
  })
})

describe('status, tasks and failures', () => {
  it('status: the totals of the run, its names and its nodes', async () => {
    expect(await readJson('status', path)).toMatchObject({
      session_id: 's-1',
      state: 'ended',
      duration_seconds: 10,
      tasks: { submitted: 4, completed: 3, failed: 1, canceled: 0, running: 0 },
      duration: { p50: 2, max: 7 },
      names: [
        { name: 'simulate', total: 3, failed: 1 },
        { name: 'reduce', ran_seconds: 1 },
      ],
      skipped_lines: 0,
      torn: false,
    })
    const { stdout, code } = await read('status', path)
    expect(code).toBe(0)
    expect(stdout).toMatch(/^session s-1 {2}ended after 10\.0 s\n4 tasks: 3 done, 1 failed, /)
    expect(stdout).toContain('show them with: npx tutti failures s-1')
  })

  it('status: tasks that never ran are no cause of their own, as in failures', async () => {
    const own = join(folder.path, 's-causes.1.telemetry.jsonl')
    const failed = (uid: string, error_type: string) =>
      viewEvent('TaskFailed', uid, { event_time: 1, error_type, error_message: 'no data' })
    const created = ['a', 'b', 'c'].map((uid) => viewEvent('TaskCreated', uid, { event_time: 0 }))
    const ends = [
      failed('a', 'RangeError'),
      failed('b', 'DependencyFailedError'),
      failed('c', 'DependencyFailedError'),
    ]
    writeFileSync(own, linesOf([...created, ...ends], 's-causes'))
    const { stdout } = await read('status', own)
    expect(stdout.match(/^\d+ x /gm)).toEqual(['1 x '])
    expect(stdout).toContain('\n2 tasks never ran, because what they need has failed\n')
    const { stdout: causes } = await read('failures', own)
    expect(causes).toContain('3 tasks failed, 1 cause; 2 of them never ran, because what they need')
  })

  it('status: a name of which no task ran to its end has no durations', async () => {
    const tasks = [{ uid: 'a', name: 'missing', end: 1, endType: 'TaskFailed' as const }]
    const file = writeRecord(
      join(folder.path, 'telemetry'),
      { nodes: [], tasks, end: 2 },
      {
        sessionId: 'unbegun',
        seconds: 2,
      },
    )
    expect((await read('status', file)).stdout).toMatch(/\nmissing +1 +0 +1 +0 +0 +- +- +- +-\n/)
    expect(await readJson('status', file)).toMatchObject({ names: [{ duration: null }] })
  })

  it('status: a run without an end, and one with damaged lines, say so', async () => {
    const stopped = 's-2.1790000000.telemetry.jsonl'
    expect(await readJson('status', 's-2')).toMatchObject({
      state: 'interrupted',
      resume: { record: join(realpathSync(folder.path), stopped), command: null },
    })
    expect((await read('status', 's-2')).stdout).toMatch(
      /\nresume {2}start the program again with: await flow\.resume\('s-2\.1790000000\./,
    )
    const damaged = writeRecord(join(folder.path, 'telemetry'), run, {
      sessionId: 'bad',
      seconds: 1,
      tail: 'not json\n{"section":"ev',
    })
    expect(await readJson('status', damaged)).toMatchObject({
      skipped_lines: 1,
      torn: true,
      resume: null,
    })
    expect((await read('status', damaged)).stdout).toContain('1 line skipped')
  })

  it('tasks: by state, name and node, up to a limit', async () => {
    const uids = async (...args: readonly string[]) =>
      ((await readJson('tasks', path, ...args))['tasks'] as { uid: string }[]).map(({ uid }) => uid)
    expect(await uids()).toEqual(['sim-1', 'sim-2', 'sim-3', 'sum'])
    expect(await uids('--state', 'failed')).toEqual(['sim-2'])
    expect(await uids('--name', 'reduce')).toEqual(['sum'])
    expect(await uids('--node', 'n1', '--state', 'canceled')).toEqual([])
    expect(await readJson('tasks', path, '--limit', '1')).toMatchObject({
      total: 4,
      tasks: [
        {
          uid: 'sim-1',
          name: 'simulate',
          state: 'DONE',
          node_id: 'n1',
          worker_id: 'n1/local/w1',
          created: 0,
          started: 1,
          ended: 4,
          duration_seconds: 3,
        },
      ],
    })
    expect((await read('tasks', path, '--limit', '1')).stdout).toContain('1 of 4 tasks')
  })

  it('failures: causes with one full example each', async () => {
    const file = join(folder.path, 'telemetry', 'f.7.telemetry.jsonl')
    const failed = ['a', 'b'].map((uid, at) =>
      viewEvent('TaskFailed', uid, {
        attributes: {
          error_type: 'RangeError',
          error_message: `bad seed ${at}`,
          error_stack: `RangeError: bad seed ${at}\n    at simulate (sim.ts:3:9)`,
          stderr_tail: 'out of darts\n',
          exit_code: 3,
        },
      }),
    )
    writeFileSync(file, linesOf(failed))
    expect(await readJson('failures', file)).toMatchObject({
      failed: 2,
      groups: [
        {
          count: 2,
          error_type: 'RangeError',
          message: 'bad seed <n>',
          first_task: 'a',
          example: { uid: 'a', exit_code: 3, stderr_tail: 'out of darts\n' },
        },
      ],
    })
    const { stdout } = await read('failures', file)
    expect(stdout).toMatch(/2 x simulate: RangeError "bad seed <n>"/)
    expect(stdout).toContain('at simulate (sim.ts:3:9)')
    expect(stdout).toContain('out of darts')
    expect((await read('failures', 's-2')).stdout).toMatch(/^no task has failed\n/)
  })
})

describe('status of a run that went wrong', () => {
  it('status: lost nodes are counted, and a workflow is resumed by its engine', async () => {
    const nodes = [
      { nodeId: 'n1', cores: 1 },
      { nodeId: 'n2', cores: 1, to: 2 },
    ]
    const tasks = [
      { uid: 'a', start: 0, end: 1 },
      { uid: 'b', ready: 1, start: 1, dependencies: ['a'] },
    ]
    const file = join(folder.path, 'telemetry', 'lost.5.telemetry.jsonl')
    writeFileSync(file, linesOf(eventsOf({ nodes, tasks, end: 20 }).slice(0, -1)))
    const { stdout } = await read('status', file)
    expect(stdout).toMatch(/^2 tasks: 1 done, .*, 1 node lost$/m)
    expect(stdout).toContain("start the program again with: await flow.resume('telemetry/lost.5.")
    expect((await read('status', 's-2')).stdout).toContain('await flow.resume')
    const single = join(folder.path, 'telemetry', 'single.5.telemetry.jsonl')
    writeFileSync(single, linesOf(eventsOf({ nodes, tasks: [{ uid: 'a' }], end: 20 }).slice(0, -1)))
    expect((await read('status', single)).stdout).toContain('await session.resume')
  })
})

describe('explain', () => {
  it('explain: the waits of a task, of which the sum is its life', async () => {
    const { waits, task, attempts } = await readJson('explain', 'sum', path)
    const others = { retries: 0, away: 0 }
    expect(waits).toEqual({ dependencies: 4, routing: 0, queue: 0, start: 1, run: 1, ...others })
    expect(task).toMatchObject({ uid: 'sum', state: 'DONE', created: 0, ended: 6 })
    const attempt = { worker_id: 'n1/local/w1', start: 5, end: 6, seconds: 1, outcome: 'completed' }
    expect(attempts).toEqual([{ ...attempt, attempt: 1, error: null, is_earlier: false }])
  })

  it('explain: a task that waits says for what, behind whom, and on which resource', async () => {
    expect(await readJson('explain', 'second', 's-2')).toMatchObject({
      task: { state: 'QUEUED' },
      tasks_ahead: 1,
      behind: ['first'],
      shortage: { resource: 'gpus', asked: 1, free: 0, total: 1 },
    })
    // Its process was killed: nothing waits or runs any more.
    const { stdout } = await read('explain', 'second', 's-2')
    expect(stdout).toContain('was behind first')
    expect(stdout).toContain('waited for 1 gpu: 0 of 1 were free on the best node')
    expect((await read('explain', 'holds', 's-2')).stdout).toContain('ran for 2.00 s or longer')
    expect((await read('status', 's-2')).stdout).toMatch(/\nname .* interrupted /)
    const lock = acquireLock(lockPathOf(folder.path, 's-2'))
    const live = (await read('explain', 'second', 's-2')).stdout
    const holds = (await read('explain', 'holds', 's-2')).stdout
    lock.release()
    expect(live).toContain('  behind first')
    expect(live).toContain('waits for 1 gpu: 0 of 1 are free on the best node')
    // It began at second 1 of the epoch, and its time advances with the clock.
    expect(holds).toMatch(/runs for \d{6} h/)
    expect(await readJson('explain', 'last', 's-2')).toMatchObject({ waits_for: ['second'] })
  })

  it('explain: behind a task that lacks a resource it says behind whom, and what', async () => {
    const program = { taskType: 'compute' as const, worker: 'n1/local/p1' }
    const told = eventsOf({
      nodes: [{ nodeId: 'n1', cores: 4, gpus: 1, workers: 2, maxProcesses: 8 }],
      tasks: [
        { uid: 'g1', start: 1, resources: gpu, ...program },
        { uid: 'g2', resources: gpu, ...program },
        { uid: 'p1', ...program },
      ],
      end: 20,
    })
    const file = join(folder.path, 'telemetry', 'order.5.telemetry.jsonl')
    writeFileSync(file, linesOf(told.slice(0, -1)))
    const shortage = { resource: 'gpus', asked: 1, free: 0, total: 1, labels: {} }
    expect(await readJson('explain', 'p1', file)).toMatchObject({
      tasks_ahead: 1,
      behind: ['g2'],
      shortage: null,
      held_up_by: { uid: 'g2', shortage },
    })
    expect((await read('explain', 'p1', file)).stdout).toContain(
      '  was behind g2\n  g2 waited for 1 gpu: 0 of 1 were free on the best node\n',
    )
  })

  it('explain: a task with labels names those that only some nodes have', async () => {
    const resources = { cores: 1, gpus: 0, memory_mb: 0, ranks: 1, labels: { disk: 'ssd' } }
    const nodes = [
      { nodeId: 'n1', cores: 1, labels: { disk: 'ssd' } },
      { nodeId: 'n2', cores: 4 },
    ]
    const tasks = [
      { uid: 'runs', start: 1, resources },
      { uid: 'waits', resources },
    ]
    const file = join(folder.path, 'telemetry', 'labels.5.telemetry.jsonl')
    writeFileSync(file, linesOf(eventsOf({ nodes, tasks, end: 20 }).slice(0, -1)))
    expect((await read('explain', 'waits', file)).stdout).toContain(
      'waited for 1 core of a node with disk=ssd: 0 of 1 were free on the best node',
    )
  })

  it('explain: takes a uid that is shortened, and by default the latest record', async () => {
    expect(await readJson('explain', 'su', 's-1')).toMatchObject({ task: { uid: 'sum' } })
    expect(await readJson('explain', 'sum')).toMatchObject({ session_id: 'x-9' })
  })
})

describe('top', () => {
  it('top: a task that waits for its next attempt is not among those that run', async () => {
    const file = join(folder.path, 'telemetry', 'retry.5.telemetry.jsonl')
    const at = { node_id: 'n1', worker_id: 'n1/local/w1' }
    const events = ['TaskCreated', 'TaskSubmitted', 'TaskQueued', 'TaskStarted'].map((type) =>
      viewEvent(type, 'again', { event_time: 1, attributes: { worker_id: 'n1/local/w1' } }),
    )
    const failed = viewEvent('tutti.TaskAttempt', 'again', { event_time: 2, retry_at: 60, ...at })
    writeFileSync(file, linesOf([viewEvent('SessionStarted'), ...events, failed]))
    expect(await readJson('top', file)).toMatchObject({ running_tasks: [] })
    expect(await readJson('explain', 'again', file)).toMatchObject({ retry_at: 60 })
    expect((await read('explain', 'again', file)).stdout).toContain('waited for attempt 2, which')
  })

  it('top: of a killed run no task is said to run', async () => {
    const { stdout } = await read('top', 's-2')
    expect(stdout).toMatch(/\ninterrupted task +for .*\nholds +2\.00 s/)
    expect(stdout).not.toContain('running')
  })

  it('top: without a terminal it is shown once, with the tasks that run longest', async () => {
    expect(await readJson('top', 's-2')).toMatchObject({
      running_tasks: [{ uid: 'holds', worker_id: 'n1/local/w1', seconds: 2 }],
    })
    expect((await read('top', 's-1')).stdout).toMatch(/^session s-1 {2}ended after/)
  })
})

describe('the form of the output', () => {
  it('row 96: a closed pipe ends a reader quietly', async () => {
    for (const args of [['tasks'], ['status'], ['tail'], ['top'], ['failures']]) {
      const command = startCommandIn(folder.path, [...args, path])
      command.child.stdout?.destroy()
      const end = await command.ended
      expect([args, end.code, end.stderr]).toEqual([args, 0, ''])
    }
  })
})
