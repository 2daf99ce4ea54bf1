import { describe, expect, it } from 'vitest'
import { bounds, type BoundsView } from '../../src/views/bounds/bounds.ts'
import { oneCore } from '../../src/views/bounds/slots.ts'
import type { ViewEvent } from '../../src/views/panel.ts'
import { FreeResources } from '../../src/views/shortage.ts'
import { eventsOf, passOver, type SyntheticNode, type SyntheticTask } from './synthetic-run.ts'

function boundsOfEvents(events: readonly ViewEvent[]): BoundsView {
  const { counts, states } = passOver(events)
  return bounds.show(states.bounds, { counts, ...states })
}

const boundsOf = (nodes: SyntheticNode[], tasks: SyntheticTask[]): BoundsView =>
  boundsOfEvents(eventsOf({ nodes, tasks, end: 10 }))

/** A run in which each session has its own nodes and lasts 10 s. */
function boundsOfSessions(sessions: readonly (readonly SyntheticNode[])[]): BoundsView {
  const events = sessions.flatMap((nodes, session) =>
    eventsOf({ nodes, tasks: [{ uid: `t${session}`, start: 0, end: 10 }], end: 10 }).map(
      (event) => ({
        ...event,
        event_time: event.event_time + 100 * session,
        session_id: `s-${session}`,
        attributes:
          event.event_type === 'SessionStarted' && session > 0
            ? { resumed_from: 'before' }
            : event.attributes,
      }),
    ),
  )
  return boundsOfEvents(events)
}

const one = [{ uid: 'a', start: 0, end: 10 }]
/** A node that is lost after 5 s and comes back immediately. */
const changed = (before: object, after: object): SyntheticNode[] => [
  { nodeId: 'n1', cores: 1, to: 5, ...before },
  { nodeId: 'n1', cores: 1, from: 5, ...after },
]

describe('sizes of nodes', () => {
  it('bounds: a node that comes back with more or fewer cores has each size for its time', () => {
    const more = boundsOf(changed({ cores: 1 }, { cores: 8 }), one)
    expect(more).toMatchObject({ slots: 8, minSlots: 1 })
    expect(more.slotSeconds).toMatchObject({ ran: 10, noTaskReady: 35, nodeAway: 0 })
    const less = boundsOf(changed({ cores: 4 }, { cores: 2 }), one)
    expect(less.slotSeconds).toMatchObject({ ran: 10, noTaskReady: 20, nodeAway: 0 })
  })

  it('bounds: a node that joins again without having left has its new size from then on', () => {
    const joins = [
      { nodeId: 'n1', cores: 4 },
      { nodeId: 'n1', cores: 2, from: 5 },
    ]
    const shown = boundsOf(joins, one)
    expect(shown.slotSeconds).toMatchObject({ ran: 10, noTaskReady: 20, nodeAway: 0 })
  })

  it('bounds: while a node is away, the slots that it had before are missing', () => {
    const away = [
      { nodeId: 'n1', cores: 4, to: 4 },
      { nodeId: 'n1', cores: 2, from: 6 },
    ]
    const shown = boundsOf(away, [{ uid: 'a', start: 0, end: 4 }])
    expect(shown.slotSeconds).toMatchObject({ ran: 4, noTaskReady: 12 + 8, nodeAway: 8 })
  })

  it('bounds: gpus, memory, workers and labels count from when the node has them', () => {
    const asking = (asked: object): SyntheticTask[] => [
      { uid: 'a', start: 5, end: 10, resources: { cores: 1, ...asked } },
    ]
    const late = { uid: 'a', start: 5, end: 10 }
    const waited = { ran: 5, noTaskReady: 0, heldBack: 0, nodeAway: 0 }
    const gpus = boundsOf(changed({}, { gpus: 2 }), asking({ gpus: 1 }))
    expect(gpus.slotSeconds).toMatchObject({ ...waited, gpus: 5 })
    const memory = boundsOf(changed({ memoryMb: 10 }, {}), asking({ memory_mb: 20 }))
    expect(memory.slotSeconds).toMatchObject({ ...waited, memory: 5 })
    const labels = boundsOf(
      changed({}, { labels: { disk: 'ssd' } }),
      asking({ labels: { disk: 'ssd' } }),
    )
    expect(labels.slotSeconds).toMatchObject({ ...waited, labels: 5 })
    const workers = boundsOf(changed({ cores: 2, workers: 1 }, { cores: 2, workers: 2 }), [
      ...one,
      { ...late, uid: 'b', worker: 'n1/local/w2' },
    ])
    expect(workers.slotSeconds).toMatchObject({ ran: 15, workers: 5 })
    expect(workers.slotSeconds).toMatchObject({ heldBack: 0, noTaskReady: 0 })
  })

  it('bounds: a node is no slot of the sessions that it did not join', () => {
    const [n1, n2] = ['n1', 'n2'].map((nodeId) => ({ nodeId, cores: 2 })) as [
      SyntheticNode,
      SyntheticNode,
    ]
    const moved = boundsOfSessions([[n1], [{ ...n1, nodeId: 'n3' }]])
    expect(moved).toMatchObject({ slots: 2, minSlots: 2, seconds: 20 })
    expect(moved.slotSeconds).toMatchObject({ nodeAway: 0 })
    const between = boundsOfSessions([[n1, n2], [n1], [n1, n2]])
    expect(between).toMatchObject({ slots: 4, minSlots: 2, seconds: 30 })
    expect(between.slotSeconds).toMatchObject({ ran: 30, noTaskReady: 70, nodeAway: 0 })
    const same = boundsOfSessions([[n1], [n1]])
    expect(same.backends).toMatchObject([{ sizes: [{ seconds: 20, capacity: { cores: 2 } }] }])
    const late = boundsOfSessions([[n1], [{ ...n1, cores: 4, from: 1 }]])
    expect(late.slotSeconds).toMatchObject({ ran: 20, nodeAway: 3, noTaskReady: 10 + 27 })
  })

  it('bounds: a node that changes its size all the time has bounded state', () => {
    const joins = Array.from({ length: 5000 }, (_, at) => ({
      nodeId: 'n1',
      cores: 1 + (at % 2),
      from: at / 1000,
    }))
    const { states } = passOver(eventsOf({ nodes: joins, tasks: one, end: 10 }))
    expect(states.bounds.nodes[0]?.earlier.length).toBeLessThanOrEqual(100)
    const shown = boundsOf(joins, one)
    expect(shown).toMatchObject({ slots: 2, minSlots: 1 })
  })

  it('bounds: a node that joins and leaves thousands of times has bounded state', () => {
    const stays = (count: number): SyntheticNode[] =>
      Array.from({ length: count }, (_, at) => ({
        nodeId: 'n1',
        cores: 1,
        from: at / 1000,
        to: (at + 0.5) / 1000,
      }))
    const request = { ...oneCore, backend: 'local', isPrompt: false, labels: {} }
    const waiting = [{ uid: 'a' }]
    const seen = (nodes: SyntheticNode[]): object => {
      const pass = passOver(eventsOf({ nodes, tasks: waiting, end: 10 }))
      return {
        isBounded: (pass.states.bounds.nodes[0]?.changes.length ?? Infinity) <= 1000,
        lacks: new FreeResources(pass, 'local').shortageOf(request)?.resource ?? null,
        away: Math.round(1e6 * boundsOf(nodes, waiting).slotSeconds.nodeAway),
      }
    }
    // 499 of 1000 changes are leaves before a join; each of these absences takes 500 µs.
    const kept = 499 * 500
    const back = { nodeId: 'n1', cores: 1, from: 4 }
    expect(seen([...stays(3000), back])).toEqual({ isBounded: true, lacks: null, away: kept })
    const away = kept + 7_000_500
    expect(seen(stays(3000))).toEqual({ isBounded: true, lacks: 'nodes', away })
  })
})
