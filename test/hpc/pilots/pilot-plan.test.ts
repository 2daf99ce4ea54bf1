/** Allocations by waiting work, against a queue that is simulated second by second. */

import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { countFailedRequests, workKey } from '../../../src/hpc/pilots/pilot-history.ts'
import { planPilots, countCapacity } from '../../../src/hpc/pilots/pilot-plan.ts'
import { resolveResources } from '../../../src/tasks/resources.ts'
import { assertProperty } from '../../property.ts'
import { node, type QueueAnswer, Simulation, smallKind } from './simulated-queue.ts'

const willing: QueueAnswer = { queueSeconds: 3, lifeSeconds: Infinity }

describe('allocations by waiting work', () => {
  it('the pilot plan grows with the work, does it, and releases everything', () => {
    const simulation = new Simulation([smallKind], [willing])
    simulation.left = 200
    simulation.run(20)
    expect(simulation.running).toHaveLength(4)
    simulation.run(100)
    expect(simulation.done).toBe(200)
    expect(simulation.pilots).toEqual([])
  })

  it('the pilot plan asks for no more than the work needs', () => {
    const simulation = new Simulation([smallKind], [willing])
    simulation.left = 5
    simulation.run(100)
    expect(simulation.submissions).toHaveLength(2)
    expect(simulation.done).toBe(5)
  })

  it('the pilot plan queues no more than the backlog, and no more in total than maxTotal', () => {
    const stuck: QueueAnswer = { queueSeconds: 1e9, lifeSeconds: 1 }
    const waiting = new Simulation([smallKind], [stuck])
    waiting.left = 1000
    waiting.run(50)
    expect(waiting.submissions).toEqual([1, 2])
    const few = new Simulation(
      [{ ...smallKind, maxTotal: 3 }],
      [{ queueSeconds: 1, lifeSeconds: 70 }],
    )
    few.left = 1e6
    few.run(1000)
    expect(few.submissions).toHaveLength(3)
    expect(few.pilots).toEqual([])
  })

  it('the pilot plan withdraws queued allocations that the work no longer needs', () => {
    const simulation = new Simulation([smallKind], [{ queueSeconds: 1e9, lifeSeconds: 1 }])
    simulation.left = 100
    simulation.run(5)
    expect(simulation.queued).toHaveLength(2)
    simulation.left = 3
    simulation.run(1)
    expect(simulation.queued.map(({ id }) => id)).toEqual(['job-1'])
    simulation.left = 0
    simulation.run(1)
    expect(simulation.pilots).toEqual([])
  })

  it('the pilot plan keeps `min` allocations, from the beginning and without work', () => {
    const simulation = new Simulation(
      [{ ...smallKind, min: 2 }],
      [{ queueSeconds: 1, lifeSeconds: 70 }],
    )
    simulation.run(30)
    expect(simulation.running).toHaveLength(2)
    // They are replaced when their time is over.
    simulation.run(300)
    expect(simulation.pilots).toHaveLength(2)
  })

  it('the pilot plan waits longer after each refusal, and stops after the third', () => {
    const simulation = new Simulation([smallKind], [{ ...willing, isRefused: true }])
    simulation.left = 100
    simulation.run(10_000)
    expect(simulation.submissions).toEqual([1, 11, 31])
    expect(simulation.histories[0]).toMatchObject({ failures: 3, reason: 'Invalid account' })
  })

  it('the pilot plan waits longer after each early death, and stops after the third', () => {
    const simulation = new Simulation(
      [{ ...smallKind, max: 1 }],
      [{ queueSeconds: 1, lifeSeconds: 5 }],
    )
    simulation.left = 100
    simulation.run(10_000)
    const [first = 0, second = 0, third = 0, ...more] = simulation.submissions
    expect(more).toEqual([])
    expect(second - first).toBeGreaterThanOrEqual(16)
    expect(third - second).toBeGreaterThanOrEqual(26)
  })

  it('the pilot plan counts allocations that fail together once', () => {
    const simulation = new Simulation([smallKind], [{ queueSeconds: 1, lifeSeconds: 20 }])
    simulation.left = 1000
    simulation.run(60)
    expect(simulation.submissions.length).toBeGreaterThan(3)
    expect(simulation.histories[0]?.failures).toBeLessThan(3)
  })

  it('the pilot plan resets its counts after an allocation that has lived', () => {
    const young: QueueAnswer = { queueSeconds: 1, lifeSeconds: 5 }
    const lived: QueueAnswer = { queueSeconds: 1, lifeSeconds: 100 }
    const simulation = new Simulation([{ ...smallKind, max: 1 }], [young, young, lived])
    simulation.left = 1e6
    simulation.run(10_000)
    expect(simulation.submissions.length).toBeGreaterThan(30)
  })

  it('the pilot plan asks for none where no such node could run the work', () => {
    const requests = [{ cores: 5 }, { gpus: 1 }, { memoryMb: 9000 }, { seconds: 3601 }]
    const others = [{ labels: { disk: 'ssd' } }, { ranks: 5 }, { ranks: 2, ranksPerNode: 5 }]
    for (const request of [...requests, ...others]) {
      const resources = [resolveResources(request)]
      const simulation = new Simulation([smallKind], [willing], { resources })
      simulation.left = 10
      simulation.run(100)
      expect(simulation.submissions, JSON.stringify(request)).toEqual([])
    }
  })

  it('the pilot plan asks the first kind that fits the work, and the next after a failure', () => {
    const gpu = { ...smallKind, candidates: [{ ...node, gpus: 2 }] }
    const resources = [resolveResources({ gpus: 1 })]
    const needing = new Simulation([smallKind, gpu], [willing], { resources })
    needing.left = 4
    needing.run(10)
    expect(needing.pilots.map((one) => one.kind)).toEqual([1, 1])
    const refused = { ...willing, isRefused: true }
    const plain = new Simulation([{ ...smallKind, backlog: 1 }, gpu], [refused, willing])
    plain.left = 4
    // The first one is not tried again so soon.
    plain.run(8)
    expect(plain.orders.map((one) => one.kind)).toEqual([0, 1])
    plain.run(100)
    expect(plain.histories[0]).toMatchObject({ submitted: 1, failures: 1 })
    expect(plain.done).toBe(4)
  })

  it('the pilot plan counts the ranks of an MPI program over the nodes of one allocation', () => {
    const four = { ...smallKind, nodes: 4 }
    expect(countCapacity(four, resolveResources({ ranks: 16 }))).toBe(1)
    expect(countCapacity(four, resolveResources({ ranks: 17 }))).toBe(0)
    expect(countCapacity(four, resolveResources({ ranks: 4, ranksPerNode: 1 }))).toBe(1)
    expect(countCapacity(four, resolveResources({ ranks: 4, ranksPerNode: 2 }))).toBe(2)
  })

  it('the pilot plan gives work to the next kind when the first is at its limit', () => {
    const simulation = new Simulation([{ ...smallKind, max: 1, maxTotal: 1 }, smallKind], [willing])
    simulation.left = 1
    simulation.run(30)
    expect(simulation.orders.map((one) => one.kind)).toEqual([0])
    simulation.left = 1
    simulation.run(30)
    expect(simulation.orders.map((one) => one.kind)).toEqual([0, 1])
    expect(simulation.done).toBe(2)
  })

  it('the pilot plan combines kinds that fit the same work, the first to its limit', () => {
    const small = { ...smallKind, max: 2 }
    const simulation = new Simulation([small, smallKind], [willing], { taskSeconds: 100 })
    simulation.left = 14
    simulation.run(20)
    expect(simulation.running.filter((one) => one.kind === 0)).toHaveLength(2)
    expect(simulation.running.filter((one) => one.kind === 1)).toHaveLength(2)
    expect(simulation.left).toBe(0)
  })

  it('the pilot plan leaves the first kind to work that has no other', () => {
    const gpu = { ...smallKind, max: 1, candidates: [{ ...node, gpus: 4 }] }
    const resources = [resolveResources({}), resolveResources({ gpus: 1 })]
    const simulation = new Simulation([gpu, smallKind], [willing], { resources, taskSeconds: 100 })
    for (const one of simulation.work) one.left = 4
    simulation.run(1)
    expect(simulation.orders.map((one) => one.kind)).toEqual([0, 1])
  })

  it('the pilot plan keeps a useful queued allocation when an earlier kind may get one', () => {
    const work = [{ resources: resolveResources({}), count: 4 }]
    const times = { submittedAt: 1, startedAt: null, readyAt: null, idleSince: null }
    const waiting = { id: 'job-1', kind: 1, work: [], ...times, isEnding: false, hasRun: false }
    const common = { kinds: [smallKind, smallKind], histories: [], pilots: [waiting], now: 10 }
    const plan = planPilots({ ...common, work })
    expect(plan).toEqual({
      submit: [
        {
          kind: 0,
          work: [workKey({ resources: resolveResources({}) })],
          minCores: null,
          minMemoryMb: null,
        },
      ],
      end: [],
    })
    expect(planPilots({ ...common, work: [] })).toEqual({ submit: [], end: ['job-1'] })
  })

  it('the pilot plan asks three times for work that no allocation could run, each later', () => {
    const lacking = { ...willing, lacks: () => true }
    const simulation = new Simulation([smallKind], [lacking])
    simulation.left = 100
    simulation.run(10_000)
    const rounds = simulation.submissions.filter((at, place, all) => at - (all[place - 1] ?? 0) > 5)
    const [second = 0, third = 0, ...more] = rounds
    expect(more).toEqual([])
    // Each has waited in the queue for 3 s, and was idle for 10 s.
    expect(second).toBeGreaterThanOrEqual(1 + 13 + 10)
    expect(third - second).toBeGreaterThanOrEqual(13 + 20)
    expect(simulation.submissions).toHaveLength(smallKind.max + 1 + 1)
    expect(
      countFailedRequests(
        simulation.histories[0] as never,
        workKey({ resources: resolveResources({}) }),
      ),
    ).toBe(3)
  })

  it('the pilot plan continues with other work of a kind that cannot run one task', () => {
    const odd = resolveResources({ memoryMb: 100 })
    const lacks: QueueAnswer['lacks'] = ({ memoryMb }) => memoryMb > 0
    const resources = [resolveResources({}), odd]
    const simulation = new Simulation([smallKind], [{ ...willing, lacks }], { resources })
    for (const one of simulation.work) one.left = 1
    simulation.run(5000)
    expect(simulation.work.map(({ left }) => left)).toEqual([0, 1])
    const before = simulation.orders.length
    expect(before).toBe(1 + 3)
    simulation.left = 40
    simulation.run(100)
    expect(simulation.done).toBe(41)
    expect(simulation.orders.length - before).toBe(4)
  })

  it('the pilot plan lets another kind run work that no allocation of one kind could', () => {
    const lacking = { ...willing, lacks: () => true }
    const simulation = new Simulation([{ ...smallKind, max: 1 }, smallKind], [lacking, willing])
    simulation.left = 1
    simulation.run(30)
    expect(simulation.done).toBe(1)
    expect(simulation.orders.map((one) => one.kind)).toEqual([0, 1])
  })

  it('the pilot plan stops after three allocations that ended before they ran anything', () => {
    const over: QueueAnswer = { queueSeconds: 1, lifeSeconds: 1, cause: 'limit', lacks: () => true }
    const simulation = new Simulation([{ ...smallKind, max: 1 }], [over])
    simulation.left = 100
    simulation.run(10_000)
    expect(simulation.submissions).toHaveLength(3)
  })

  it('the pilot plan continues with short allocations that have used their time', () => {
    const short: QueueAnswer = { queueSeconds: 1, lifeSeconds: 20, cause: 'limit' }
    const simulation = new Simulation([{ ...smallKind, max: 1 }], [short])
    simulation.left = 100
    simulation.run(600)
    expect(simulation.done).toBe(100)
  })

  it('the pilot plan does not add up refusals between which others have run tasks', () => {
    const refused = { ...willing, isRefused: true }
    const simulation = new Simulation([{ ...smallKind, max: 1 }], [refused, willing])
    for (let hour = 0; hour < 10; hour++) {
      simulation.left = 4
      simulation.run(300)
    }
    expect(simulation.done).toBe(40)
  })

  it('the pilot plan does not add up refusals that are hours apart', () => {
    const refused = { ...willing, isRefused: true }
    const simulation = new Simulation([smallKind], [refused])
    for (let round = 0; round < 5; round++) {
      simulation.left = 4
      simulation.run(1)
      // Canceled; the next comes later.
      simulation.left = 0
      simulation.run(4000)
    }
    expect(simulation.orders).toHaveLength(5)
  })

  it('the pilot plan retries after a refusal for as long as another allocation lives', () => {
    const refused = { ...willing, isRefused: true }
    const answers = [willing, refused, refused, refused, refused, willing]
    const simulation = new Simulation([{ ...smallKind, max: 2 }], answers, { taskSeconds: 1e6 })
    simulation.left = 4
    simulation.run(100)
    simulation.left = 4
    simulation.run(200)
    expect(simulation.submissions).toEqual([1, 101, 111, 131, 171, 251])
    expect(simulation.running).toHaveLength(2)
  })

  it('the pilot plan waits for a scheduler that does not answer, and counts nothing', () => {
    const silent = { ...willing, isUnanswered: true }
    const answers = [...Array.from({ length: 20 }, () => silent), willing]
    const simulation = new Simulation([{ ...smallKind, maxTotal: 1 }], answers)
    simulation.left = 4
    simulation.run(300)
    expect(simulation.submissions).toEqual(Array.from({ length: 21 }, (_, at) => 1 + 10 * at))
    expect(simulation.done).toBe(4)
    expect(simulation.histories[0]).toMatchObject({ submitted: 1, failures: 0 })
  })

  it('the pilot plan keeps a starting allocation that has taken all of the work', () => {
    const slow: QueueAnswer = { ...willing, readySeconds: 30 }
    const simulation = new Simulation([smallKind], [slow], { taskSeconds: 100 })
    simulation.left = 1
    simulation.run(40)
    expect(simulation.running.map(({ id }) => id)).toEqual(['job-1'])
    simulation.left = 3
    simulation.run(100)
    expect([simulation.done, simulation.orders.length]).toEqual([1, 1])
  })

  it('the pilot plan does not count an allocation as idle before all its nodes started', () => {
    const slow: QueueAnswer = { ...willing, readySeconds: 30, lacks: () => true }
    const simulation = new Simulation([{ ...smallKind, max: 1 }], [slow])
    simulation.left = 1
    simulation.run(37)
    expect(simulation.running.map(({ id }) => id)).toEqual(['job-1'])
    simulation.run(10)
    expect(simulation.running).toEqual([])
  })

  it('the pilot plan asks for few, whatever comes, when no allocation runs anything', () => {
    const answer = fc.record({
      isRefused: fc.boolean(),
      queueSeconds: fc.integer({ min: 0, max: 100 }),
      lifeSeconds: fc.constantFrom(1, 5, 65, 200, Infinity),
      cause: fc.constantFrom('limit' as const, 'loss' as const),
      lacks: fc.constant(() => true),
    })
    const limits = fc.record({
      max: fc.integer({ min: 1, max: 5 }),
      backlog: fc.integer({ min: 1, max: 4 }),
      idleSeconds: fc.integer({ min: 0, max: 50 }),
    })
    const answers = fc.array(answer, { minLength: 1, maxLength: 10 })
    assertProperty(
      fc.property(limits, answers, (given, told) => {
        const simulation = new Simulation([{ ...smallKind, ...given }], told)
        simulation.left = 100
        simulation.run(1500)
        // Allocations that were requested together count once.
        expect(simulation.orders.length).toBeLessThanOrEqual(given.max + 5)
        expect(simulation.pilots).toEqual([])
      }),
      { numRuns: 50, longRuns: 2000 },
    )
  })

  it('the pilot plan keeps its limits whatever the queue does, and does all allowed work', () => {
    const answer = fc.record({
      isRefused: fc.integer({ min: 0, max: 9 }).map((number) => number === 0),
      queueSeconds: fc.integer({ min: 0, max: 100 }),
      lifeSeconds: fc.constantFrom(5, 65, 200, Infinity),
    })
    const limits = fc.record({
      min: fc.integer({ min: 0, max: 2 }),
      max: fc.integer({ min: 2, max: 5 }),
      backlog: fc.integer({ min: 1, max: 4 }),
      idleSeconds: fc.integer({ min: 0, max: 50 }),
    })
    const answers = fc.array(answer, { minLength: 1, maxLength: 10 })
    const bursts = fc.array(fc.integer({ min: 0, max: 100 }), { minLength: 1, maxLength: 5 })
    assertProperty(
      fc.property(limits, answers, bursts, (given, told, work) => {
        const own = { ...smallKind, ...given }
        const simulation = new Simulation([own], told)
        for (const count of work) {
          simulation.left += count
          for (let second = 0; second < 60; second++) {
            simulation.run(1)
            expect(simulation.pilots.length).toBeLessThanOrEqual(own.max)
            expect(simulation.queued.length).toBeLessThanOrEqual(own.backlog)
          }
        }
        simulation.run(2000)
        const { failures = 0 } = simulation.histories[0] ?? {}
        if (failures < 3) {
          expect(simulation.left).toBe(0)
          expect(simulation.pilots.length).toBeLessThanOrEqual(Math.max(own.min, 0))
        }
      }),
      { numRuns: 50, longRuns: 2000 },
    )
  })
})
