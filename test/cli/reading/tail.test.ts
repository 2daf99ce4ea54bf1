import { spawn } from 'node:child_process'
import { appendFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { acquireLock, createHolder, lockPathOf } from '../../../src/checkpoint/lock.ts'
import { eventsOf, type SyntheticRun } from '../../views/synthetic-run.ts'
import { viewEvent } from '../../views/view-event.ts'
import { type CommandEnd, runHere, startCommandIn } from '../run-command.ts'
import { linesOf, recordFolder, writeRecord } from './record-file.ts'

const folder = recordFolder()
afterAll(() => folder.remove())

const run: SyntheticRun = {
  nodes: [{ nodeId: 'n1', cores: 4 }],
  tasks: [
    { uid: 'sim-1', start: 1, end: 4 },
    { uid: 'sim-2', start: 1, end: 3, worker: 'n1/local/w2', endType: 'TaskFailed' },
    { uid: 'sum', name: '/opt/reduce', ready: 4, start: 5, end: 6, dependencies: ['sim-1'] },
  ],
  end: 10,
}
const path = writeRecord(folder.path, run)
const read = (...args: readonly string[]): Promise<CommandEnd> => runHere(folder.path, args)

interface ShownEvent {
  readonly event_type: string
  readonly task_id: string | null
}

const eventsIn = ({ stdout }: CommandEnd): ShownEvent[] =>
  stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as ShownEvent)

/** As if this process wrote the records of the session. */
function written(): Disposable {
  const lock = acquireLock(lockPathOf(folder.path, 's-1'))
  return { [Symbol.dispose]: () => lock.release() }
}

describe('tail', () => {
  it('tail: takes --limit for the number of events, as other commands do', async () => {
    const limited = await read('tail', path, '--json', '--limit', '2')
    expect(limited.stdout.trimEnd().split('\n')).toHaveLength(2)
    expect(limited).toEqual(await read('tail', path, '--json', '-n', '2'))
  })

  it('tail: the latest events that match, as one JSON value a line', async () => {
    const end = await read('tail', path, '--json', '--task', 'sim-1', '-n', '2')
    const events = end.stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as object)
    expect(events).toMatchObject([{ event_type: 'TaskStarted' }, { event_type: 'TaskCompleted' }])
    const failed = await read('tail', path, '--type', 'TaskFailed', '--type', 'SessionEnded')
    expect(failed.stdout.trim().split('\n')).toHaveLength(2)
    expect(failed.stdout).toContain('TaskFailed  sim-2  simulate  2.00 s')
    expect((await read('tail', path, '--name', 'reduce', '--json')).stdout).not.toContain(
      '"task_id":"sim-1"',
    )
  })

  const unknown: readonly [option: string, value: string, told: string][] = [
    ['--task', 'sim-4', 'no event has the task "sim-4"; did you mean "sim-1"?'],
    ['--type', 'TaskFaild', 'no event has the type "TaskFaild"; did you mean "TaskFailed"?'],
    ['--type', 'tutti.TaskAtempt', 'did you mean "tutti.TaskAttempt"?'],
    ['--type', 'my.Event', 'no event has the type "my.Event"'],
    ['--name', 'reduc', 'did you mean "reduce"?'],
    ['--node', 'n2', 'did you mean "n1"?'],
    ['--backend', 'lokal', 'did you mean "local"?'],
  ]
  it.each(unknown)(
    'row 95: tail %s %s ends with 2 and the nearest',
    async (option, value, told) => {
      const end = await read('tail', path, option, value)
      expect([end.code, end.stdout, end.stderr]).toEqual([2, '', expect.stringContaining(told)])
    },
  )

  it('tail: known values that no event has together give nothing', async () => {
    for (const more of [
      ['--type', 'TaskCanceled'],
      ['--type', 'tutti.NodeLost'],
      ['-n', '0'],
    ]) {
      const end = await read('tail', path, '--task', 'sim-1', ...more)
      expect([end.code, end.stdout, end.stderr]).toEqual([0, '', ''])
    }
    const failed = await read('tail', path, '--task', 'sim-1', '--type', 'TaskFailed')
    expect([failed.code, failed.stdout, failed.stderr]).toEqual([0, '', ''])
  })

  it('tail: shows the fields of custom events and of those of the library', async () => {
    const file = join(folder.path, 'fields.4.telemetry.jsonl')
    const events = [
      viewEvent('my.Checked', 'a', { energy: -1.5, label: 'best', note: 'two words\nand a line' }),
      viewEvent('my.Checked', null, { ids: ['x', 'y'], empty: '', none: null, ok: true }),
      viewEvent('tutti.SubscriberError', null, { subscriber: 'log', count: 3, message: 'no disk' }),
      viewEvent('tutti.TaskAttempt', 'a', { attempt: 1, error_type: 'E', retry_at: 101.5 }),
      viewEvent('TaskCompleted', 'a', { duration_seconds: 2, foreign: 'not of the specification' }),
    ]
    writeFileSync(file, linesOf(events))
    const { stdout } = await read('tail', file)
    const shown = stdout.trimEnd().split('\n')
    expect(shown.map((line) => line.replace(/^.*? {2}/, ''))).toEqual([
      'my.Checked  a  simulate  energy=-1.5  label=best  note="two words\\nand a line"',
      'my.Checked  simulate  ids=["x","y"]  empty=""  ok=true',
      'tutti.SubscriberError  simulate  subscriber=log  count=3  message="no disk"',
      expect.stringMatching(/^tutti\.TaskAttempt .* E {2}attempt=1 {2}retry_at=\d\d:\d\d:41\.500$/),
      'TaskCompleted  a  simulate  2.00 s',
    ])
  })

  it('tail: -f waits for a task that a run does not have yet', async () => {
    const file = join(folder.path, 'later.4.telemetry.jsonl')
    writeFileSync(file, linesOf([viewEvent('SessionStarted'), viewEvent('TaskCreated', 'a')]))
    using _ = written()
    const wrong = await read('tail', '-f', file, '--type', 'TaskFaild')
    expect([wrong.code, wrong.stderr]).toEqual([2, expect.stringContaining('"TaskFailed"')])
    const command = startCommandIn(folder.path, ['tail', '-f', file, '--task', 'b'])
    appendFileSync(file, linesOf([viewEvent('TaskCreated', 'b')]))
    await command.seen('TaskCreated  b')
    appendFileSync(file, linesOf([viewEvent('SessionEnded')]))
    expect((await command.ended).code).toBe(0)
  })

  it('tail: finds few events far before the end of a large record', async () => {
    const file = join(folder.path, 'large.3.telemetry.jsonl')
    const one = linesOf([viewEvent('TaskFailed', 'needle')])
    writeFileSync(file, one + linesOf([viewEvent('TaskQueued', 'hay')]).repeat(12_000))
    const end = await read('tail', file, '--type', 'TaskFailed', '--json')
    expect(JSON.parse(end.stdout)).toMatchObject({ task_id: 'needle' })
  })

  it('tail: follows a record that grows, until its session ends', async () => {
    const file = join(folder.path, 'live.4.telemetry.jsonl')
    writeFileSync(file, linesOf([viewEvent('SessionStarted'), viewEvent('TaskCreated', 'a')]))
    using _ = written()
    const command = startCommandIn(folder.path, ['tail', '-f', file])
    await command.seen('TaskCreated  a')
    const [half, rest] = [linesOf([viewEvent('TaskCreated', 'b')]).slice(0, 40), 40] as const
    appendFileSync(file, half)
    appendFileSync(file, linesOf([viewEvent('TaskCreated', 'b')]).slice(rest))
    await command.seen('TaskCreated  b')
    appendFileSync(file, linesOf([viewEvent('SessionEnded')]))
    const end = await command.ended
    expect(end.code).toBe(0)
    expect(end.stdout.match(/TaskCreated {2}b/g)).toHaveLength(1)
  })

  it('row 26: tail -f ends with 130 on SIGINT', async () => {
    const file = join(folder.path, 'open.4.telemetry.jsonl')
    writeFileSync(file, linesOf([viewEvent('SessionStarted')]))
    using _ = written()
    const command = startCommandIn(folder.path, ['tail', '-f', file])
    await command.seen('SessionStarted')
    command.child.kill('SIGINT')
    expect((await command.ended).code).toBe(130)
  })

  it('tail: --name shows all events of those tasks, also those that have no name', async () => {
    const file = join(folder.path, 'named.5.telemetry.jsonl')
    const attempts = ['sim-1', 'sum'].flatMap((uid) => [
      { ...viewEvent('tutti.AttemptStarted', uid, { event_time: 5 }), attributes: {} },
      { ...viewEvent('tutti.TaskAttempt', uid, { event_time: 5 }), attributes: {} },
    ])
    const events = [...eventsOf(run), ...attempts].toSorted((a, b) => a.event_time - b.event_time)
    writeFileSync(file, linesOf(events))
    const shown = eventsIn(await read('tail', file, '--name', 'reduce', '--json', '-n', '99'))
    expect(new Set(shown.map(({ task_id }) => task_id))).toEqual(new Set(['sum']))
    const types = shown.map(({ event_type }) => event_type)
    expect(types).toEqual(expect.arrayContaining(['tutti.AttemptStarted', 'tutti.TaskAttempt']))
    expect(shown).toHaveLength(events.filter(({ task_id }) => task_id === 'sum').length)
  })

  it("tail: --name knows the names of a workflow's prompts, and shows them", async () => {
    const file = join(folder.path, 'prompts.5.telemetry.jsonl')
    const of = (uid: string, name: string) => {
      const attributes = { executable: 'tiny.gguf', task_type: 'ai', 'tutti.name': name }
      return { ...viewEvent('TaskCompleted', uid, { event_time: 5 }), attributes }
    }
    writeFileSync(file, linesOf([of('a', 'classify'), of('b', 'summarise')]))
    const { stdout } = await read('tail', file, '--name', 'classify', '-n', '9')
    expect(stdout).toMatch(/TaskCompleted {2}a {2}classify/)
    expect(stdout.trim().split('\n')).toHaveLength(1)
  })

  it('tail: a run that was resumed is read as one, with all its files', async () => {
    writeRecord(folder.path, run, { sessionId: 's-8', seconds: 1 })
    const attributes = { resumed_from: 's-8.1.telemetry.jsonl' }
    const further = [
      viewEvent('SessionStarted', null, { attributes }),
      viewEvent('TaskCreated', 'late', { attributes: { executable: 'simulate' } }),
      viewEvent('SessionEnded'),
    ]
    const last = join(folder.path, 's-8.2.telemetry.jsonl')
    writeFileSync(last, linesOf(further, 's-8'))
    const typesOf = async (...args: readonly string[]): Promise<readonly string[]> =>
      eventsIn(await read('tail', last, '--json', ...args)).map(({ event_type }) => event_type)
    const rest = ['SessionStarted', 'TaskCreated', 'SessionEnded']
    expect(await typesOf('-n', '4')).toEqual(['SessionEnded', ...rest])
    expect(await typesOf('-n', '2')).toEqual(['TaskCreated', 'SessionEnded'])
    expect(await typesOf('--type', 'TaskFailed')).toEqual(['TaskFailed'])
    const types = ['--type', 'TaskCompleted', '--type', 'TaskCreated']
    const named = await typesOf('--name', 'simulate', '-n', '2', ...types)
    expect(named).toEqual(['TaskCompleted', 'TaskCreated'])
  })

  it('tail: -f ends when the process of the run was killed', async () => {
    const other = recordFolder()
    const file = join(other.path, 'live.4.telemetry.jsonl')
    writeFileSync(file, linesOf([viewEvent('SessionStarted'), viewEvent('TaskCreated', 'a')]))
    const writer = spawn(process.execPath, ['-e', 'process.stdin.resume()'])
    writeFileSync(lockPathOf(other.path, 's-1'), JSON.stringify(createHolder(writer.pid ?? 0)))
    const command = startCommandIn(other.path, ['tail', '-f', file])
    await command.seen('TaskCreated  a')
    appendFileSync(file, linesOf([viewEvent('TaskCreated', 'b')]))
    await command.seen('TaskCreated  b')
    writer.kill('SIGKILL')
    const end = await command.ended
    expect([end.code, end.stderr]).toEqual([0, expect.stringContaining('the process was killed')])
    other.remove()
  })

  it('tail: -f ends when the file is replaced', async () => {
    const file = join(folder.path, 'replaced.4.telemetry.jsonl')
    writeFileSync(file, linesOf([viewEvent('SessionStarted'), viewEvent('TaskCreated', 'a')]))
    using _ = written()
    const command = startCommandIn(folder.path, ['tail', '-f', file])
    await command.seen('TaskCreated  a')
    const longer = linesOf(['SessionStarted', 'x', 'y', 'z'].map((type) => viewEvent(type)))
    writeFileSync(`${file}.new`, longer)
    renameSync(`${file}.new`, file)
    const end = await command.ended
    expect([end.code, end.stderr]).toEqual([0, expect.stringContaining('replaced')])
    expect(end.stdout.trim().split('\n')).toHaveLength(2)
  })

  it('tail: -f does not go on within another record that was copied over the file', async () => {
    const file = join(folder.path, 'copied.4.telemetry.jsonl')
    writeFileSync(file, linesOf([viewEvent('SessionStarted'), viewEvent('TaskCreated', 'a')]))
    using _ = written()
    const command = startCommandIn(folder.path, ['tail', '-f', file])
    await command.seen('TaskCreated  a')
    const others = [...Array(40).keys()].map((at) => viewEvent('TaskCreated', `other-${at}`))
    // Into the same file, as cp does it.
    writeFileSync(file, linesOf([viewEvent('SessionStarted'), ...others], 's-77'))
    const end = await command.ended
    expect([end.code, end.stderr]).toEqual([0, expect.stringContaining('replaced')])
    expect(end.stdout).not.toContain('other-')
  })
})
