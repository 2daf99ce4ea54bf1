import { expect, it } from 'vitest'
import { explainWait } from '../../src/views/waiting.ts'
import { eventsOf, passOver, type SyntheticTask } from './synthetic-run.ts'

const nodes = ['a', 'b'].map((rack) => ({ nodeId: rack, cores: 2, labels: { rack } }))
const waits = (uid: string, cores: number, rack: string, created: number): SyntheticTask => ({
  uid,
  created,
  resources: { cores, labels: { rack } },
})

it('explain: tasks before it that could use the same node count, whatever they ask for', () => {
  const running = nodes.map(({ nodeId }): SyntheticTask => {
    return { ...waits(`on-${nodeId}`, 2, nodeId, 0), start: 1, worker: `${nodeId}/local/w1` }
  })
  const tasks = [
    ...running,
    waits('wide-b', 2, 'b', 2),
    waits('narrow-b', 1, 'b', 3),
    waits('elsewhere', 2, 'a', 4),
    waits('last-b', 2, 'b', 5),
  ]
  const events = eventsOf({ nodes, tasks, end: 6 })
  const pass = passOver(events.filter(({ event_type }) => event_type !== 'SessionEnded'))
  const uids = tasks.map(({ uid }) => uid)
  const { ahead, firstAhead } = explainWait(pass, uids.indexOf('last-b'))
  expect(ahead).toBe(2)
  expect(firstAhead.map((task) => uids[task])).toEqual(['wide-b', 'narrow-b'])
})
