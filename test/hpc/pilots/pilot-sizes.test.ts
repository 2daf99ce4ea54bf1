/** The nodes that allocations request, and the number of allocations of `min`. */

import { describe, expect, it } from 'vitest'
import { planPilots } from '../../../src/hpc/pilots/pilot-plan.ts'
import { resolveResources, type ResourceRequest } from '../../../src/tasks/resources.ts'
import { node, type QueueAnswer, Simulation, smallKind } from './simulated-queue.ts'

describe('an allocation by waiting work', () => {
  it('an allocation asks for large nodes of a mixed kind if the work needs them', () => {
    const mixed = { ...smallKind, candidates: [node, { ...node, cores: 8 }] }
    const minOf = (request: Partial<ResourceRequest>): unknown => {
      const work = [{ resources: resolveResources(request), count: 1 }]
      return planPilots({ kinds: [mixed], histories: [], pilots: [], now: 10, work }).submit.map(
        ({ minCores }) => minCores,
      )
    }
    expect(minOf({})).toEqual([null])
    expect(minOf({ cores: 4 })).toEqual([null])
    expect(minOf({ cores: 8 })).toEqual([8])
    expect(minOf({ ranks: 6, ranksPerNode: 6 })).toEqual([6])
    expect(minOf({ cores: 9 })).toEqual([])
  })

  it('an allocation asks for nodes with enough memory where some of its kind have less', () => {
    const mixed = { ...smallKind, candidates: [node, { ...node, memoryMb: 64_000 }] }
    const minOf = (request: Partial<ResourceRequest>): unknown => {
      const work = [{ resources: resolveResources(request), count: 1 }]
      return planPilots({ kinds: [mixed], histories: [], pilots: [], now: 10, work }).submit.map(
        ({ minMemoryMb }) => minMemoryMb,
      )
    }
    expect(minOf({})).toEqual([null])
    expect(minOf({ memoryMb: 8000 })).toEqual([null])
    // As many of them as such a node can hold.
    expect(minOf({ memoryMb: 10_000 })).toEqual([60_000])
    expect(minOf({ memoryMb: 60_001 })).toEqual([60_001])
    expect(minOf({ ranks: 2, ranksPerNode: 2, memoryMb: 5000 })).toEqual([60_000])
    expect(minOf({ memoryMb: 64_001 })).toEqual([])
  })

  it('an allocation does not separate tasks by the memory that each of many requests', () => {
    const work = Array.from({ length: 10_000 }, (_, at) => ({
      resources: resolveResources({ memoryMb: 100 + at / 10 }),
      count: 1,
    }))
    const plan = planPilots({ kinds: [smallKind], histories: [], pilots: [], now: 10, work })
    const few = [{ resources: resolveResources({ memoryMb: 1000 }), count: 10_000 }]
    const same = planPilots({ kinds: [smallKind], histories: [], pilots: [], now: 10, work: few })
    expect(plan.submit.map(({ work: keys }) => keys.length)[0]).toBeLessThan(40)
    expect(plan).toMatchObject({ submit: [{ kind: 0, minMemoryMb: null }], end: same.end })
  })

  it('an allocation of `min` that ended without work is replaced: it has not failed', () => {
    const short: QueueAnswer = { queueSeconds: 1, lifeSeconds: 40, cause: 'limit' }
    const simulation = new Simulation([{ ...smallKind, min: 1, max: 1 }], [short])
    simulation.run(1000)
    expect(simulation.histories[0]).toMatchObject({ failures: 0 })
    simulation.left = 1
    simulation.run(60)
    expect(simulation.done).toBe(1)
  })

  it('an allocation of `min` whose work others have run has not failed', () => {
    const short: QueueAnswer = { queueSeconds: 5, lifeSeconds: 40, cause: 'limit' }
    const resources = [1, 2].map((cores) => resolveResources({ cores }))
    const kind = { ...smallKind, min: 1, max: 1 }
    const simulation = new Simulation([kind], [short], { resources })
    for (let second = 0; second < 500; second++) {
      // Other work waits when the next one is requested, and is gone before that one starts.
      const [one] = simulation.running
      const isLast = one !== undefined && simulation.now + 1 - (one.startedAt ?? 0) >= 40
      const turn = simulation.orders.length % 2
      for (const [at, work] of simulation.work.entries()) work.left = isLast && at === turn ? 1 : 0
      simulation.run(1)
    }
    expect(simulation.pilots.map(({ work }) => work.length)).toEqual([1])
    expect(simulation.orders.length).toBeGreaterThan(5)
    expect(simulation.histories[0]).toMatchObject({ failures: 0 })
  })

  it('an allocation of `min` whose nodes were never ready has failed', () => {
    const late = { queueSeconds: 1, readySeconds: 50, lifeSeconds: 40, cause: 'limit' } as const
    const simulation = new Simulation([{ ...smallKind, min: 1, max: 1 }], [late])
    simulation.run(1000)
    expect(simulation.submissions).toHaveLength(3)
  })
})
