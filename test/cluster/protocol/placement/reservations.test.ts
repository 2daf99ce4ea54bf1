import { describe, expect, it } from 'vitest'
import { Placement } from '../../../../src/cluster/protocol/placement/placement.ts'
import { toWaitingWork } from '../../../../src/cluster/protocol/placement/placement-state.ts'
import type { PlacedJob } from '../../../../src/cluster/protocol/placement/shapes.ts'
import type { NodeFacts, Offer } from '../../../../src/cluster/wire/messages.ts'
import { type ResourceRequest, resolveResources } from '../../../../src/tasks/resources.ts'

type Asked = Partial<ResourceRequest>

let sequence = 0
function job(resources: Asked = {}, priority = 0, group: PlacedJob['group'] = null): PlacedJob {
  const spec = { kind: 'function', priority, resources: resolveResources(resources) } as const
  return { sequence: ++sequence, spec, avoidedNode: null, exclusion: null, isRetry: false, group }
}

const several = (count: number, resources: Asked = {}, priority = 0): PlacedJob[] =>
  Array.from({ length: count }, () => job(resources, priority))

/** Ranks that begin together, one on each node. */
function groupOf(size: number, priority: number): PlacedJob[] {
  const jobs: PlacedJob[] = []
  const group = { jobs, jobsPerNode: 1, node: null }
  for (let at = 0; at < size; at++) jobs.push(job({ cores: 2 }, priority, group))
  return jobs
}

/** A placement, and what its nodes have: they begin jobs in the order in which they get them. */
class Nodes {
  readonly placement = new Placement<PlacedJob>()
  readonly at = new Map<string, PlacedJob[]>()
  /** In the order of placement. */
  readonly placed: { readonly node: string; readonly job: PlacedJob }[] = []

  constructor(facts: readonly Partial<NodeFacts>[], ahead = 0) {
    for (const [index, own] of facts.entries()) {
      const all = { cores: 1, gpus: 0, memoryMb: 1000, labels: {}, ...own }
      this.placement.addNode(`n${index}`, all, { ...all, ahead })
      this.at.set(`n${index}`, [])
    }
  }

  push(...jobs: readonly PlacedJob[]): void {
    for (const one of jobs) this.placement.push(one)
    this.assign()
  }

  assign(): void {
    for (const [node, jobs] of this.placement.assign()) {
      this.at.get(node)?.push(...jobs)
      for (const one of jobs) this.placed.push({ node, job: one })
    }
  }

  /** The first of each node ends, or this one. */
  end(node: string, ended = this.at.get(node)?.[0]): void {
    if (ended === undefined) return
    const jobs = this.at.get(node) ?? []
    jobs.splice(jobs.indexOf(ended), 1)
    this.placement.release(node, ended)
    this.assign()
  }

  endOfEach(): void {
    for (const node of this.at.keys()) this.end(node)
  }

  nodesOf(jobs: readonly PlacedJob[]): string[] {
    const own = new Set(jobs)
    return this.placed.filter(({ job: one }) => own.has(one)).map(({ node }) => node)
  }

  /** The number of these jobs that have a node. */
  count(jobs: readonly PlacedJob[]): number {
    return this.nodesOf(jobs).length
  }
}

const zone = { zone: 'a' }

describe('urgent jobs that do not wait at nodes', () => {
  const kinds: Readonly<Record<string, Asked>> = {
    labels: { labels: zone },
    memory: { memoryMb: 10 },
    GPUs: { gpus: 1 },
    'two cores': { cores: 2 },
  }
  it.each(Object.entries(kinds))(
    'urgent jobs with %s begin on all nodes before others',
    (_, resources) => {
      const all = { cores: 2, gpus: 2, labels: zone }
      const nodes = new Nodes([all, all, all, all], 3)
      const low = several(200)
      nodes.push(...low)
      const urgent = several(24, resources, 10)
      const before = nodes.count(low)
      nodes.push(...urgent)
      for (let rounds = 0; nodes.count(urgent) < 20; rounds++) {
        expect(rounds).toBeLessThan(40)
        nodes.endOfEach()
      }
      expect(nodes.count(low)).toBe(before)
      expect(new Set(nodes.nodesOf(urgent.slice(0, 4))).size).toBe(4)
      while (nodes.count(low) < low.length) {
        const had = nodes.placed.length
        nodes.endOfEach()
        expect(nodes.placed.length).toBeGreaterThan(had)
      }
    },
  )

  it('urgent jobs reserve one node each', () => {
    const nodes = new Nodes([{}, {}, {}, {}])
    const low = several(100)
    const urgent = several(2, { memoryMb: 10 }, 1)
    nodes.push(...low)
    nodes.push(...urgent)
    nodes.endOfEach()
    expect([nodes.count(urgent), nodes.count(low)]).toEqual([2, 6])
    nodes.endOfEach()
    expect(nodes.count(low)).toBe(10)
  })

  it('urgent jobs release their nodes when they are canceled', () => {
    const nodes = new Nodes([{ cores: 2 }, { cores: 2 }, { cores: 2 }])
    nodes.push(...several(6))
    const urgent = several(3, { cores: 2 }, 1)
    nodes.push(...urgent)
    nodes.endOfEach()
    const low = several(10)
    nodes.push(...low)
    expect(nodes.count(low)).toBe(0)
    for (const [at, one] of urgent.entries()) {
      nodes.placement.remove(one)
      nodes.assign()
      expect(nodes.count(low)).toBe(at + 1)
    }
  })

  it('urgent jobs keep one node from others that are as urgent', () => {
    const nodes = new Nodes([{}, {}, {}, {}], 1)
    nodes.push(...several(8))
    nodes.push(...several(20, { memoryMb: 10 }))
    const later = several(20)
    nodes.push(...later)
    nodes.endOfEach()
    expect(nodes.count(later)).toBe(3)
  })

  it('urgent jobs of several kinds have nodes for each kind', () => {
    const nodes = new Nodes([{ labels: zone }, { labels: zone }, { gpus: 1 }, { gpus: 1 }], 1)
    const low = several(100)
    nodes.push(...low)
    const urgent = [...several(4, { labels: zone }, 2), ...several(4, { gpus: 1 }, 1)]
    nodes.push(...urgent)
    nodes.endOfEach()
    nodes.endOfEach()
    expect([nodes.count(urgent), nodes.count(low)]).toEqual([4, 8])
    nodes.endOfEach()
    expect(nodes.count(urgent)).toBe(8)
  })

  it('urgent jobs hold back less urgent ones, and nothing else', () => {
    const nodes = new Nodes([{}, {}, {}, {}])
    nodes.push(...several(4, {}, 9))
    const [high, middle] = [several(1, { memoryMb: 10 }, 8), several(8, {}, 5)]
    const low = [...several(6, { memoryMb: 10 }, 1), ...several(9)]
    nodes.push(...high, ...middle, ...low)
    const counts: number[][] = []
    for (let rounds = 0; rounds < 4; rounds++) {
      nodes.endOfEach()
      counts.push([high, middle, low.slice(0, 6), low].map((jobs) => nodes.count(jobs)))
    }
    expect(counts).toEqual([
      [1, 3, 0, 0],
      [1, 7, 0, 0],
      [1, 8, 3, 3],
      [1, 8, 6, 7],
    ])
  })

  it('urgent jobs are passed by more urgent ones, also if those found no node before', () => {
    const nodes = new Nodes([{ cores: 2 }, { cores: 2 }])
    nodes.push(...several(4, {}, 9))
    nodes.push(...several(2, { cores: 2 }, 3), ...several(10))
    nodes.endOfEach()
    const urgent = several(2, {}, 5)
    nodes.push(...urgent)
    expect(nodes.count(urgent)).toBe(2)
  })

  it('urgent jobs are not passed by an earlier kind that is less urgent', () => {
    const nodes = new Nodes([{}, {}], 1)
    nodes.push(...several(4, {}, 9))
    const low = several(20, { memoryMb: 10 }, 1)
    nodes.push(...low, ...several(20))
    const urgent = several(4, { memoryMb: 20 }, 5)
    const middle = several(20, {}, 3)
    nodes.push(...urgent)
    nodes.push(...middle)
    nodes.endOfEach()
    nodes.endOfEach()
    expect([urgent, middle, low].map((jobs) => nodes.count(jobs))).toEqual([2, 0, 0])
    nodes.endOfEach()
    expect(nodes.count(urgent)).toBe(4)
  })

  it('urgent jobs let others use cores of nodes where they lack GPUs', () => {
    const nodes = new Nodes([{ cores: 4, gpus: 1 }], 4)
    const [first, second] = [job({ gpus: 1 }, 1), job({ gpus: 1 }, 1)]
    const low = several(20)
    nodes.push(first, second)
    nodes.push(...low)
    // They start immediately, so that none waits there ahead of the urgent one.
    expect([nodes.count(low), nodes.count([second])]).toEqual([3, 0])
    nodes.end('n0', first)
    expect(nodes.count([second])).toBe(1)
  })

  it('urgent jobs begin in groups side by side', () => {
    const nodes = new Nodes(Array.from({ length: 4 }, () => ({ cores: 2 })))
    const low = several(100)
    nodes.push(...low)
    const groups = [groupOf(2, 1), groupOf(2, 1)]
    nodes.push(...groups.flat())
    nodes.endOfEach()
    nodes.endOfEach()
    expect(nodes.count(low)).toBe(8)
    expect(new Set(nodes.nodesOf(groups.flat())).size).toBe(4)
  })
})

describe('what agents are told of waiting jobs', () => {
  it('agents get the urgency of all waiting jobs, also of those that wait elsewhere', () => {
    const nodes = new Nodes([{}])
    const told = () => toWaitingWork(nodes.placement).waitingPriorities
    nodes.push(job())
    expect(told()).toBeUndefined()
    nodes.push(job({ memoryMb: 1 }, 10))
    expect(told()).toEqual({ lowest: Infinity, highest: 10 })
    nodes.push(job({}, 3), job({}, 1))
    expect(told()).toEqual({ lowest: 1, highest: 10 })
  })
})

describe('what it costs to keep nodes', () => {
  it('the cost of reservations does not depend on the number of nodes', () => {
    const [few, many] = [looksPerJob(10), looksPerJob(2000)]
    expect(many).toBeLessThanOrEqual(2 * few)
  })
})

/** How often nodes are looked at for each urgent job, which does not depend on the machine. */
function looksPerJob(count: number): number {
  let looks = 0
  const placement = new Placement<PlacedJob>()
  const all = { cores: 1, gpus: 0, memoryMb: 1000, labels: {} }
  const get = (target: Offer, key: string | symbol): unknown => {
    looks++
    return Reflect.get(target, key) as unknown
  }
  for (let at = 0; at < count; at++) {
    placement.addNode(`${at}`, all, new Proxy({ ...all, ahead: 0 }, { get }))
  }
  const running = new Map<string, PlacedJob>()
  const assign = (): void => {
    for (const [name, [one]] of placement.assign()) if (one !== undefined) running.set(name, one)
  }
  for (const one of several(count + 4000)) placement.push(one)
  assign()
  for (const one of several(2 * count + 2000, { memoryMb: 1 }, 1)) placement.push(one)
  assign()
  looks = 0
  for (let step = 0; step < 2000; step++) {
    const name = `${(step * 7919) % count}`
    const ended = running.get(name)
    if (ended !== undefined) placement.release(name, ended)
    assign()
    expect(running.get(name)?.spec.priority).toBe(1)
  }
  return looks / 2000
}
