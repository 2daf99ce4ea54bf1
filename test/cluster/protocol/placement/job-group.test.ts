import { describe, expect, it } from 'vitest'
import { HeldNodes } from '../../../../src/cluster/protocol/placement/held-nodes.ts'
import {
  type JobGroup,
  toRunningRequest,
} from '../../../../src/cluster/protocol/placement/job-group.ts'
import { Placement } from '../../../../src/cluster/protocol/placement/placement.ts'
import {
  findUnplaceable,
  toLoad,
} from '../../../../src/cluster/protocol/placement/placement-state.ts'
import type { PlacedJob } from '../../../../src/cluster/protocol/placement/shapes.ts'
import type { NodeFacts } from '../../../../src/cluster/wire/messages.ts'
import { type ResourceRequest, resolveResources } from '../../../../src/tasks/resources.ts'

interface TestJob extends PlacedJob {
  readonly name: string
}

let sequence = 0
function job(
  name: string,
  resources: Partial<ResourceRequest> = {},
  more: Partial<PlacedJob> = {},
): TestJob {
  const spec = { kind: 'program', priority: 0, resources: resolveResources(resources) } as const
  const rest = { avoidedNode: null, exclusion: null, isRetry: false, ...more }
  return { name, sequence: ++sequence, spec, ...rest }
}

interface GroupOptions {
  readonly resources?: Partial<ResourceRequest>
  readonly perNode?: number
  readonly avoid?: string
  readonly node?: string
}

/** Jobs `name0`, `name1`, … that begin together. */
function groupOf(name: string, size: number, options: GroupOptions = {}): TestJob[] {
  const {
    resources = {},
    perNode: jobsPerNode = null,
    avoid: avoidedNode = null,
    node = null,
  } = options
  const jobs: TestJob[] = []
  const group: JobGroup<TestJob> = { jobs, jobsPerNode, node }
  for (let at = 0; at < size; at++)
    jobs.push(job(`${name}${at}`, resources, { avoidedNode, group }))
  return jobs
}

const facts = (cores: number, gpus = 0): NodeFacts => ({ cores, gpus, memoryMb: 1000, labels: {} })

function placementOf(
  nodes: Readonly<Record<string, NodeFacts>>,
  times?: ConstructorParameters<typeof Placement>[0],
): Placement<TestJob> {
  const placement = new Placement<TestJob>(times)
  for (const [name, all] of Object.entries(nodes)) {
    placement.addNode(name, all, { ...all, ahead: 0 })
  }
  return placement
}

const push = (placement: Placement<TestJob>, ...jobs: readonly TestJob[]): void => {
  for (const one of jobs) placement.push(one)
}

const assigned = (placement: Placement<TestJob>): Record<string, string[]> =>
  Object.fromEntries(
    Array.from(placement.assign(), ([node, jobs]) => [node, jobs.map(({ name }) => name)]),
  )

describe('jobs that begin together', () => {
  it('a group of jobs uses few nodes, and neighbours share a node', () => {
    const placement = placementOf({ b: facts(2), a: facts(4), c: facts(4) })
    push(placement, ...groupOf('r', 6))
    expect(assigned(placement)).toEqual({ a: ['r0', 'r1', 'r2', 'r3'], c: ['r4', 'r5'] })
  })

  it('a group of jobs puts as many on each node as requested', () => {
    const placement = placementOf({ a: facts(4, 2), b: facts(1, 2), c: facts(4, 2) })
    push(placement, ...groupOf('r', 4, { perNode: 2, resources: { gpus: 1 } }))
    expect(assigned(placement)).toEqual({ a: ['r0', 'r1'], c: ['r2', 'r3'] })
  })

  it('a group of jobs holds nothing while there is no room for all', () => {
    const placement = placementOf({ a: facts(2), b: facts(2) })
    const running = job('running')
    push(placement, running)
    const [node = ''] = Object.keys(assigned(placement))
    const [first, second] = [groupOf('first', 4), groupOf('second', 4)]
    push(placement, ...first, ...second)
    expect(assigned(placement)).toEqual({})
    placement.release(node, running)
    expect(Object.values(assigned(placement)).flat()).toEqual(first.map(({ name }) => name))
    expect(placement.waiting).toBe(1)
    for (const [at, one] of first.entries()) placement.release(at < 2 ? 'a' : 'b', one)
    expect(Object.values(assigned(placement)).flat()).toEqual(second.map(({ name }) => name))
  })

  it('a group of jobs is not starved: smaller jobs pass only if they end before', () => {
    // Node a has a job for 100 s, node b is idle: the group begins in 100 s.
    const long = job('long', { cores: 2, seconds: 100 })
    const running = (node: string) =>
      node === 'a' ? [{ request: long.spec.resources, seconds: 100 }] : []
    const placement = placementOf(
      { a: facts(2), b: facts(2) },
      { secondsLeft: () => Infinity, running },
    )
    push(placement, long)
    expect(assigned(placement)).toEqual({ a: ['long'] })
    push(placement, ...groupOf('r', 4), job('unknown'), job('longer', { seconds: 101 }))
    expect(assigned(placement)).toEqual({})
    push(placement, job('shorter', { cores: 2, seconds: 100 }))
    expect(assigned(placement)).toEqual({ b: ['shorter'] })
  })

  it('a group of jobs is passed by a short job, also from behind a longer equal one', () => {
    const long = job('long', { cores: 2, seconds: 100 })
    const running = (node: string) =>
      node === 'a' ? [{ request: long.spec.resources, seconds: 100 }] : []
    const times = { secondsLeft: () => Infinity, running }
    const placement = placementOf({ a: facts(2), b: facts(2) }, times)
    push(placement, long)
    expect(assigned(placement)).toEqual({ a: ['long'] })
    const resources = (seconds: number) => ({ cores: 2, seconds })
    push(placement, ...groupOf('r', 4), job('longer', resources(200)), job('short', resources(1.5)))
    expect(assigned(placement)).toEqual({ b: ['short'] })
    expect(assigned(placement)).toEqual({})
  })

  it('a group of jobs avoids a node while the idle others have room for all', () => {
    const nodes = { a: facts(2), b: facts(2), c: facts(2) }
    const placement = placementOf(nodes)
    const first = groupOf('r', 2, { perNode: 1, avoid: 'a' })
    push(placement, ...first)
    expect(assigned(placement)).toEqual({ b: ['r0'], c: ['r1'] })
    push(placement, ...groupOf('s', 3, { perNode: 1, avoid: 'a' }))
    expect(assigned(placement)).toEqual({ a: ['s0'], b: ['s1'], c: ['s2'] })
  })

  it('a group of jobs stays within nodes that were given together', () => {
    const given = (allocation: string) => ({ ...facts(2), labels: { allocation } })
    const placement = placementOf({ a: given('1'), b: given('2'), c: given('2') })
    push(placement, ...groupOf('r', 4))
    expect(assigned(placement)).toEqual({ b: ['r0', 'r1'], c: ['r2', 'r3'] })
    push(placement, ...groupOf('s', 5))
    expect(findUnplaceable(placement)).toHaveLength(1)
  })

  it('a group of jobs is forgotten and taken as a whole', () => {
    const placement = placementOf({ a: facts(1) })
    const [one, other] = [groupOf('r', 3), groupOf('s', 3)]
    push(placement, ...one, ...other)
    expect(assigned(placement)).toEqual({})
    expect(findUnplaceable(placement)).toHaveLength(1)
    for (const member of one) placement.remove(member)
    expect(placement.waiting).toBe(1)
    expect(placement.takeAll()).toEqual(other)
    expect(placement.waiting).toBe(0)
  })
})

describe('jobs that begin together on nodes that come later', () => {
  it('a group of jobs is not passed by smaller ones once nodes come later', () => {
    const placement = placementOf({ a: facts(4) })
    push(placement, ...groupOf('r', 2, { resources: { cores: 2 }, perNode: 1 }))
    push(placement, job('small0', { cores: 3 }), job('small1', { cores: 3 }))
    // They cannot begin on one node, and keep nothing from others.
    expect(assigned(placement)).toEqual({ a: ['small0'] })
    placement.addNode('b', facts(4), { ...facts(4), ahead: 0 })
    expect(assigned(placement)).toEqual({})
    placement.release('a', job('small0', { cores: 3 }))
    expect(assigned(placement)).toEqual({ a: ['r0'], b: ['r1'] })
  })
})

it('jobs that begin together are not passed after a service gave a node back', () => {
  const held = new HeldNodes()
  const placement = new Placement<TestJob>(undefined, held.open())
  for (const name of ['a', 'b']) placement.addNode(name, facts(4), { ...facts(4), ahead: 0 })
  push(placement, job('small0', { cores: 3 }), job('small1', { cores: 3 }))
  expect(Object.keys(assigned(placement))).toHaveLength(2)
  push(placement, ...groupOf('r', 2, { resources: { cores: 4 }, perNode: 1 }))
  const release = held.hold('b', { service: 'chat', cores: 1, gpus: 0 })
  placement.setHeld('b')
  expect(assigned(placement)).toEqual({})
  release()
  placement.setHeld('b')
  push(placement, job('small2', { cores: 3 }))
  placement.release('a', job('small0', { cores: 3 }))
  expect(assigned(placement)).toEqual({})
})

describe('what is asked about waiting jobs', () => {
  it('a count of waiting jobs separates jobs that wait for different nodes', () => {
    const times = { secondsLeft: () => Infinity, running: () => [], horizons: [100, 1000] }
    const placement = placementOf({}, times)
    push(placement, job('a', { seconds: 100 }), job('b', { seconds: 101 }))
    push(placement, job('c', { seconds: 102 }), job('d', { seconds: 5000 }), job('e'))
    push(placement, ...groupOf('bound', 1, { node: 'n9' }))
    const { waiting } = toLoad(placement)
    expect(waiting.map(({ resources, count }) => [resources.seconds, count])).toEqual([
      [100, 1],
      [101, 2],
      [5000, 1],
      [undefined, 1],
    ])
  })

  it('a count of waiting jobs includes running and held jobs of busy nodes', () => {
    const placement = new Placement<TestJob>()
    const node = facts(2)
    placement.addNode('a', node, { ...node, ahead: 2 })
    push(placement, ...Array.from({ length: 5 }, (_, at) => job(`j${at}`)))
    expect(assigned(placement)['a']).toHaveLength(4)
    const { waiting, nodes } = toLoad(placement)
    expect(waiting.map(({ count, isSent = false }) => [count, isSent])).toEqual([
      [1, false],
      [2, true],
    ])
    expect([...nodes]).toEqual([['a', { isBusy: true, taken: 4 }]])
  })

  it('a count of waiting jobs leaves out jobs on a node that is leaving', () => {
    const placement = placementOf({ a: facts(2) })
    push(placement, job('x'), job('y'))
    expect(assigned(placement)['a']).toHaveLength(2)
    const nothing = { cores: 0, gpus: 0, memoryMb: 0, ahead: 0 }
    placement.setOffer('a', nothing)
    expect(toLoad(placement).waiting).toEqual([])
    placement.setUsable('a', false)
    expect(toLoad(placement).waiting).toEqual([])
  })

  it('a node with too few cores for a group is not named as refusing it', () => {
    const placement = placementOf({ a: facts(4), b: facts(4) })
    push(placement, ...groupOf('r', 9))
    expect([...findUnplaceable(placement).values()]).toEqual([[]])
  })

  it('nodes that leave before a job has ended are not counted', () => {
    const placement = placementOf({ a: facts(4) })
    push(placement, job('long', { seconds: 61 }))
    expect(findUnplaceable(placement)).toHaveLength(0)
    expect(findUnplaceable(placement, () => 61)).toHaveLength(0)
    expect(findUnplaceable(placement, () => 60)).toHaveLength(1)
  })
})

describe('jobs that say how long they run', () => {
  it('jobs with a known duration begin on a node that stays long enough', () => {
    const left: Readonly<Record<string, number>> = { a: 10, b: 100, c: 100 }
    const secondsLeft = (node?: string): number => (node === undefined ? 100 : (left[node] ?? 0))
    const nodes = { a: facts(2), b: facts(1), c: facts(1) }
    const placement = placementOf(nodes, { secondsLeft, running: () => [] })
    push(placement, ...groupOf('r', 2, { resources: { seconds: 11 } }))
    expect(assigned(placement)).toEqual({ b: ['r0'], c: ['r1'] })
    push(placement, job('long', { seconds: 11 }))
    expect(assigned(placement)).toEqual({})
    push(placement, job('any'))
    expect(assigned(placement)).toEqual({ a: ['any'] })
  })

  it('jobs with a known duration do not begin when less time is left, until that changes', () => {
    let left = 60
    const placement = placementOf({ a: facts(4) }, { secondsLeft: () => left, running: () => [] })
    push(placement, job('late', { seconds: 61 }), job('in time', { seconds: 60 }), job('any'))
    expect(Object.values(assigned(placement)).flat().toSorted()).toEqual(['any', 'in time'])
    const canceled = job('canceled', { seconds: 1000 })
    push(placement, canceled)
    expect([assigned(placement), placement.waiting]).toEqual([{}, 0])
    placement.remove(canceled)
    left = 61
    expect(assigned(placement)).toEqual({ a: ['late'] })
    left = 5
    const last = groupOf('r', 2, { resources: { seconds: 6 } })
    push(placement, ...last)
    expect(assigned(placement)).toEqual({})
    expect(placement.takeAll()).toEqual(last)
  })
})

it.each([
  ['what is left of its `seconds` since it started', { seconds: 10 }, 3000, 8],
  ['what is left since it was placed, if it has not started', { seconds: 10 }, null, 6],
  ['nothing more beyond its `seconds`', { seconds: 1 }, 3000, 0],
  ['nothing more without `seconds`', {}, 3000, 0],
] as const)('a running job is expected to run for %s', (_, resources, startedMs, seconds) => {
  const { spec } = job('running', resources)
  const running = toRunningRequest({ spec, startedMs, sinceMs: 1000 }, 5000)
  expect(running).toEqual({ request: spec.resources, seconds })
})
