import { describe, expect, it } from 'vitest'
import type { CheckpointLine, EventLine } from '../../src/checkpoint/format.ts'
import { verdictOf } from './verdict.ts'

let time = 0
const line = (event_type: string, task_id: string | null = null, more: object = {}): EventLine => ({
  section: 'event',
  event_id: `e${++time}`,
  event_type,
  event_time: time,
  emit_time: time,
  session_id: 's-1',
  backend: 'local',
  task_id,
  node_id: null,
  attributes: {},
  trace_id: 't',
  span_id: 's',
  name: event_type,
  ...more,
})

const metrics = (submitted: number, completed: number, running = 0): CheckpointLine => ({
  section: 'metric',
  checkpoint_time: ++time,
  tasks_submitted: submitted,
  tasks_started: submitted,
  tasks_completed: completed,
  tasks_failed: 0,
  tasks_canceled: 0,
  tasks_running: running,
})

const life = (uid: string): EventLine[] =>
  ['TaskCreated', 'TaskSubmitted', 'TaskQueued', 'TaskStarted', 'TaskCompleted'].map((type) =>
    line(type, uid),
  )

const session = (...inside: CheckpointLine[]): CheckpointLine[] => [
  line('SessionStarted'),
  ...inside,
  line('SessionEnded'),
]

describe('verify', () => {
  it('verify: a sound record has no problem', () => {
    const verdict = verdictOf([...session(...life('a'), ...life('b')), metrics(2, 2)])
    expect(verdict).toEqual({
      tasks: 2,
      events: 12,
      unfinished: 0,
      hasEnded: true,
      sessionId: 's-1',
      problems: [],
      problemCount: 0,
    })
  })

  it('verify: an event of the application may be in a trace of the application', () => {
    const custom = line('x.Custom', null, { trace_id: 'other' })
    expect(verdictOf([...session(custom), metrics(0, 0)]).problems).toEqual([])
    const own = line('tutti.WorkerLost', null, { trace_id: 'other' })
    expect(verdictOf([...session(own), metrics(0, 0)]).problemCount).toBe(1)
  })

  it('verify: unfinished tasks are no problem while the session has not ended', () => {
    const verdict = verdictOf([line('SessionStarted'), ...life('a').slice(0, 3)])
    expect(verdict).toMatchObject({ unfinished: 1, hasEnded: false, problemCount: 0 })
  })

  const reused = { attributes: { reused: true } }
  const told = (source: string): EventLine => line('tutti.ResultReused', 'a', { source })

  it('verify: a reused result is told, and of a record only where the file continues one', () => {
    const resumed = line('SessionStarted', null, { attributes: { resumed_from: 'before' } })
    const sound = [resumed, line('TaskCreated', 'a'), told('record')]
    expect(verdictOf([...sound, line('TaskCompleted', 'a', reused)]).problems).toEqual([])
    const first = [line('SessionStarted'), told('stored'), line('TaskCompleted', 'a', reused)]
    expect(verdictOf(first).problems).toEqual([])
  })

  const faults: readonly [string, readonly CheckpointLine[], RegExp][] = [
    ['two sessions', [line('SessionStarted'), line('SessionStarted')], /^a second SessionStarted/],
    [
      'an event of another session',
      [line('SessionStarted'), line('TaskCreated', 'a', { session_id: 's-2' })],
      /^TaskCreated is of session s-2, not s-1/,
    ],
    [
      'a negative duration',
      [line('SessionStarted'), line('TaskFailed', 'a', { duration_seconds: -1 })],
      /^a: TaskFailed has a negative duration/,
    ],
    [
      'a duration that is longer than the run',
      [line('SessionStarted'), line('TaskCompleted', 'a', { duration_seconds: 99_999 })],
      /^a: its duration of 99999 s is longer than the run, which took 1\.0 s/,
    ],
    [
      'a reused end that nothing tells',
      [line('SessionStarted'), line('TaskCompleted', 'a', reused)],
      /^a: TaskCompleted is reused without tutti.ResultReused/,
    ],
    [
      'a result of a record in a first file',
      [line('SessionStarted'), told('record'), line('TaskCompleted', 'a', reused)],
      /^a: reuses the result of a record/,
    ],
    ['no line at all', [], /^there is no event/],
    ['metrics alone', [metrics(0, 0)], /^there is no event/],
    ['a missing end', [...session(...life('a').slice(0, 4)), metrics(1, 0)], /no terminal event/],
    [
      'a second end',
      [...session(...life('a'), line('TaskCanceled', 'a')), metrics(1, 1)],
      /a: TaskCanceled comes after its end/,
    ],
    [
      'events in the wrong order',
      [...session(...life('a').toSpliced(1, 0, line('TaskStarted', 'a'))), metrics(1, 1)],
      /a: TaskSubmitted comes after TaskStarted/,
    ],
    [
      'time that runs backwards',
      [
        ...session(...life('a').slice(0, 4), line('TaskCompleted', 'a', { event_time: 0 })),
        metrics(1, 1),
      ],
      /happened before/,
    ],
    ['a wrong counter', [...session(...life('a')), metrics(1, 7)], /tasks_completed is 7/],
    [
      'tasks that still run at the end',
      [...session(...life('a')), metrics(1, 1, 1)],
      /tasks_running/,
    ],
    ['no metric line', session(...life('a')), /no metric line/],
    [
      'an event after the end',
      [...session(), metrics(0, 0), line('TaskCreated', 'z')],
      /after Session/,
    ],
    ['a late beginning', [...life('a'), line('SessionEnded'), metrics(1, 1)], /the first event/],
    [
      'a foreign trace',
      [...session(line('ResourceUpdate', null, { trace_id: 'other' })), metrics(0, 0)],
      /another trace_id/,
    ],
  ]
  it.each(faults)('verify: finds %s', (_name, lines, expected) => {
    const { problems } = verdictOf(lines)
    expect(problems.join('\n')).toMatch(expected)
  })

  it('verify: a repeated event is one problem, not a wrong counter besides', () => {
    const again = [line('TaskCompleted', 'a'), line('TaskStarted', 'b')]
    const verdict = verdictOf([...session(...life('a'), ...life('b'), ...again), metrics(2, 2)])
    expect(verdict.problems).toEqual([
      'a: TaskCompleted comes after its end',
      'b: TaskStarted comes after its end',
    ])
    expect(verdict.problemCount).toBe(2)
  })
})
