import { describe, expect, it } from 'vitest'
import type { ReportData } from '../../src/report/report-data.ts'
import { eventsOf, passOver, type SyntheticTask } from '../views/synthetic-run.ts'
import { viewEvent } from '../views/view-event.ts'
import { reportOf, reportOfRun } from './synthetic-reports.ts'

const nodes = [{ nodeId: 'n1', cores: 4 }]

const block = (uid: string, more: Partial<SyntheticTask>): SyntheticTask => ({
  uid,
  name: 'inner',
  backend: 'workflow',
  worker: 'n1/workflow/main',
  ...more,
})

/** Two tasks of one second, one dependent on the other, that a block creates at this time. */
const pairOf = (inner: string, at: number): SyntheticTask[] => [
  { uid: `${inner}1`, block: inner, created: at, start: at, end: at + 1 },
  {
    uid: `${inner}2`,
    block: inner,
    created: at,
    ready: at + 1,
    start: at + 1,
    end: at + 2,
    dependencies: [`${inner}1`],
  },
]

const pathOf = ({ bounds, uidOf }: ReportData): string[] =>
  bounds.criticalPath.tasks.map(({ task }) => uidOf(task))

describe('the critical path through blocks', () => {
  it('report: tasks of a block wait for what the block waits for', () => {
    // A block ends shortly after its last task.
    const tasks = [
      block('outer', { start: 0, end: 6.3 }),
      block('a', { block: 'outer', start: 0, end: 2.1 }),
      block('b', { block: 'outer', ready: 2.1, start: 2.1, end: 4.2, dependencies: ['a'] }),
      block('c', { block: 'outer', ready: 4.2, start: 4.2, end: 6.3, dependencies: ['b'] }),
      ...pairOf('a', 0),
      ...pairOf('b', 2.1),
      ...pairOf('c', 4.2),
    ]
    const report = reportOfRun({ nodes, tasks, end: 6.3 })
    expect(report.boundText.bound).toBe('critical path')
    expect(pathOf(report)).toEqual(['a1', 'a2', 'b1', 'b2', 'c1', 'c2'])
    expect(report.bounds.criticalPath).toMatchObject({ length: 6, delaySeconds: 0 })
    expect(report.bounds.criticalPath.seconds).toBeCloseTo(6)
    expect(report.boundText.improvements.join()).not.toContain('submitted earlier')
  })

  it('report: a task that a block made after another one had ended waited for it', () => {
    const steps = [0, 1, 2, 3].map((at) => ({
      uid: `s${at}`,
      block: 'a',
      created: at,
      start: at,
      end: at + 1,
    }))
    // Beside them: it takes longer than any of the steps.
    const beside = { uid: 'x', block: 'a', start: 0, end: 3, worker: 'n1/local/w2' }
    const tasks = [block('a', { start: 0, end: 4 }), beside, ...steps]
    const report = reportOfRun({ nodes, tasks, end: 4 })
    expect(pathOf(report)).toEqual(['s0', 's1', 's2', 's3'])
    expect(report.boundText.bound).toBe('critical path')
  })

  it('report: a block takes as long as its tasks would, not as long as they wait for slots', () => {
    const bag = Array.from({ length: 8 }, (_, at) => ({
      uid: `t${at}`,
      block: 'a',
      start: at,
      end: at + 1,
    }))
    const last = { uid: 'sum', ready: 8.1, start: 8.1, end: 9.1, dependencies: ['a'] }
    const tasks = [block('a', { start: 0, end: 8.1 }), last, ...bag]
    const report = reportOfRun({ nodes: [{ nodeId: 'n1', cores: 1 }], tasks, end: 9.1 })
    expect(pathOf(report).at(-1)).toBe('sum')
    expect(report.bounds.criticalPath.length).toBe(2)
    expect(report.bounds.criticalPath.seconds).toBeCloseTo(2)
    expect(report.boundText.bound).toBe('slots')
  })

  it('report: delays between attempts of a block are a part of the path, and named', () => {
    const attempt = (number: number, at: number): SyntheticTask => {
      return { uid: `t${number}`, block: 'a', created: at, start: at, end: at + 1 }
    }
    const on = { backend: 'workflow', node_id: 'n1', worker_id: 'n1/workflow/main' }
    const events = [
      ...eventsOf({
        nodes,
        tasks: [block('a', { start: 0, end: 7 }), attempt(1, 0), attempt(2, 2), attempt(3, 6)],
        end: 7,
      }),
      viewEvent('tutti.TaskAttempt', 'a', { event_time: 1, retry_at: 2, ...on }),
      viewEvent('tutti.AttemptStarted', 'a', { event_time: 2, ...on }),
      viewEvent('tutti.TaskAttempt', 'a', { event_time: 3, retry_at: 6, ...on }),
      viewEvent('tutti.AttemptStarted', 'a', { event_time: 6, ...on }),
    ]
    // Added events come first at their time: the attempt begins before it creates a task.
    const added = new Set(events.slice(-4))
    const rank = (event: (typeof events)[number]): number =>
      event.event_time + (added.has(event) ? -1e-6 : 0)
    const report = reportOf(passOver(events.toSorted((a, b) => rank(a) - rank(b))))
    expect(pathOf(report)).toEqual(['t1', 't2', 't3'])
    expect(report.bounds.criticalPath).toMatchObject({ length: 3, delaySeconds: 4 })
    expect(report.bounds.criticalPath.seconds).toBeCloseTo(7)
    expect(report.boundText.sentences).toContain(
      '4.00 s of the critical path are delays between attempts (`delaySeconds`): nothing ran in ' +
        'them.',
    )
  })
})
