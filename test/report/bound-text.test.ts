import { afterAll, describe, expect, it } from 'vitest'
import { renderReport } from '../../src/report/page/document.ts'
import { makeReport } from '../../src/report/report.ts'
import type { ReportData } from '../../src/report/report-data.ts'
import { linesOf, recordFolder, writeRecord } from '../cli/reading/record-file.ts'
import {
  eventsOf,
  passOver,
  type SyntheticRun,
  type SyntheticTask,
} from '../views/synthetic-run.ts'
import { viewEvent } from '../views/view-event.ts'
import { boundedRuns, reportOf, reportOfRun } from './synthetic-reports.ts'

/** Tasks of one second, one after the other, all of them ready from the start. */
const queue = (count: number, more: Partial<SyntheticTask> = {}): SyntheticTask[] =>
  Array.from({ length: count }, (_, at) => ({ uid: `t${at}`, start: at, end: at + 1, ...more }))

const gpu = { cores: 1, gpus: 1, memory_mb: 0, ranks: 1 }

/** A chain with a background of other tasks that fill the slots at first. */
const crowdedChain: SyntheticRun = {
  nodes: [{ nodeId: 'n1', cores: 2 }],
  tasks: [
    ...queue(7).map((task, at) => ({
      ...task,
      start: at + 3,
      end: at + 4,
      ...(at === 0 ? {} : { ready: at + 3, dependencies: [`t${at - 1}`] }),
    })),
    ...[0, 1].map((worker) => ({
      uid: `long${worker}`,
      name: 'other',
      start: 0,
      end: 3,
      worker: `n1/local/w${worker + 2}`,
    })),
  ],
  end: 10,
}

const textOf = ({ boundText }: ReportData): string =>
  [...boundText.sentences, ...boundText.improvements].join('\n')

describe('what bounded this run', () => {
  it('report: programs that wait for maxProcesses wait for slots, not for cores', () => {
    const tasks = queue(10, { taskType: 'compute', worker: 'n1/local/p1' })
    const nodes = [{ nodeId: 'n1', cores: 4, workers: 4, maxProcesses: 1 }]
    const { boundText, bounds } = reportOfRun({ nodes, tasks, end: 10 })
    expect(boundText.bound).toBe('slots')
    expect(boundText.sentences[0]).toContain(
      '1 slot for programs (`maxProcesses`) ran tasks 100 % of the time',
    )
    expect(bounds.slotSeconds).toMatchObject({ ran: 10, heldBack: 0 })
    expect(bounds.slotSeconds.processes).toBe(24)
    expect(boundText.improvements[0]).toBe(
      'With twice as many slots it could end up to 5.00 s earlier.',
    )
  })

  it('report: functions that wait for the only worker wait for slots; closures need none', () => {
    const nodes = [{ nodeId: 'n1', cores: 4, workers: 1, maxProcesses: 4 }]
    const functions = reportOfRun({ nodes, tasks: queue(10), end: 10 })
    expect(functions.boundText.bound).toBe('slots')
    expect(functions.boundText.sentences[0]).toContain('1 worker for functions (`workers`)')
    const closures = queue(10, { worker: 'n1/local/main' })
    const { bounds } = reportOfRun({ nodes, tasks: closures, end: 10 })
    expect(bounds.slotSeconds.workers).toBe(0)
  })

  it('report: where the slots of one of two backends are full, those bounded the run', () => {
    const nodes = [
      { nodeId: 'n1', cores: 1, backend: 'a' },
      { nodeId: 'n2', cores: 3, backend: 'b' },
    ]
    const tasks = queue(10, { backend: 'a', worker: 'n1/a/w1' })
    const { boundText } = reportOfRun({ nodes, tasks, end: 10 })
    expect(boundText.bound).toBe('slots')
    expect(boundText.sentences[0]).toContain('1 slot of a ran tasks 100 % of the time')
    expect(boundText.improvements).toContain(
      'With its tasks shared evenly by its 2 backends it could end up to 7.50 s earlier.',
    )
    expect(textOf({ boundText } as ReportData)).not.toContain('submitted earlier')
  })

  it('report: a full gpu bounded the run also where tasks without one wait behind those', () => {
    const plain = queue(6).map((task, at) => ({
      ...task,
      uid: `p${at}`,
      start: 9,
      end: 9.5,
      worker: `n1/local/w${(at % 3) + 2}`,
    }))
    const nodes = [{ nodeId: 'n1', cores: 4, gpus: 1 }]
    const tasks = [...queue(10, { resources: gpu }), ...plain.slice(0, 3)]
    const { boundText } = reportOfRun({ nodes, tasks, end: 10 })
    expect(boundText.bound).toBe('gpus')
    expect(boundText.sentences[0]).toBe(
      'Too few gpus bounded this run: its gpus (1) were in use for 100 % of the time, so the run ' +
        'could not have ended before 10.0 s.',
    )
    // Faster starts cannot make it shorter than the gpu allows.
    expect(textOf({ boundText } as ReportData)).not.toContain('start as soon as')
  })

  it('report: a full gpu is found beyond 255 different requests', () => {
    const few = Array.from({ length: 300 }, (_, at) => ({
      uid: `s${at}`,
      start: 0,
      end: 0.001,
      resources: { cores: 1, gpus: 0, memory_mb: 100 + at, ranks: 1 },
    }))
    const last = queue(10).map((task, at) => ({
      ...task,
      resources: { ...gpu, memory_mb: 1000 + at },
    }))
    const nodes = [{ nodeId: 'n1', cores: 4, gpus: 1, memoryMb: 8000 }]
    const { boundText, bounds } = reportOfRun({ nodes, tasks: [...few, ...last], end: 10 })
    expect(boundText.bound).toBe('gpus')
    expect(bounds.slotSeconds.gpus).toBeCloseTo(24, 1)
  })

  it('report: what would shorten it never contradicts what bounded it', () => {
    const chain = textOf(reportOfRun(boundedRuns.chain))
    expect(chain).toContain('no further slot would have made it shorter')
    expect(chain).toContain('No further slot would shorten it: no task waited for one, and 75 %')
    expect(chain).not.toContain('twice as many slots')
    const crowded = textOf(reportOfRun(crowdedChain))
    expect(crowded).toContain('The critical path bounded this run: 7 tasks')
    expect(crowded).toContain('With twice as many slots it could end up to 3.00 s earlier')
    expect(crowded).not.toContain('no further slot')
  })
})

describe('which bound is named', () => {
  it('report: more slots are not promised to functions that share the thread of a program', () => {
    const tasks = Array.from({ length: 20 }, (_, at) => {
      const start = Math.floor(at / 2)
      return { uid: `t${at}`, start, end: start + 1, worker: 'n1/local/main' }
    })
    const { boundText } = reportOfRun({ nodes: [{ nodeId: 'n1', cores: 2 }], tasks, end: 10 })
    expect(boundText.bound).toBe('slots')
    expect(boundText.sentences.join('\n')).toContain('on one thread')
    expect(boundText.sentences.join('\n')).toContain('`defineTask`')
    expect(boundText.improvements.join('\n')).not.toContain('twice as many slots')
  })

  it('report: the limit of a name, where tasks waited for it beside free slots', () => {
    const tasks = queue(10).map((task) => ({ ...task, queued: task.start ?? 0 }))
    const limits = { simulate: { concurrent: 1, per_second: null } }
    const { boundText } = reportOfRun({
      nodes: [{ nodeId: 'n1', cores: 4 }],
      tasks,
      end: 10,
      limits,
    })
    expect(boundText.bound).toBe('limits')
    expect(boundText.improvements.join('\n')).toContain('Without the limits of the session')
    expect(boundText.improvements.join('\n')).not.toContain('in one task')
  })

  it('report: of slots and short tasks the one that would shorten the run most', () => {
    // Ready from the start, 1.5 s each, and 0.4 s between them.
    const tasks = queue(10).map((task, at) => ({ ...task, start: 1.9 * at, end: 1.9 * at + 1.5 }))
    const run = { nodes: [{ nodeId: 'n1', cores: 1 }], tasks, end: 19 }
    const { boundText } = reportOfRun(run)
    expect(boundText.bound).toBe('slots')
    expect(boundText.sentences[0]).toBe(
      'The slots bounded this run: 1 slot ran tasks 79 % of the time, and for 71 % of it tasks ' +
        'waited because none was free, so more of them would have finished it earlier.',
    )
    expect(boundText.improvements[0]).toContain('With twice as many slots it')
    const reading = { event_time: 18, node_id: 'n1', resource_scope: 'per_node', cpu_percent: 98.6 }
    const busy = reportOf(passOver([...eventsOf(run), viewEvent('ResourceUpdate', null, reading)]))
    expect(busy.boundText.sentences[0]).toMatch(
      /none was free\. The processors were 99 % busy: more slots help only on further proc/,
    )
    expect(busy.boundText.improvements[0]).toContain('With twice as many slots and processors it')
  })

  it("report: the load of other programs is not taken for the run's", () => {
    const run = { nodes: [{ nodeId: 'n1', cores: 1 }], tasks: queue(10), end: 10 }
    const reading = { event_time: 9, node_id: 'n1', resource_scope: 'per_node', cpu_percent: 100 }
    const beside = (run_cpu_percent: number): ReportData =>
      reportOf(
        passOver([
          ...eventsOf(run),
          viewEvent('ResourceUpdate', null, { ...reading, attributes: { run_cpu_percent } }),
        ]),
      )
    const { boundText } = beside(30)
    expect(boundText.sentences).toEqual([
      'The slots bounded this run: 1 slot ran tasks 100 % of the time, so more of them would ' +
        'have finished it earlier.',
      'The processors were 100 % busy, 30 % by this run: other programs took the rest, and the ' +
        'run may be faster without them.',
    ])
    expect(boundText.improvements[0]).toContain('With twice as many slots it')
    expect(beside(96).boundText.sentences).toEqual([
      'The slots bounded this run: 1 slot ran tasks 100 % of the time. The processors were 100 % ' +
        'busy, 96 % by this run: more slots help only on further processors.',
    ])
    // Tasks that sleep would be no faster.
    expect(beside(3).boundText.sentences).toHaveLength(1)
    const page = [...renderReport(beside(3))].join('')
    expect(page).toContain('The processors of the nodes were 100 % busy, 3 % by this run.')
  })

  it('report: the CPU time of programs counts for the run, whoever started them', () => {
    const tasks = queue(10, { taskType: 'compute' })
    const usage = { node_id: 'n1', resource_scope: 'per_node', cpu_percent: 100 }
    const attributes = { run_cpu_percent: 1 }
    const events = eventsOf({ nodes: [{ nodeId: 'n1', cores: 1 }], tasks, end: 10 }).map((event) =>
      event.event_type === 'TaskCompleted'
        ? { ...event, attributes: { ...event.attributes, cpu_seconds: 0.9 } }
        : event,
    )
    const reading = viewEvent('ResourceUpdate', null, { event_time: 9, ...usage, attributes })
    expect(reportOf(passOver([...events, reading])).boundText.sentences[0]).toContain(
      'The processors were 100 % busy, 90 % by this run: more slots help only on',
    )
  })

  it('report: workers that were replaced are named where starting workers bounded the run', () => {
    const { tasks, end } = boundedRuns.overhead
    const nodes = [{ nodeId: 'n1', cores: 1, workers: 1 }]
    const on = (worker: (at: number) => number): string | undefined => {
      const own = tasks.map((task, at) => ({ ...task, worker: `n1/local/w${worker(at)}` }))
      return reportOfRun({ nodes, tasks: own, end }).boundText.sentences[0]
    }
    expect(on(() => 1)).toBe(
      "Tasks too short for their overhead bounded this run: for 40 % of the slots' time a ready " +
        'task was just being started. Put the work of about 5 into one task.',
    )
    expect(on((at) => at + 1)).toContain(
      "Starting workers bounded this run: for 50 % of the slots' time a ready task waited for " +
        'its worker to start and load its module. 4 workers were replaced, because a function',
    )
  })

  it('report: a path that takes longer than the memory allows is the bound', () => {
    const resources = { cores: 1, gpus: 0, memory_mb: 600, ranks: 1 }
    const short = queue(3, { resources }).map((task, at) => ({
      ...task,
      start: 8 + at,
      end: 9 + at,
    }))
    const tasks = [{ uid: 'slow', start: 0, end: 8, resources }, ...short]
    const nodes = [{ nodeId: 'n1', cores: 4, memoryMb: 1000 }]
    const { boundText } = reportOfRun({ nodes, tasks, end: 11 })
    expect(boundText.bound).toBe('straggler')
    expect(boundText.improvements[0]).toContain('Stragglers on the critical path took 7.00 s')
    const full = reportOfRun({ nodes, tasks: queue(10, { resources }), end: 10 })
    expect(full.boundText.bound).toBe('memory')
    expect(full.boundText.sentences[0]).toMatch(/^Too little memory bounded this run/)
    expect(full.boundText.improvements.join()).toContain('memory')
  })

  it('report: the percents of the classes are 100 together', () => {
    const tasks = [{ uid: 'one', start: 0, end: 10 }]
    const nodes = [
      { nodeId: 'n1', cores: 1 },
      { nodeId: 'n2', cores: 1 },
      { nodeId: 'n3', cores: 1, from: 9.9999 },
    ]
    const html = [...renderReport(reportOfRun({ nodes, tasks, end: 10 }))].join('')
    const percents = [...html.matchAll(/(\d+) % \(\d/g)].map(([, found]) => Number(found))
    expect(percents).toHaveLength(3)
    expect(percents.reduce((sum, one) => sum + one, 0)).toBe(100)
  })
})

describe('the critical path of a run', () => {
  it('report: busy slots for which no task waited are not said to be too few', () => {
    const nodes = [{ nodeId: 'n1', cores: 1 }]
    // Each is created when the one before it has ended.
    const tasks = queue(10).map((task) => ({ ...task, created: task.start ?? 0 }))
    const { boundText } = reportOfRun({ nodes, tasks, end: 10 })
    expect(boundText.bound).toBe('slots')
    expect(boundText.sentences).toEqual([
      'The slots bounded this run: 1 slot ran tasks 100 % of the time. No task waited for one: ' +
        'more of them help only with more tasks at a time.',
    ])
  })

  it('report: tasks that wait for nodes with a label, while others are idle, lack it', () => {
    const resources = { cores: 1, gpus: 0, memory_mb: 0, ranks: 1, labels: { disk: 'ssd' } }
    const labelled = { nodeId: 'n1', cores: 1, labels: { disk: 'ssd' } }
    const nodes = [labelled, { nodeId: 'n2', cores: 3 }]
    const report = reportOfRun({ nodes, tasks: queue(10, { resources }), end: 10 })
    expect(report.boundText.bound).toBe('labels')
    expect(report.bounds.slotSeconds).toMatchObject({ labels: 24, cores: 0 })
    expect(textOf(report)).toMatch(/If all nodes had the labels .* up to 7.50 s earlier/)
    expect(textOf(report)).not.toMatch(/slots it could|No further slot/)
    // All nodes are in use, so slots are missing.
    const others = queue(10).map((task) => ({
      ...task,
      uid: `o${task.uid}`,
      worker: 'n2/local/w1',
    }))
    const tasks = [...queue(10, { resources }), ...others]
    const full = reportOfRun({ nodes: [labelled, { nodeId: 'n2', cores: 1 }], tasks, end: 10 })
    expect(full.boundText.bound).toBe('slots')
  })

  it('report: a straggler is named with the time beyond the median of its name', () => {
    const tasks = [
      ...queue(30).map((task, at) => {
        const times = { created: at / 10, start: at / 10, end: at / 10 + 0.1 }
        return { ...task, ...times }
      }),
      ...queue(30).map((task, at) => {
        const times = { created: at / 10, start: at / 10, end: at / 10 + 0.1 }
        return { ...task, ...times, uid: `o${at}`, name: 'other', worker: 'n1/local/w2' }
      }),
      { uid: 'slow', created: 3, start: 3, end: 10, worker: 'n1/local/w1' },
      { uid: 'next', name: 'other', created: 3, start: 3, end: 8, worker: 'n1/local/w2' },
    ]
    const report = reportOfRun({ nodes: [{ nodeId: 'n1', cores: 4 }], tasks, end: 10 })
    expect(report.boundText.bound).toBe('straggler')
    expect(textOf(report)).toContain('Stragglers on the critical path took 6.90 s longer than')
  })

  it('report: a task that was canceled is not the critical path, unless all were', () => {
    const canceled = {
      uid: 'c',
      name: 'watch',
      start: 0,
      end: 10,
      endType: 'TaskCanceled' as const,
    }
    const watch = { ...canceled, worker: 'n1/local/w2' }
    const chain = boundedRuns.chain.tasks.map((task) => ({ ...task, end: task.start + 0.9 }))
    const nodes = [{ nodeId: 'n1', cores: 4 }]
    const report = reportOfRun({ nodes, tasks: [watch, ...chain], end: 10 })
    expect(report.boundText.bound).toBe('critical path')
    expect(report.bounds.criticalPath).toMatchObject({ length: 10 })
    expect(textOf(report)).toContain('Faster simulate tasks would shorten it')
    const alone = reportOfRun({ nodes, tasks: [watch], end: 10 })
    expect(alone.bounds.criticalPath).toMatchObject({ length: 1, seconds: 10 })
  })

  it('report: a straggler bounded the run also where a short task came after it', () => {
    const bag = queue(20).map((task, at) => ({
      ...task,
      ...(at === 7
        ? { start: 0.5, end: 8.5, worker: 'n1/local/w7' }
        : { start: 0.3 * (at % 4), end: 0.3 * (at % 4) + 0.3, worker: `n1/local/w${at % 4}` }),
    }))
    const last = { uid: 'last', created: 8.5, start: 8.5, end: 8.8 }
    const tasks = [...bag, last]
    const report = reportOfRun({ nodes: [{ nodeId: 'n1', cores: 4 }], tasks, end: 8.9 })
    expect(report.boundText.bound).toBe('straggler')
    expect(report.boundText.sentences[0]).toContain('t7 (simulate) ran 8.00 s')
    expect(textOf(report)).not.toContain('submitted earlier')
  })

  it('report: a chain bounded the run also where an independent task came after it', () => {
    const chain = queue(12).map((task, at) =>
      at === 0 ? task : { ...task, ready: at, dependencies: [`t${at - 1}`] },
    )
    const tasks = [...chain, { uid: 'last', created: 12, start: 12, end: 12.1 }]
    const { boundText, bounds } = reportOfRun({
      nodes: [{ nodeId: 'n1', cores: 4 }],
      tasks,
      end: 12.1,
    })
    expect(boundText.sentences[0]).toContain(
      'The critical path bounded this run: 12 tasks that waited',
    )
    expect(bounds.criticalPath.tasks.map(({ task }) => task)).toEqual([...chain.keys()])
  })

  it('report: of two dependencies the one with the longer chain is on the path', () => {
    const tasks = [
      { uid: 'long', start: 0, end: 6 },
      { uid: 'waited', start: 6, end: 7, worker: 'n1/local/w2' },
      { uid: 'sum', ready: 7, start: 7, end: 8, dependencies: ['long', 'waited'] },
      // A task that never ran ends no path.
      { uid: 'never', dependencies: ['sum'] },
    ]
    const { bounds, uidOf } = reportOfRun({ nodes: [{ nodeId: 'n1', cores: 2 }], tasks, end: 8 })
    expect(bounds.criticalPath).toMatchObject({ length: 2, seconds: 7, delaySeconds: 0 })
    expect(bounds.criticalPath.tasks.map(({ task }) => uidOf(task))).toEqual(['long', 'sum'])
  })

  it('report: a delay between attempts is no time in which a task ran, and is named', () => {
    const on = (at: number) => ({ node_id: 'n1', worker_id: `n1/local/w${at}` })
    const events = [
      ...eventsOf({
        nodes: [{ nodeId: 'n1', cores: 4 }],
        tasks: queue(4).map((task, at) => {
          return { ...task, start: 0, end: at === 3 ? 10 : 1, worker: `n1/local/w${at}` }
        }),
        end: 10,
      }),
      // It runs for a second, waits for six, then one more for a slot, and runs for two.
      viewEvent('tutti.TaskAttempt', 't3', { event_time: 1, retry_at: 7, ...on(3) }),
      viewEvent('tutti.AttemptStarted', 't3', { event_time: 8, ...on(3) }),
    ].toSorted((a, b) => a.event_time - b.event_time)
    const report = reportOf(passOver(events))
    expect(report.bounds.criticalPath).toMatchObject({ length: 1, seconds: 9, delaySeconds: 6 })
    expect(report.bounds.stragglers).toEqual([
      { task: 3, seconds: 3, median: 1, isRetried: true, isOnPath: true },
    ])
    expect([...renderReport(report)].join('')).toContain('3.00 s, in several attempts')
    expect(report.boundText.bound).toBe('critical path')
    expect(report.boundText.sentences).toContain(
      '6.00 s of the critical path are delays between attempts (`delaySeconds`): nothing ran in ' +
        'them.',
    )
    expect(report.bounds.criticalPath.tasks).toMatchObject([{ seconds: 3 }])
  })
})

describe('times', () => {
  const changedClocks: readonly [string, (time: number) => number, RegExp][] = [
    ['forward', (time) => (time < 5 ? time : time + 3600), /changed by 1 h 00 m during this run/],
    ['back', (time) => (time < 5 ? time : time - 3), /changed by 3\.00 s during this run/],
  ]
  it.each(changedClocks)(
    'report: a clock that was set %s is told, and gives no shares',
    (...row) => {
      const [, change, words] = row
      const tasks = queue(10).map((task) => ({ ...task, created: task.start ?? 0 }))
      const events = eventsOf({ nodes: [{ nodeId: 'n1', cores: 1 }], tasks, end: 10 })
      const changed = events.map((event) => ({ ...event, event_time: change(event.event_time) }))
      const report = reportOf(passOver(changed))
      expect(report.boundText).toMatchObject({ bound: null, improvements: [] })
      expect(report.boundText.sentences[0]).toMatch(words)
      const html = [...renderReport(report)].join('')
      expect(html).not.toMatch(/NaN|Infinity/)
      expect(html).not.toMatch(/of the slots|slots in use/)
    },
  )

  it('report: attempts of blocks took no slot, so their loss costs none', () => {
    const block = { uid: 'b', name: 'main', start: 0, end: 9, backend: 'workflow' } as const
    const lost = { ...block, worker: 'n1/workflow/main', endType: 'TaskFailed' as const }
    const run = { nodes: [{ nodeId: 'n1', cores: 1 }], tasks: [lost, ...queue(9)], end: 10 }
    expect(textOf(reportOfRun(run))).not.toContain('Attempts that failed')
    const failed = { uid: 'f', start: 9, end: 10, endType: 'TaskFailed' as const }
    const other = reportOfRun({ ...run, tasks: [...queue(9), failed] })
    expect(textOf(other)).toContain('Attempts that failed or were lost took 1.00 s of slot time')
  })
})

describe('damaged times', () => {
  const folder = recordFolder()
  afterAll(() => folder.remove())

  it('row 94: a line with a time that no date can have is skipped', async () => {
    const tail = linesOf([viewEvent('TaskCreated', 'x', { event_time: 1e300 })])
    const path = writeRecord(folder.path, boundedRuns.bag, { tail })
    const html = [...(await makeReport(path))].join('')
    expect(html).toContain('1 line skipped')
    expect(html).not.toMatch(/NaN|Infinity/)
    expect(html).toContain('All 40 tasks succeeded in 10.0 s.')
  })
})
