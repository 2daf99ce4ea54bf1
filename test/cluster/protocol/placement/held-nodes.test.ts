import { describe, expect, it } from 'vitest'
import { HeldNodes } from '../../../../src/cluster/protocol/placement/held-nodes.ts'
import { Placement } from '../../../../src/cluster/protocol/placement/placement.ts'
import type { PlacedJob } from '../../../../src/cluster/protocol/placement/shapes.ts'
import { findUnplaceable } from '../../../../src/cluster/protocol/placement/placement-state.ts'
import { defaultResources, type ResourceRequest } from '../../../../src/tasks/resources.ts'

interface TestJob extends PlacedJob {
  readonly name: string
}

let sequence = 0
function job(name: string, resources: Partial<ResourceRequest> = {}, node?: string): TestJob {
  const spec = {
    kind: 'function',
    priority: 0,
    resources: { ...defaultResources, ...resources },
  } as const
  const one = {
    name,
    sequence: ++sequence,
    spec,
    avoidedNode: null,
    exclusion: null,
    isRetry: false,
  }
  if (node === undefined) return one
  const jobs: TestJob[] = []
  const pinned = { ...one, group: { jobs, jobsPerNode: null, node } }
  jobs.push(pinned)
  return pinned
}

/** A session on nodes of four cores and two GPUs. */
function sessionOn(held: HeldNodes, ...names: readonly string[]) {
  const view = held.open()
  const placement = new Placement<TestJob>(undefined, view)
  const sent = new Map<string, TestJob[]>()
  view.attach({
    changed: (name) => placement.setHeld(name),
    jobsAt: (name) => sent.get(name) ?? [],
  })
  const facts = { cores: 4, gpus: 2, memoryMb: 1000, labels: {} }
  for (const name of names) placement.addNode(name, facts, { ...facts, ahead: 0 })
  const assign = (...jobs: readonly TestJob[]): Record<string, string[]> => {
    for (const one of jobs) placement.push(one)
    const placed = placement.assign()
    for (const [name, own] of placed) sent.set(name, [...(sent.get(name) ?? []), ...own])
    return Object.fromEntries(
      Array.from(placed, ([name, own]) => [name, own.map((one) => one.name)]),
    )
  }
  const end = (name: string, one: TestJob): void => {
    sent.set(
      name,
      (sent.get(name) ?? []).filter((other) => other !== one),
    )
    placement.release(name, one)
  }
  return { view, placement, assign, end }
}

const whole = { cores: 4, gpus: 2 }

describe('what services hold', () => {
  it('resources of services are kept from later jobs, and on release go to waiting ones', () => {
    const held = new HeldNodes()
    const { assign } = sessionOn(held, 'a')
    const release = held.hold('a', { service: 'chat', cores: 1, gpus: 1 })
    expect(assign(job('one', { gpus: 1 }), job('two', { gpus: 1 }))).toEqual({ a: ['one'] })
    release()
    release()
    expect(assign()).toEqual({ a: ['two'] })
    expect(held.of('a')).toEqual([])
  })

  it('resources of services make a request impossible, and possible again on release', () => {
    const held = new HeldNodes()
    const { assign, placement } = sessionOn(held, 'a', 'b')
    const releases = ['a', 'b'].map((name) =>
      held.hold(name, { service: 'chat', cores: 1, gpus: 2 }),
    )
    expect(assign(job('gpu', { gpus: 1 }), job('cores', { cores: 4 }))).toEqual({})
    expect([...findUnplaceable(placement).values()]).toEqual([[], []])
    expect(held.describe()).toEqual([
      'service "chat" holds 2 GPUs and 1 core of a',
      'service "chat" holds 2 GPUs and 1 core of b',
    ])
    for (const release of releases) release()
    expect(assign()).toEqual({ a: ['gpu'], b: ['cores'] })
  })

  it('resources for services become free once larger jobs of all sessions have ended', () => {
    const held = new HeldNodes()
    const [first, second] = [sessionOn(held, 'a'), sessionOn(held, 'a')]
    const gpu = job('gpu', { gpus: 1 })
    const cores = job('cores', { cores: 3 })
    first.assign(gpu, job('small'))
    second.assign(cores)
    held.hold('a', { service: 'chat', cores: 1, gpus: 2 })
    expect(held.hasRoom('a', whole)).toBe(false)
    first.end('a', gpu)
    expect(held.hasRoom('a', whole)).toBe(true)
    held.hold('a', { service: 'other', cores: 1, gpus: 0 })
    expect(held.hasRoom('a', whole)).toBe(false)
    // A session that is over has no jobs.
    second.view.close()
    expect(held.hasRoom('a', whole)).toBe(true)
  })
})

describe('a job for one node', () => {
  it('a job for one node runs only there, and waits while that node has no room', () => {
    const { assign } = sessionOn(new HeldNodes(), 'a', 'b')
    expect(assign(job('one', {}, 'b'), job('two', { gpus: 2 }, 'b'))).toEqual({ b: ['one', 'two'] })
    expect(assign(job('three', { gpus: 1 }, 'b'))).toEqual({})
    expect(assign(job('four', { gpus: 1 }))).toEqual({ a: ['four'] })
  })

  it('a job for one node cannot be placed without that node, and no other has refused it', () => {
    const { placement, assign } = sessionOn(new HeldNodes(), 'a')
    expect(assign(job('one', {}, 'b'))).toEqual({})
    expect([...findUnplaceable(placement).values()]).toEqual([[]])
  })
})
