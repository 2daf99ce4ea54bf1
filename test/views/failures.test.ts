import { describe, expect, it } from 'vitest'
import { failures, type FailuresView } from '../../src/views/panels/failures.ts'
import { names } from '../../src/views/panels/names.ts'
import type { ViewEvent } from '../../src/views/panel.ts'
import { Pass } from '../../src/views/pass.ts'
import { viewEvent } from './view-event.ts'

function failuresOf(events: readonly ViewEvent[]): FailuresView {
  const pass = new Pass({ names, failures })
  for (const event of events) pass.take(event)
  return failures.show(pass.states.failures, { limit: 2 })
}

describe('failures', () => {
  const failed = (uid: string, error_message: string): ViewEvent =>
    viewEvent('TaskFailed', uid, { attributes: { error_type: 'RangeError', error_message } })

  it('failures: groups by name, type and message, the largest first, with the first task', () => {
    const shown = failuresOf([
      failed('a', 'other'),
      failed('b', 'bad seed'),
      failed('c', 'bad seed'),
      failed('c', 'bad seed'),
      failed('d', 'third'),
    ])
    expect(shown).toEqual({
      groups: [
        expect.objectContaining({ message: 'bad seed', count: 2, firstTask: 'b' }),
        expect.objectContaining({ message: 'other', count: 1, firstTask: 'a' }),
      ],
      otherGroups: 1,
      ungrouped: 0,
    })
  })

  it('failures: a failure that a later session has superseded is not told', () => {
    const at = (event: ViewEvent, event_time: number): ViewEvent => ({ ...event, event_time })
    const resumed = viewEvent('SessionStarted', null, {
      event_time: 100,
      attributes: { resumed_from: 'x' },
    })
    const created = (uid: string): ViewEvent => at(viewEvent('TaskCreated', uid), 101)
    const first = [at(failed('a', 'bad seed 1'), 10), at(failed('b', 'bad seed 2'), 20)]
    const events = [viewEvent('SessionStarted', null, { event_time: 1 }), ...first, resumed]
    const groupsOf = (more: readonly ViewEvent[]) => failuresOf([...events, ...more]).groups
    // One runs again, so only the other is left.
    expect(groupsOf([created('a')])).toMatchObject([{ count: 1, firstTime: 20, lastTime: 20 }])
    const again = [created('a'), created('b'), at(failed('b', 'bad seed 3'), 110)]
    expect(groupsOf(again)).toMatchObject([
      { count: 1, firstTime: 110, lastTime: 110, firstTask: 'b', message: 'bad seed 3' },
    ])
    expect(groupsOf([created('a'), created('b')])).toEqual([])
  })

  it('failures: the steps of a workflow are grouped by their names, not by what they run', () => {
    const step = (name: string, uid: string, executable: string): ViewEvent[] => [
      viewEvent('TaskCreated', uid, { attributes: { executable: name } }),
      viewEvent('TaskFailed', uid, {
        attributes: { executable, error_type: 'Boom', error_message: 'bad' },
      }),
    ]
    const { groups } = failuresOf([
      ...step('simulate', 'a', '/opt/one'),
      ...step('simulate', 'b', '/opt/two'),
      ...step('reduce', 'c', '/opt/one'),
    ])
    expect(groups).toMatchObject([
      { name: 'simulate', count: 2, example: { program: '/opt/one' } },
      { name: 'reduce', count: 1, example: { program: '/opt/one' } },
    ])
  })

  it.each([
    [['bad seed 17', 'bad seed 18'], 'bad seed <n>'],
    [['took 1.5 s, not 2e-3', 'took 0.25 s, not 10'], 'took <n> s, not <n>'],
    [['cannot read /tmp/a/1.txt', 'cannot read /srv/b/data.csv'], 'cannot read <path>'],
    [['task-0007 in s-7f3a', 'task-12 in s-81bd'], 'task-<n> in s-<id>'],
    [
      ['id 9b2e4c1a-0f3d-4e5a-8b7c-6d5e4f3a2b1c', 'id 00000000-1111-4222-8333-444444444444'],
      'id <id>',
    ],
    [['at 0x7ffe1234 in x64 mode', 'at 0x10 in x64 mode'], 'at <id> in x<n> mode'],
    [['at -3', 'at .5', 'at 17,000', 'at -1.5e-3'], 'at <n>'],
    [['in s-7972bc18', 'in s-12345678', 'in s-abcdefab'], 'in s-<id>'],
    [['block 7f3a9c01', 'block deadbeef', 'block 80000000'], 'block <id>'],
    [['no /tmp', 'no /tmp/a', 'no ~/a/b', 'no C:\\a\\b'], 'no <path>'],
    [['no data/run1/x.csv', 'no alpha/beta.csv'], 'no <path>'],
    [["open '/data/my run/a'", "open '/data/your run/b'"], "open '<path>'"],
    [['read/write of and/or', 'read/write of either/or'], null],
    [['a decade', 'a facade'], null],
    [['bad seed', 'bad seed'], 'bad seed'],
  ])('failures: %j are one cause', (messages, shown) => {
    const events = messages.map((message, at) => failed(`t${at}`, message))
    const { groups } = failuresOf(events)
    const { length: count } = messages
    if (shown === null) expect(groups).toHaveLength(2)
    else expect(groups).toMatchObject([{ message: shown, count, example: { task: 't0' } }])
  })

  it('failures: programs that ended with different exit codes have different causes', () => {
    const ended = (uid: string, exit_code: number, program = 'sh'): ViewEvent =>
      viewEvent('TaskFailed', uid, {
        attributes: {
          error_type: 'ExecutableFailedError',
          error_message: `${program} exited with code ${exit_code}`,
          exit_code,
        },
      })
    const events = [ended('a', 5), ended('b', 4, 'sh1'), ended('c', 4, 'sh2')]
    expect(failuresOf(events).groups).toMatchObject([
      { count: 2, message: 'sh<n> exited with code 4', example: { exitCode: 4 } },
      { count: 1, message: 'sh exited with code 5', example: { exitCode: 5 } },
    ])
  })

  it('failures: tasks that never ran stand behind the causes, grouped by them', () => {
    const never = (uid: string, root: string, why: string): ViewEvent =>
      viewEvent('TaskFailed', uid, {
        attributes: {
          executable: 'reduce',
          error_type: 'DependencyFailedError',
          error_message: `task ${uid} cannot run (${root} -> x): ${root} failed: ${why}`,
          'tutti.root_task': root,
        },
      })
    const { groups, otherGroups } = failuresOf([
      failed('a', 'bad seed 1'),
      failed('b', 'no space'),
      never('c', 'a', 'bad seed 1'),
      never('d', 'a', 'bad seed 1'),
      never('e', 'b', 'no space'),
    ])
    expect([groups.map(({ message }) => message), otherGroups]).toEqual([
      ['bad seed 1', 'no space'],
      2,
    ])
    const pass = new Pass({ names, failures })
    for (const seed of [1, 2]) {
      pass.take(failed(`a${seed}`, `bad seed ${seed}`))
      for (const uid of ['c', 'd']) {
        pass.take(never(`${uid}${seed}`, `a${seed}`, `bad seed ${seed}`))
      }
    }
    expect(failures.show(pass.states.failures, { limit: 9 }).groups).toMatchObject([
      { count: 2, message: 'bad seed <n>', isConsequence: false },
      { count: 4, message: 'a<n> failed: bad seed <n>', isConsequence: true },
    ])
  })

  it('failures: of one root the cause is told as it was', () => {
    const told = (uid: string): ViewEvent =>
      viewEvent('TaskFailed', uid, {
        attributes: {
          error_type: 'DependencyFailedError',
          error_message: `task ${uid} cannot run: sim-3 failed: RangeError: bad seed 3`,
          'tutti.root_task': 'sim-3',
        },
      })
    expect(failuresOf([told('a-1'), told('a-2')]).groups).toMatchObject([
      { count: 2, message: 'sim-3 failed: RangeError: bad seed 3' },
    ])
  })

  it('failures: the type is the field of TaskFailed, which an own emitter fills', () => {
    const event = viewEvent('TaskFailed', 'a', { error_type: 'Boom' })
    expect(failuresOf([event]).groups).toMatchObject([{ errorType: 'Boom' }])
  })

  it('failures: beyond 1000 groups failures are only counted, and texts are cut', () => {
    const long = 'x'.repeat(100_000)
    const events = Array.from({ length: 1500 }, (_, at) =>
      failed(`t${at}`, `${letters(at)}${long}`),
    )
    const shown = failuresOf(events)
    expect(shown).toMatchObject({ otherGroups: 998, ungrouped: 500 })
    expect(shown.groups[0]?.message).toHaveLength(2000)
  })
})

/** A different word for each number: digits do not distinguish failures. */
const letters = (number: number): string =>
  Array.from(String(number), (digit) => 'ghijklmnop'[Number(digit)]).join('')
