import { describe, expect, it } from 'vitest'
import { renderComparison } from '../../src/report/comparison.ts'
import type { ReportData } from '../../src/report/report-data.ts'
import { describeRun } from '../../src/views/texts/run-overview.ts'
import type { ViewEvent } from '../../src/views/panel.ts'
import { eventsOf, passOver } from '../views/synthetic-run.ts'
import { viewEvent } from '../views/view-event.ts'
import { eventsOfSchedule, type Job, schedule, type Workload } from './list-schedule.ts'
import { compare, reportOf } from './synthetic-reports.ts'

const reportOfWorkload = (workload: Workload): ReportData =>
  reportOf(passOver(eventsOfSchedule(workload, schedule(workload))))

const bag = (count: number, more: Partial<Job> = {}): Job[] =>
  Array.from({ length: count }, (_, at) => {
    return { uid: `t${at}`, attempts: [{ seconds: 1 }], ...more }
  })

const on = (cores: number, more: Partial<Workload> = {}): ReportData =>
  reportOfWorkload({ nodes: [{ nodeId: 'n1', cores }], jobs: bag(40), ...more })

const unmoved = 'No name became slower or faster by 5 % or more.'

describe('why the same tasks took longer', () => {
  it('report: fewer slots, and the waits for them, are told', () => {
    const { verdict, sentences } = compare(on(4), on(2))
    expect(verdict).toBe('The second run was 100 % slower: 20.0 s after 10.0 s.')
    expect(sentences).toEqual([
      unmoved,
      'The second run had 2 slots, the first 4 slots.',
      'Its tasks waited 9.50 s on average from being ready to their start, 4.50 s in the ' +
        'first run.',
    ])
    const faster = compare(on(2), on(4))
    expect(faster.verdict).toContain('50 % faster')
    expect(faster.sentences[1]).toBe('The second run had 4 slots, the first 2 slots.')
  })

  it('report: nothing is told of runs that took as long', () => {
    expect(compare(on(4), on(4)).sentences).toEqual([unmoved])
  })

  it('report: the overhead of starts is named as the idle time that it made', () => {
    const { sentences } = compare(on(4), on(4, { gap: 0.5 }))
    expect(sentences.at(-1)).toMatch(
      /^For \d+ % of its slots' time a ready task was just being started, 0 % in the first run/,
    )
  })

  it('report: attempts that failed before a success are told', () => {
    const attempts = [{ seconds: 1 }, { seconds: 1 }]
    const { verdict, sentences } = compare(on(4), on(4, { jobs: bag(40, { attempts }) }))
    expect(verdict).toContain('100 % slower')
    expect(sentences).toContain(
      'Attempts that failed or were lost took 40.0 s of slot time, none in the first run.',
    )
  })
})

describe('what two runs have in common', () => {
  it('report: a run that reused results of a cache is not compared by its length', () => {
    const tasks = bag(40).map(({ uid }, at) => ({ uid, start: at, end: at + 1 }))
    const run = { nodes: [{ nodeId: 'n1', cores: 1 }], tasks, end: 40 }
    const events = eventsOf(run)
    const reuse = events.map((event) =>
      event.event_type === 'TaskCompleted' && event.task_id !== 't0'
        ? { ...event, event_time: 1, attributes: { ...event.attributes, reused: true } }
        : event,
    )
    const cached = reportOf(
      passOver([
        ...reuse.filter(
          ({ event_type: type, task_id }) =>
            type !== 'SessionEnded' && (type !== 'TaskStarted' || task_id === 't0'),
        ),
        viewEvent('SessionEnded', null, { event_time: 1, duration_seconds: 1 }),
      ]),
    )
    const whole = reportOf(passOver(events))
    const { verdict, severity } = compare(cached, whole)
    const rowOf = (a: ReportData, b: ReportData): string | undefined =>
      /<tr><td>duration<.*?<\/tr>/.exec([...renderComparison(a, b)].join(''))?.[0]
    expect(rowOf(cached, whole)).toContain('>40 times as long<')
    expect(rowOf(whole, cached)).toContain('>40 times shorter<')
    expect([...renderComparison(whole, cached)].join('')).toContain('done per second, not reused')
    expect(verdict).toBe('The same tasks reused different results. They took 1.00 s, then 40.0 s.')
    // One task is no measure, and idle slots or a short path follow from the reuse.
    expect(compare(whole, cached).sentences).toEqual([])
    expect(severity).toBe('warning')
    expect(describeRun(cached).sentence).toBe(
      'All 40 tasks succeeded in 1.00 s (39 results reused).',
    )
  })

  it('report: the rate of runs with another mix of names is not compared', () => {
    const mixed = on(4, { jobs: [...bag(8), ...bag(8, { name: 'reduce' })].map(withUid) })
    const { verdict, sentences } = compare(on(4), mixed)
    expect(verdict).toBe('The runs differ in their tasks. They took 10.0 s, then 4.00 s.')
    expect(sentences).toEqual([unmoved])
  })

  it('report: the same tasks with fewer failures are no bad run', () => {
    const failed = on(4, {
      jobs: bag(40).map((job, at) => ({ ...job, isFailed: at < 8 })),
    })
    expect(compare(on(4), failed)).toMatchObject({
      severity: 'bad',
      verdict: 'The same tasks ended differently. They took 10.0 s, then 10.0 s.',
    })
    expect(compare(failed, on(4)).severity).toBe('warning')
  })
})

const withUid = (job: Job, at: number): Job => ({ ...job, uid: `t${at}` })

describe('whether the durations of a name are compared', () => {
  const ran = (jobs: readonly Job[]): ReportData => on(4, { jobs: jobs.map(withUid) })
  const slow: Partial<Job> = { attempts: [{ seconds: 2 }] }

  it('report: two tasks that were done in both runs are, a single one is not', () => {
    const { sentences } = compare(ran(bag(2)), ran(bag(2, slow)))
    expect(sentences[0]).toMatch(/^Slower: /)
    const single = compare(ran(bag(1)), ran(bag(1, slow)))
    expect(single.sentences.join('\n')).not.toMatch(/Slower|Faster/)
  })

  it('report: one name or several became slower in their slowest tasks', () => {
    const tails = (names: readonly string[], seconds: number): Job[] =>
      names.flatMap((name) => [...bag(18, { name }), ...bag(2, { name, attempts: [{ seconds }] })])
    const told = (...names: string[]): string =>
      compare(ran(tails(names, 2)), ran(tails(names, 4))).sentences[0] ?? ''
    expect(told('a')).toMatch(/^Slower in the slowest tasks: a \(p95 2\.00 s/)
    expect(told('a', 'b')).toMatch(/^Slower in the slowest tasks: a .*, b /)
  })

  it('report: failed tasks are not', () => {
    const failing = (seconds: number): Job[] =>
      bag(12, { name: 'prompt', attempts: [{ seconds }], isFailed: true })
    const { sentences } = compare(
      ran([...bag(40), ...failing(1)]),
      ran([...bag(40), ...failing(0.1)]),
    )
    expect(sentences.join('\n')).not.toContain('Faster')
    // If some tasks of a name failed, the others are compared.
    const some = (seconds: number): Job[] =>
      bag(12, { attempts: [{ seconds }] }).map((job, at) => ({ ...job, isFailed: at < 5 }))
    const early = some(1).map((job) =>
      job.isFailed ? { ...job, attempts: [{ seconds: 9 }] } : job,
    )
    expect(compare(ran(early), ran(some(2))).sentences[0]).toContain(
      'Slower: simulate (median 1.00 s before, 2.00 s now',
    )
  })

  it('report: more reused results are the only cause where other ends differ as well', () => {
    const tasks = (reused: number, failed: number) =>
      bag(40).map(({ uid }, at) => {
        const end = at < failed ? { endType: 'TaskFailed' as const } : {}
        return at < 40 - reused ? { uid, start: at, end: at + 1, ...end } : { uid, end: 0.1 }
      })
    const of = (reused: number, failed: number, end: number): ReportData => {
      const nodes = [{ nodeId: 'n1', cores: 1 }]
      const events = eventsOf({ nodes, tasks: tasks(reused, failed), end })
      const isReused = ({ event_type: type, event_time: time }: ViewEvent): boolean =>
        type === 'TaskCompleted' && time === 0.1
      return reportOf(
        passOver(
          events.map((event) =>
            isReused(event)
              ? { ...event, attributes: { ...event.attributes, reused: true } }
              : event,
          ),
        ),
      )
    }
    expect(compare(of(0, 0, 40), of(39, 1, 1)).sentences).toEqual([
      'The second run reused 39 of 40 results, the first none.',
    ])
  })

  it('report: few tasks of many are not', () => {
    expect(compare(ran(bag(12)), ran(bag(2, slow))).sentences).toEqual([])
    expect(compare(ran(bag(12)), ran(bag(4, slow))).sentences[0]).toContain('Slower')
  })
})
