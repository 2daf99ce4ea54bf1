/** Allocations by waiting work, against a queue that is simulated second by second. */

import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { WaitingWork } from '../../../src/cluster/driver/placement/placement-state.ts'
import {
  noHistory,
  noteEnd,
  type PilotEnd,
  type PilotHistory,
  type PilotKind,
  planPilots,
  roomOf,
} from '../../../src/hpc/pilots/pilot-plan.ts'
import { assertProperty } from '../../property.ts'
import { resolveResources, type ResourceRequest } from '../../../src/tasks/resources.ts'

const node = { cores: 4, gpus: 0, memoryMb: 8000, labels: {} }
const kind: PilotKind = {
  nodes: 1,
  min: 0,
  max: 4,
  backlog: 2,
  idleSeconds: 10,
  usableSeconds: 3600,
  maxTotal: 1000,
  candidates: [node],
}

/** What the scheduler does with one request. */
interface QueueAnswer {
  readonly isRefused?: boolean
  readonly queueSeconds: number
  /** From its start on; `Infinity` for one that lives until it is given back. */
  readonly lifeSeconds: number
}

interface SimulatedPilot {
  readonly id: string
  readonly kind: number
  readonly answer: QueueAnswer
  readonly submittedAt: number
  startedAt: number | null
  idleSince: number | null
  /** Ends of the tasks that it runs. */
  readonly tasks: number[]
}

/** One kind of task, and a scheduler that decides by turns. */
class Simulation {
  now = 0
  left = 0
  done = 0
  readonly submissions: number[] = []
  readonly pilots: SimulatedPilot[] = []
  readonly histories: PilotHistory[]
  readonly #kinds: readonly PilotKind[]
  readonly #resources: ResourceRequest
  readonly #answers: readonly QueueAnswer[]
  readonly #taskSeconds: number

  constructor(
    kinds: readonly PilotKind[],
    answers: readonly QueueAnswer[],
    { resources = resolveResources({}), taskSeconds = 5 } = {},
  ) {
    this.#kinds = kinds
    this.#answers = answers
    this.#resources = resources
    this.#taskSeconds = taskSeconds
    this.histories = kinds.map(() => noHistory)
  }

  get running(): SimulatedPilot[] {
    return this.pilots.filter(({ startedAt }) => startedAt !== null)
  }

  get queued(): SimulatedPilot[] {
    return this.pilots.filter(({ startedAt }) => startedAt === null)
  }

  run(seconds: number): void {
    for (let step = 0; step < seconds; step++) this.#second()
  }

  #second(): void {
    this.now++
    for (const pilot of this.pilots.slice()) this.#advance(pilot)
    for (const pilot of this.running) this.#fill(pilot)
    const waiting: WaitingWork[] = this.left === 0 ? [] : [this.#waiting()]
    const plan = planPilots({
      kinds: this.#kinds,
      work: waiting,
      pilots: this.pilots.map((one) => ({
        id: one.id,
        kind: one.kind,
        startedAt: one.startedAt,
        isEnding: false,
        idleSince: one.idleSince,
      })),
      histories: this.histories,
      now: this.now,
    })
    for (const id of plan.end) this.#remove(id, 'given back', '')
    for (const at of plan.submit) this.#submit(at)
  }

  #waiting(): WaitingWork {
    return { resources: this.#resources, count: this.left }
  }

  #submit(at: number): void {
    const answer = this.#answers[this.submissions.length % this.#answers.length] as QueueAnswer
    this.submissions.push(this.now)
    const history = this.histories[at] as PilotHistory
    this.histories[at] = { ...history, submitted: history.submitted + 1 }
    if (answer.isRefused === true) return this.#note(at, this.now, 'failed', 'Invalid account')
    const id = `job-${this.submissions.length}`
    const times = { submittedAt: this.now, startedAt: null, idleSince: null }
    this.pilots.push({ id, kind: at, answer, ...times, tasks: [] })
  }

  #advance(pilot: SimulatedPilot): void {
    if (pilot.startedAt === null) {
      if (this.now - pilot.submittedAt < pilot.answer.queueSeconds) return
      pilot.startedAt = this.now
      pilot.idleSince = this.now
    }
    const ended = pilot.tasks.filter((end) => end <= this.now).length
    this.done += ended
    pilot.tasks.splice(0, ended)
    if (pilot.tasks.length === 0) pilot.idleSince ??= this.now
    const age = this.now - pilot.startedAt
    if (age < pilot.answer.lifeSeconds) return
    // What ran there is tried again.
    this.left += pilot.tasks.length
    this.#remove(pilot.id, age < 60 ? 'failed' : 'lived', 'NODE_FAIL')
  }

  #fill(pilot: SimulatedPilot): void {
    const room = roomOf(this.#kinds[pilot.kind] as PilotKind, this.#resources)
    while (this.left > 0 && pilot.tasks.length < room) {
      this.left--
      pilot.tasks.push(this.now + this.#taskSeconds)
      pilot.idleSince = null
    }
  }

  #remove(id: string, how: PilotEnd['kind'], reason: string): void {
    const at = this.pilots.findIndex((one) => one.id === id)
    const [pilot] = this.pilots.splice(at, 1) as [SimulatedPilot]
    this.#note(pilot.kind, pilot.submittedAt, how, reason)
  }

  #note(at: number, submittedAt: number, how: PilotEnd['kind'], reason: string): void {
    const end = { kind: how, submittedAt, at: this.now, reason }
    this.histories[at] = noteEnd(this.histories[at] as PilotHistory, end)
  }
}

const willing: QueueAnswer = { queueSeconds: 3, lifeSeconds: Infinity }

describe('allocations by waiting work', () => {
  it('grows with the work, does it, and gives everything back', () => {
    const simulation = new Simulation([kind], [willing])
    simulation.left = 200
    simulation.run(20)
    expect(simulation.running).toHaveLength(4)
    simulation.run(100)
    expect(simulation.done).toBe(200)
    expect(simulation.pilots).toEqual([])
  })

  it('asks for no more than the work needs', () => {
    const simulation = new Simulation([kind], [willing])
    simulation.left = 5
    simulation.run(100)
    expect(simulation.submissions).toHaveLength(2)
    expect(simulation.done).toBe(5)
  })

  it('has no more in the queue than the backlog, and no more in all than maxTotal', () => {
    const stuck: QueueAnswer = { queueSeconds: 1e9, lifeSeconds: 1 }
    const waiting = new Simulation([kind], [stuck])
    waiting.left = 1000
    waiting.run(50)
    expect(waiting.submissions).toEqual([1, 2])
    const few = new Simulation([{ ...kind, maxTotal: 3 }], [{ queueSeconds: 1, lifeSeconds: 70 }])
    few.left = 1e6
    few.run(1000)
    expect(few.submissions).toHaveLength(3)
    expect(few.pilots).toEqual([])
  })

  it('takes those from the queue that the work does not need any more', () => {
    const simulation = new Simulation([kind], [{ queueSeconds: 1e9, lifeSeconds: 1 }])
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

  it('keeps as many as min says, from the beginning and without work', () => {
    const simulation = new Simulation([{ ...kind, min: 2 }], [{ queueSeconds: 1, lifeSeconds: 70 }])
    simulation.run(30)
    expect(simulation.running).toHaveLength(2)
    // They are replaced when their time is over.
    simulation.run(300)
    expect(simulation.pilots).toHaveLength(2)
  })

  it('waits longer after each refusal, and stops after the third', () => {
    const simulation = new Simulation([kind], [{ ...willing, isRefused: true }])
    simulation.left = 100
    simulation.run(10_000)
    expect(simulation.submissions).toEqual([1, 11, 31])
    expect(simulation.histories[0]).toMatchObject({ failures: 3, reason: 'Invalid account' })
  })

  it('waits longer after each one that dies young, and stops after the third', () => {
    const simulation = new Simulation([{ ...kind, max: 1 }], [{ queueSeconds: 1, lifeSeconds: 5 }])
    simulation.left = 100
    simulation.run(10_000)
    const [first = 0, second = 0, third = 0, ...more] = simulation.submissions
    expect(more).toEqual([])
    expect(second - first).toBeGreaterThanOrEqual(16)
    expect(third - second).toBeGreaterThanOrEqual(26)
  })

  it('counts those once that fail together', () => {
    const simulation = new Simulation([kind], [{ queueSeconds: 1, lifeSeconds: 20 }])
    simulation.left = 1000
    simulation.run(60)
    expect(simulation.submissions.length).toBeGreaterThan(3)
    expect(simulation.histories[0]?.failures).toBeLessThan(3)
  })

  it('begins to count again after one that has lived', () => {
    const young: QueueAnswer = { queueSeconds: 1, lifeSeconds: 5 }
    const lived: QueueAnswer = { queueSeconds: 1, lifeSeconds: 100 }
    const simulation = new Simulation([{ ...kind, max: 1 }], [young, young, lived])
    simulation.left = 1e6
    simulation.run(10_000)
    expect(simulation.submissions.length).toBeGreaterThan(30)
  })

  it('asks for none where no such node could run the work', () => {
    const requests = [{ cores: 5 }, { gpus: 1 }, { memoryMb: 9000 }, { seconds: 3601 }]
    const others = [{ labels: { disk: 'ssd' } }, { ranks: 5 }, { ranks: 2, ranksPerNode: 5 }]
    for (const request of [...requests, ...others]) {
      const resources = resolveResources(request)
      const simulation = new Simulation([kind], [willing], { resources })
      simulation.left = 10
      simulation.run(100)
      expect(simulation.submissions, JSON.stringify(request)).toEqual([])
    }
  })

  it('asks the first kind that can run the work, and the next when that one has stopped', () => {
    const gpu = { ...kind, candidates: [{ ...node, gpus: 2 }] }
    const resources = resolveResources({ gpus: 1 })
    const needing = new Simulation([kind, gpu], [willing], { resources })
    needing.left = 4
    needing.run(10)
    expect(needing.pilots.map((one) => one.kind)).toEqual([1, 1])
    const refused = { ...willing, isRefused: true }
    const answers = [refused, refused, refused, willing]
    const plain = new Simulation([{ ...kind, backlog: 1 }, gpu], answers)
    plain.left = 4
    plain.run(200)
    expect(plain.histories[0]).toMatchObject({ submitted: 3, failures: 3 })
    expect(plain.done).toBe(4)
  })

  it('counts the ranks of an MPI program over the nodes of one allocation', () => {
    const four = { ...kind, nodes: 4 }
    expect(roomOf(four, resolveResources({ ranks: 16 }))).toBe(1)
    expect(roomOf(four, resolveResources({ ranks: 17 }))).toBe(0)
    expect(roomOf(four, resolveResources({ ranks: 4, ranksPerNode: 1 }))).toBe(1)
    expect(roomOf(four, resolveResources({ ranks: 4, ranksPerNode: 2 }))).toBe(2)
  })

  it('keeps its limits whatever the queue does, and does all work that it may', () => {
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
        const own = { ...kind, ...given }
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
