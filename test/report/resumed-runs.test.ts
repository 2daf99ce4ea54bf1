import { describe, expect, it } from 'vitest'
import { renderReport } from '../../src/report/page/document.ts'
import { createRunPass } from '../../src/views/all-panels.ts'
import type { ViewEvent } from '../../src/views/panel.ts'
import { explainTask } from '../../src/views/tasks.ts'
import { eventsOf, passOver, type SyntheticTask } from '../views/synthetic-run.ts'
import { viewEvent } from '../views/view-event.ts'
import { reportOf } from './synthetic-reports.ts'

/** Tasks of one second, one after the other, all of them ready from the start. */
const queue = (count: number): SyntheticTask[] =>
  Array.from({ length: count }, (_, at) => ({ uid: `t${at}`, start: at, end: at + 1 }))

const oneMore = queue(5).map((task) => ({ ...task, uid: `u${task.uid}` }))

/** A run of 10 s whose second half comes 30 s later, in a file of its own. */
function resumedEvents(again: readonly SyntheticTask[] = oneMore, cores = 1, end = 5): ViewEvent[] {
  const nodes = [{ nodeId: 'n1', cores: 1 }]
  const first = eventsOf({ nodes, tasks: queue(6).slice(0, 5), end: 5 })
  const larger = [{ nodeId: 'n1', cores }]
  const second = eventsOf({ nodes: larger, tasks: again, end }).map((event) => ({
    ...event,
    event_time: event.event_time + 35,
    session_id: 's-2',
    attributes:
      event.event_type === 'SessionStarted' ? { resumed_from: 'first' } : event.attributes,
  }))
  // The first session was killed.
  return [...first.slice(0, -1), ...second]
}

/**
 * A session that is killed at 4 s, and one from 10 s on, to which the agent reports task `b`: it
 * began and ended in between.
 */
function eventsWithAgents(later: readonly SyntheticTask[], end: number): ViewEvent[] {
  const nodes = [{ nodeId: 'n1', cores: 1 }]
  const first = eventsOf({ nodes, tasks: [{ uid: 'a', start: 0, end: 4 }, { uid: 'b' }], end: 9 })
  const told = eventsOf({ nodes, tasks: [{ uid: 'b', start: 0, end: 1 }, ...later], end })
  const second = told.map((event) => ({
    ...event,
    event_time: event.event_time + 10,
    ...(event.event_type === 'TaskCompleted' && event.task_id === 'b'
      ? { duration_seconds: 5 }
      : {}),
    attributes:
      event.event_type === 'SessionStarted'
        ? { resumed_from: 'first' }
        : { ...event.attributes, attempt: 1 },
  }))
  return [...first.slice(0, -1), ...second]
}

describe('a run that was resumed', () => {
  it('report: the time between two files of a run belongs to no slot, and is told in words', () => {
    const report = reportOf(passOver(resumedEvents()))
    const { bounds, boundText } = report
    expect(bounds).toMatchObject({ from: 0, to: 40, seconds: 10, slots: 1 })
    expect(bounds.slotSeconds).toMatchObject({ ran: 10, nodeAway: 0, noTaskReady: 0 })
    expect(boundText.bound).toBe('slots')
    expect(boundText.sentences).toContain(
      'Pauses between its 2 sessions (30.0 s in total) are left out.',
    )
    const html = [...renderReport(report)].join('')
    expect(html).toContain('data-seconds="10"')
    expect(html).toContain('Times between two files of the run are left out.')
  })

  it('report: the timeline, the chart of a node and the list of tasks have one time axis', () => {
    const usage = { node_id: 'n1', resource_scope: 'per_node' }
    const reading = (event_time: number, cpu_percent: number): ViewEvent =>
      viewEvent('ResourceUpdate', null, { event_time, cpu_percent, ...usage })
    const events = [...resumedEvents(), reading(0, 10), reading(5, 20), reading(35, 30)]
    const sorted = [...events, reading(40, 40)].toSorted((a, b) => a.event_time - b.event_time)
    const html = [...renderReport(reportOf(passOver(sorted)))].join('')
    // 5 s and 35 s are the same moment, the middle of 10 s.
    expect(/class="line0" d="([^"]+)"/.exec(html)?.[1]).toBe('M0 90L500 80L500 70L1000 60')
    const [, data = ''] = /id="data">(.*?)<\/script>/.exec(html) ?? []
    const { tasks } = JSON.parse(data) as { tasks: unknown[][] }
    expect(Math.max(...tasks.map((task) => Number(task[4])))).toBe(5)
  })

  it('report: slots that a resumed run had later do not count before', () => {
    const again = Array.from({ length: 8 }, (_, at) => {
      const start = Math.floor(at / 4)
      return { uid: `u${at}`, start, end: start + 1, worker: `n1/local/w${at % 4}` }
    })
    const { bounds, boundText } = reportOf(passOver(resumedEvents(again, 4, 2)))
    expect(bounds).toMatchObject({ seconds: 7, slots: 4, minSlots: 1 })
    expect(bounds.slotSeconds).toMatchObject({ ran: 13, heldBack: 0, nodeAway: 0, noTaskReady: 0 })
    expect(boundText.bound).toBe('slots')
    expect(boundText.sentences[0]).toContain('1 to 4 slots ran tasks 100 % of the time')
    expect(boundText.improvements.join('\n')).not.toMatch(/scheduler|in one task/)
    // Its 13 s in twice as many: 5 s of two slots, and 0.38 s of eight.
    expect(boundText.improvements[0]).toContain('it could end up to 1.63 s earlier')
  })

  it('report: slots of which there were more later count by their own time', () => {
    const again = queue(8).map(({ start = 0, end = 0, ...task }) => ({
      ...task,
      uid: `u${task.uid}`,
      start: start / 4,
      end: end / 4 + 0.75,
      worker: `n1/local/w${start % 4}`,
    }))
    const { bounds, boundText } = reportOf(passOver(resumedEvents(again, 4, 4)))
    expect(bounds.slotSeconds.ran).toBeCloseTo(13, 6)
    // Of 5 + 4 x 4.
    expect(boundText.sentences.join('\n')).toMatch(/1 to 4 slots ran tasks (?:for )?62 %/)
  })

  it('report: what agents did between two files counts, and is told in words', () => {
    const pass = passOver(eventsWithAgents([], 2))
    const { bounds, boundText } = reportOf(pass)
    expect(bounds).toMatchObject({ from: 0, to: 12, seconds: 12, pauses: [] })
    expect(bounds.attended).toMatchObject([{ from: 4, to: 10 }])
    expect(bounds.slotSeconds).toMatchObject({ ran: 9, nodeAway: 0 })
    expect(boundText.sentences.join('\n')).toMatch(
      /For 6\.00 s between its 2 sessions .* agents continued/,
    )
    expect(explainTask(pass, 'b')).toMatchObject({
      seconds: 5,
      story: { started: 6, ended: 11 },
      attempts: [{ start: 6, end: 11, outcome: 'completed' }],
    })
  })

  it('report: the time of agents between two files counts also after their attempts', () => {
    const later = queue(6000).map(({ uid, start = 0, end = 0 }) => ({
      uid,
      created: start + 2,
      start: start + 2,
      end: end + 2,
    }))
    const pass = createRunPass()
    for (const event of eventsWithAgents(later, 6002)) pass.take(event)
    const { bounds, durationSeconds } = reportOf(pass)
    expect(bounds.attended).toHaveLength(1)
    // The sessions took 4 s and 6002 s, with 6 s between them.
    expect(durationSeconds).toBe(6012)
  })

  it('report: a task that ran on at an agent has one attempt, with its own start', () => {
    const nodes = [{ nodeId: 'n1', cores: 2 }]
    const left = [
      { uid: 'a', created: 1, start: 3 },
      { uid: 'b', created: 1 },
      { uid: 'c', created: 1 },
    ]
    const first = eventsOf({ nodes, tasks: left, end: 9 }).slice(0, -1)
    // Killed at 3 s; the agent ended `a` after 2 s, and the next session comes at 13 s.
    const again = [
      { uid: 'a', start: 0, end: 1 },
      { uid: 'b', start: 0, end: 2 },
      { uid: 'c', start: 0, end: 2, worker: 'n1/local/w2' },
    ]
    const second = eventsOf({ nodes, tasks: again, end: 2 }).map((event) => ({
      ...event,
      event_time: event.event_time + 13,
      ...(event.task_id === 'a' && event.event_type === 'TaskCompleted'
        ? { duration_seconds: 2 }
        : {}),
      attributes:
        event.event_type === 'SessionStarted'
          ? { resumed_from: 'first' }
          : { ...event.attributes, attempt: 1 },
    }))
    const pass = passOver([...first, ...second])
    expect(explainTask(pass, 'a')).toMatchObject({
      seconds: 2,
      story: { created: 1, started: 3, ended: 5 },
      attempts: [{ start: 3, end: 5, outcome: 'completed' }],
    })
    // An event that the second session repeated is no attempt and held no worker.
    expect(explainTask(pass, 'b')?.workerFree).toBe(5)
    const report = reportOf(pass)
    expect(report.lanes.segments.map(({ start }) => start)).toEqual([3, 13, 13])
    // The others waited while no session could start them.
    expect(report.boundText.bound).toBe('scheduler')
    expect(report.bounds.slotSeconds).toMatchObject({ ran: 6, nodeAway: 0 })
    expect(report.bounds.slotSeconds.heldBack).toBeGreaterThan(10)
  })
})
