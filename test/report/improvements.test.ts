import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { ReportData } from '../../src/report/report-data.ts'
import { assertProperty } from '../property.ts'
import { eventsOf, passOver } from '../views/synthetic-run.ts'
import { changedBy, savedBy } from './changed-workloads.ts'
import { eventsOfSchedule, type Job, schedule, type Workload } from './list-schedule.ts'
import { reportOf, reportOfRun } from './synthetic-reports.ts'

interface Said {
  readonly kind: string
  readonly said: number
  /** By how much the run is shorter when it is run again with the change. */
  readonly saved: number
}

const reportOfWorkload = (workload: Workload): ReportData =>
  reportOf(passOver(eventsOfSchedule(workload, schedule(workload))))

/** Runs the workload, and again with each change that its report proposes. */
function tryImprovements(workload: Workload): { report: ReportData; said: Said[] } {
  const first = schedule(workload)
  const report = reportOf(passOver(eventsOfSchedule(workload, first)))
  const said = report.boundText.improvements.flatMap((text) => {
    const changed = changedBy(text, workload)
    if (changed === null) return []
    const saved = first.end - schedule(changed.workload).end
    return [{ kind: changed.kind, said: savedBy(text), saved }]
  })
  return { report, said }
}

const nodes = (cores: number, more: object = {}) => [{ nodeId: 'n1', cores, ...more }]

const jobs = (count: number, seconds: number, more: Partial<Job> = {}): Job[] =>
  Array.from({ length: count }, (_, at) => {
    return { uid: `${more.name ?? 't'}${at}`, attempts: [{ seconds }], ...more }
  })

const chained = (all: readonly Job[]): Job[] =>
  all.map((job, at) => ({ ...job, dependencies: at === 0 ? [] : [all[at - 1]?.uid ?? ''] }))

const failsOnce = (seconds: number, delay: number) => ({
  attempts: [{ seconds, delay }, { seconds: 1 }],
})

/** A run, what its report must propose, and how much that saves. */
const known: readonly [name: string, workload: Workload, kind: string, saved: number][] = [
  ['bag', { nodes: nodes(4), jobs: jobs(40, 1) }, 'With twice as many slots', 5],
  ['too few gpus', { nodes: nodes(8, { gpus: 1 }), jobs: jobs(20, 1, { gpus: 1 }) }, 'gpus', 17],
  [
    'too little memory',
    { nodes: nodes(8, { memoryMb: 1000 }), jobs: jobs(10, 1, { memoryMb: 900 }) },
    'With enough memory',
    8,
  ],
  [
    'late starts',
    { nodes: nodes(8), jobs: jobs(96, 0.125), gap: 0.125 },
    'With the work of about',
    10.5,
  ],
  [
    'a node that joins late',
    { nodes: [...nodes(1), { nodeId: 'n2', cores: 3, from: 8 }], jobs: jobs(20, 1) },
    'If the nodes were present',
    6,
  ],
  [
    'tasks that come late',
    { nodes: nodes(2), jobs: jobs(20, 1).map((job, at) => ({ ...job, created: 2 * at })) },
    'If tasks were ready earlier',
    29,
  ],
  [
    'labels that one node has',
    {
      nodes: [...nodes(1, { labels: { disk: 'ssd' } }), { nodeId: 'n2', cores: 3 }],
      jobs: jobs(12, 1, { labels: { disk: 'ssd' } }),
    },
    'If all nodes had the labels',
    9,
  ],
]

/** A run, and what its report must say about its tasks. */
const costs: readonly [name: string, workload: Workload, text: string][] = [
  [
    'chain',
    { nodes: nodes(4), jobs: chained(jobs(10, 1)) },
    'Faster simulate tasks would shorten it: they take 100 % of the critical path.',
  ],
  [
    'one straggler',
    { nodes: nodes(4), jobs: [...jobs(40, 1), { uid: 'slow', attempts: [{ seconds: 50 }] }] },
    'Stragglers on the critical path took 49.0 s longer than most tasks of their names.',
  ],
  [
    'failed attempts in a chain',
    { nodes: nodes(4), jobs: chained(jobs(5, 1, failsOnce(1, 0))) },
    'Attempts that failed or were lost took 5.00 s of slot time.',
  ],
  [
    'failed attempts while others wait for slots',
    { nodes: nodes(2), jobs: jobs(20, 1, failsOnce(1, 0)) },
    'Attempts that failed or were lost took 20.0 s of slot time.',
  ],
]

/** The changed run has no gaps before starts, whatever the report calls them. */
const startKinds = new Set(['If no ready task waited', 'With the work of about'])

const countStartReasons = ({ bounds: { slotSeconds } }: ReportData): number =>
  [slotSeconds.startingWorkers, slotSeconds.taskOverhead, slotSeconds.heldBack].filter(Boolean)
    .length

describe('what would shorten a run', () => {
  it.each(costs)('report: %s: the time that tasks took is named', (_, workload, text) => {
    expect(reportOfWorkload(workload).boundText.improvements).toContain(text)
  })

  it.each(known)(
    'report: %s: the number is what the change saves at most, and near it',
    (...row) => {
      const [, workload, kind, expected] = row
      const { report, said } = tryImprovements(workload)
      const own = said.find((one) => one.kind.includes(kind))
      expect(own, report.boundText.improvements.join('\n')).toBeDefined()
      expect(own?.saved).toBeCloseTo(expected, 6)
      expect(own?.said).toBeGreaterThanOrEqual(expected - 0.006)
      expect(own?.said).toBeLessThanOrEqual(1.12 * expected + 0.006)
    },
  )

  it('report: whatever is proposed for a run, it saves no more than is said', () => {
    const kinds = new Set<string>()
    assertProperty(
      fc.property(anyWorkload, (workload) => {
        const { report, said } = tryImprovements(workload)
        for (const { kind, said: max, saved } of said) {
          kinds.add(kind)
          if (startKinds.has(kind) && countStartReasons(report) > 1) continue
          // Three digits are said, of two numbers that are rounded.
          expect(saved, `${kind}: ${report.boundText.improvements.join('\n')}`).toBeLessThanOrEqual(
            max + 0.01 * report.bounds.seconds,
          )
          expect(max).toBeGreaterThan(0)
        }
      }),
      { numRuns: 100, longRuns: 20_000 },
    )
    expect(kinds.size).toBeGreaterThan(8)
  })

  it('report: there are three sentences, and a run takes no less than they say', () => {
    const lengths = new Set<string>()
    assertProperty(
      fc.property(anyWorkload, (workload) => {
        const { improvements } = reportOfWorkload(workload).boundText
        expect(improvements).toHaveLength(3)
        const wide = workload.nodes.map((node) => ({ ...node, cores: 1000 }))
        const changed = {
          'However many slots': schedule({ ...workload, nodes: wide, gap: 0 }).end,
          'in any order of its tasks': schedule({ ...workload, gap: 0 }).end,
        }
        for (const [kind, end] of Object.entries(changed)) {
          const text = improvements.find((one) => one.includes(kind))
          const [, min = '', unit = ''] = /at least ([\d.]+) (m?s)/.exec(text ?? '') ?? []
          if (text === undefined) continue
          lengths.add(kind)
          expect(Number(min)).toBeGreaterThan(0)
          // Three digits are said.
          expect(Number(min) / (unit === 'ms' ? 1000 : 1), text).toBeLessThanOrEqual(1.01 * end)
        }
      }),
      { numRuns: 100, longRuns: 20_000 },
    )
    expect(lengths.size).toBe(2)
  })

  it('report: failures beside a task that takes the whole run cost nothing', () => {
    const main = { uid: 'main', name: 'main', attempts: [{ seconds: 10 }] }
    const workload = {
      nodes: nodes(2),
      jobs: [main, ...jobs(10, 1, { name: 'x', isFailed: true })],
    }
    const { boundText } = tryImprovements(workload).report
    expect(boundText.improvements.join('\n')).not.toMatch(
      /Attempts that failed|twice as many slots/,
    )
  })

  it('report: late starts are not reported as too few gpus', () => {
    const gpus = nodes(8, { gpus: 4 })
    const { report, said } = tryImprovements({
      nodes: gpus,
      jobs: jobs(40, 0.25, { gpus: 1 }),
      gap: 0.125,
    })
    expect(report.boundText.bound).toBe('short tasks')
    expect(said.map(({ kind }) => kind)).toEqual(['With the work of about'])
    expect(said[0]?.saved).toBe(2.625)
    expect(said[0]?.said).toBeCloseTo(2.63, 6)
  })

  it('report: tasks that were all ready at the start cannot be ready earlier', () => {
    const { said } = tryImprovements({ nodes: nodes(8), jobs: jobs(96, 0.125), gap: 0.125 })
    expect(said.map(({ kind }) => kind)).toEqual(['With the work of about'])
  })
})

describe('a run that is not over', () => {
  const tasks = [
    { uid: 'a', start: 0, end: 1 },
    { uid: 'b', start: 0, end: 2.04, worker: 'n1/local/w2' },
    ...Array.from({ length: 11 }, (_, at) => ({ uid: `c${at}` })),
  ]
  const run = { nodes: nodes(2), tasks, end: 2.5 }

  it('report: gives no sentence about what would shorten it, and says that it is not over', () => {
    const events = eventsOf(run).filter(({ event_type }) => event_type !== 'SessionEnded')
    const killed = reportOf(passOver(events), {}, 'interrupted')
    expect(killed.boundText.improvements).toEqual([])
    expect(killed.boundText.sentences[1]).toBe(
      'The run is not over, 11 tasks have no end: this is about its time up to its last event.',
    )
    const live = reportOf(passOver(events), {}, 'running').boundText
    expect(live.improvements).toEqual([])
    expect(live.sentences[1]).toBe('The run is in progress: this is about its time so far.')
    const ended = reportOfRun(run).boundText
    expect(ended.improvements).toEqual([])
    expect(ended.sentences[1]).toBe(
      '11 tasks have no end in the record, so what would shorten the run is not known.',
    )
  })

  it('report: one that was stopped is told as such, and its full slots bounded it', () => {
    const cut = ['a', 'b'].map((uid, at) => ({
      uid,
      start: 0,
      end: 2.5,
      worker: `n1/local/w${at}`,
    }))
    const stopped = [...cut, ...tasks.slice(2).map((task) => ({ ...task, end: 2.5 }))].map(
      (task) => ({ ...task, endType: 'TaskCanceled' as const }),
    )
    const events = eventsOf({ ...run, tasks: stopped }).map((event) =>
      event.event_type === 'TaskCanceled'
        ? { ...event, attributes: { ...event.attributes, reason: 'session closed' } }
        : event,
    )
    const { boundText } = reportOf(passOver(events))
    expect(boundText).toMatchObject({ bound: 'slots', improvements: [] })
    expect(boundText.sentences[1]).toBe(
      'The run was stopped, 13 tasks were canceled then: this is about its time up to its end.',
    )
    const again = eventsOf({ ...run, tasks: cut }).map((event) => ({
      ...event,
      event_time: event.event_time + 10,
      attributes:
        event.event_type === 'SessionStarted' ? { resumed_from: 'first' } : event.attributes,
    }))
    const resumed = reportOf(passOver([...events, ...again])).boundText
    expect(resumed.sentences.join('\n')).not.toContain('was stopped')
  })

  it('report: of fewer than four finished tasks of a name none is a straggler', () => {
    const durations = (...all: number[]) =>
      all.map((seconds, at) => ({
        uid: `t${at}`,
        start: 0,
        end: seconds,
        worker: `n1/local/w${at}`,
      }))
    const stragglersOf = (...all: number[]) =>
      reportOfRun({ nodes: nodes(4), tasks: durations(...all), end: 5 }).bounds.stragglers.length
    expect(stragglersOf(1, 2.04)).toBe(0)
    expect(stragglersOf(1, 1, 5)).toBe(0)
    expect(stragglersOf(1, 1, 1, 5)).toBe(1)
  })
})

/** Times are parts of two: their sums are exact. */
const eighths = (min: number, max: number) => fc.integer({ min, max }).map((count) => count / 8)

const anyJob = fc.record({
  name: fc.constantFrom('a', 'b', 'c'),
  created: fc.oneof({ weight: 3, arbitrary: fc.constant(0) }, eighths(0, 60)),
  parent: fc.option(fc.nat(), { freq: 2 }),
  gpus: fc.constantFrom(0, 0, 0, 1),
  memoryMb: fc.constantFrom(0, 0, 400, 900),
  isLabelled: fc.boolean(),
  failed: fc.array(fc.record({ seconds: eighths(1, 24), delay: eighths(0, 16) }), {
    maxLength: 2,
  }),
  seconds: fc.oneof({ weight: 9, arbitrary: eighths(1, 16) }, eighths(40, 200)),
  isFailed: fc.boolean(),
})

interface Traits {
  readonly hasGpus: boolean
  readonly hasMemory: boolean
  readonly hasLabels: boolean
  readonly hasDependencies: boolean
  readonly hasFailures: boolean
  readonly isLate: boolean
}

const anyWorkload = fc
  .record({
    traits: fc.record({
      hasGpus: fc.boolean(),
      hasMemory: fc.boolean(),
      hasLabels: fc.boolean(),
      hasDependencies: fc.boolean(),
      hasFailures: fc.boolean(),
      isLate: fc.boolean(),
    }),
    jobs: fc.array(anyJob, { minLength: 1, maxLength: 30 }),
    cores: fc.integer({ min: 1, max: 6 }),
    second: fc.integer({ min: 0, max: 4 }),
    joined: eighths(0, 60),
    gap: fc.constantFrom(0, 0, 0.125, 0.5),
  })
  .map(({ traits, jobs: all, cores, second, joined, gap }): Workload => ({
    nodes: [
      ...nodes(cores, { gpus: 1, memoryMb: 1000, labels: { disk: 'ssd' } }),
      ...(second > 0 ? [{ nodeId: 'n2', cores: second, from: traits.isLate ? joined : 0 }] : []),
    ],
    gap,
    jobs: all.map((job, at) => toJob(job, at, traits)),
  }))

type AnyJob = typeof anyJob extends fc.Arbitrary<infer Value> ? Value : never

function toJob(job: AnyJob, at: number, traits: Traits): Job {
  const { hasGpus, hasMemory, hasLabels, hasDependencies, hasFailures, isLate } = traits
  const hasParent = hasDependencies && job.parent !== null && at > 0
  return {
    uid: `t${at}`,
    name: job.name,
    created: isLate ? job.created : 0,
    dependencies: hasParent ? [`t${(job.parent ?? 0) % at}`] : [],
    gpus: hasGpus ? job.gpus : 0,
    memoryMb: hasMemory ? job.memoryMb : 0,
    ...(hasLabels && job.isLabelled ? { labels: { disk: 'ssd' } } : {}),
    attempts: [...(hasFailures ? job.failed : []), { seconds: job.seconds }],
    // Dependents of a failed task do not run.
    isFailed: hasFailures && !hasDependencies && job.isFailed,
  }
}
