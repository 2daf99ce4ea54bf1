import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Placement } from '../../../../src/cluster/protocol/placement/placement.ts'
import { findUnplaceable } from '../../../../src/cluster/protocol/placement/placement-state.ts'
import type { PlacedJob } from '../../../../src/cluster/protocol/placement/shapes.ts'
import type { NodeFacts, Offer } from '../../../../src/cluster/wire/messages.ts'
import { defaultResources, resolveResources } from '../../../../src/tasks/resources.ts'
import { assertProperty } from '../../../property.ts'

interface TestJob extends PlacedJob {
  readonly id: number
}

let sequence = 0
interface JobOptions {
  readonly resources?: Parameters<typeof resolveResources>[0]
  readonly priority?: number
  readonly avoid?: string
  readonly isRetry?: boolean
  readonly kind?: 'function' | 'program'
  readonly excluded?: PlacedJob['exclusion']
}

function job(options: JobOptions = {}): TestJob {
  const { resources, priority = 0, avoid: avoidedNode = null, isRetry = false } = options
  const { kind = 'function', excluded: exclusion = null } = options
  const id = ++sequence
  const wanted = resources ? resolveResources(resources) : defaultResources
  const spec = { kind, priority, resources: wanted } as const
  return { id, sequence: id, spec, avoidedNode, exclusion, isRetry }
}

const facts = (more: Partial<NodeFacts> = {}): NodeFacts => ({
  cores: 1,
  gpus: 0,
  memoryMb: 1000,
  labels: {},
  ...more,
})
const offerOf = (all: NodeFacts, ahead = 0): Offer => ({ ...all, ahead })

function placementOf(nodes: Readonly<Record<string, NodeFacts>>, ahead = 0): Placement<TestJob> {
  const placement = new Placement<TestJob>()
  for (const [name, all] of Object.entries(nodes)) {
    placement.addNode(name, all, offerOf(all, ahead))
  }
  return placement
}

function assigned(placement: Placement<TestJob>): Record<string, number[]> {
  const entries = [...placement.assign()].map(([name, jobs]) => [name, jobs.map(({ id }) => id)])
  return Object.fromEntries(entries) as Record<string, number[]>
}

describe('placement', () => {
  it('placement refills many nodes when half of their queue is gone, few immediately', () => {
    const sizes = [2, 8].map((count) => {
      const names = Array.from({ length: count }, (_, at) => `node-${at}`)
      const placement = placementOf(Object.fromEntries(names.map((name) => [name, facts()])), 10)
      for (let at = 0; at < 500; at++) placement.push(job())
      const full = [...placement.assign()].map(([, jobs]) => jobs.length)
      const refilled = [1, 2, 3, 4, 5].map(() => {
        placement.release('node-0', job())
        return Object.values(assigned(placement)).flat().length
      })
      return { full, refilled }
    })
    expect(sizes).toEqual([
      { full: [11, 11], refilled: [1, 1, 1, 1, 1] },
      { full: Array.from({ length: 8 }, () => 11), refilled: [0, 0, 0, 0, 5] },
    ])
  })

  it('placement gives a job its requested cores, GPUs, memory and labels', () => {
    const placement = placementOf({
      plain: facts({ cores: 2 }),
      gpu: facts({ cores: 2, gpus: 1, labels: { zone: 'a' } }),
      large: facts({ cores: 8, memoryMb: 64_000, labels: { zone: 'a', disk: 'fast' } }),
    })
    const gpu = job({ resources: { gpus: 1 } })
    const memory = job({ resources: { memoryMb: 32_000 } })
    const labels = job({ resources: { labels: { zone: 'a', disk: 'fast' } } })
    for (const one of [gpu, memory, labels]) placement.push(one)
    expect(assigned(placement)).toEqual({ gpu: [gpu.id], large: [memory.id, labels.id] })
  })

  it('placement places the higher priority first, then retries, then by arrival', () => {
    const placement = placementOf({ only: facts({ cores: 4 }) })
    const [first, retry, urgent, large] = [
      job(),
      job({ isRetry: true, avoid: 'elsewhere' }),
      job({ priority: 5 }),
      job({ resources: { memoryMb: 10 } }),
    ]
    for (const one of [first, retry, urgent, large]) placement.push(one)
    expect(assigned(placement)).toEqual({ only: [urgent.id, retry.id, first.id, large.id] })
  })

  it('placement gives a lone job to the node that ran the last one, if that is idle', () => {
    const placement = placementOf({ one: facts({ cores: 2 }), other: facts({ cores: 2 }) })
    const names: string[] = []
    for (let count = 0; count < 4; count++) {
      const alone = job()
      placement.push(alone)
      const [name = ''] = Object.keys(assigned(placement))
      names.push(name)
      placement.release(name, alone)
    }
    expect(new Set(names).size).toBe(1)
    const [running, next] = [job(), job()]
    placement.push(running)
    expect(Object.keys(assigned(placement))).toEqual([names[0]])
    placement.push(next)
    expect(Object.keys(assigned(placement))).not.toEqual([names[0]])
  })

  it('placement keeps a node free for a large job that small ones would starve', () => {
    const placement = placementOf({ one: facts({ cores: 4 }), other: facts({ cores: 2 }) })
    const running = Array.from({ length: 6 }, () => job())
    for (const one of running) placement.push(one)
    const placed = placement.assign()
    const large = job({ resources: { cores: 4 } })
    placement.push(large)
    placement.assign()
    const onOne = placed.get('one') ?? []
    expect(onOne).toHaveLength(4)
    for (const [at, ended] of onOne.entries()) {
      placement.release('one', ended)
      placement.push(job())
      expect(assigned(placement)).toEqual(at === 3 ? { one: [large.id] } : {})
    }
    placement.release('one', large)
    expect(assigned(placement)).toMatchObject({ one: { length: 4 } })
  })

  it('placement gives a silent node nothing, even a job that has no other node', () => {
    const placement = placementOf({ only: facts() })
    placement.setUsable('only', false)
    const retry = job({ avoid: 'only' })
    placement.push(retry)
    expect(assigned(placement)).toEqual({})
    placement.setUsable('only', true)
    expect(assigned(placement)).toEqual({ only: [retry.id] })
  })

  it('placement lets as many jobs wait at a node as it takes ahead, and no large ones', () => {
    const placement = placementOf({ one: facts() }, 3)
    const jobs = Array.from({ length: 10 }, () => job())
    for (const one of jobs) placement.push(one)
    placement.push(job({ resources: { memoryMb: 1 }, priority: 1 }))
    expect([...placement.assign().values()].flat()).toHaveLength(4)
    placement.setAhead('one', 5)
    expect([...placement.assign().values()].flat()).toHaveLength(2)
  })

  it('placement avoids the node of the last attempt while another could run the job', () => {
    const placement = placementOf({ one: facts(), other: facts() })
    const blocker = job({ avoid: 'one' })
    placement.push(blocker)
    expect(assigned(placement)).toEqual({ other: [blocker.id] })
    const retry = job({ avoid: 'one', isRetry: true })
    const fresh = job()
    placement.push(retry)
    placement.push(fresh)
    // The other node is busy: the retry waits and delays no other job.
    expect(assigned(placement)).toEqual({ one: [fresh.id] })
    placement.release('one', fresh)
    expect(assigned(placement)).toEqual({})
    placement.setUsable('other', false)
    expect(assigned(placement)).toEqual({ one: [retry.id] })
  })

  it('placement uses a silent or removed node for nothing, and a returned one again', () => {
    const placement = placementOf({ one: facts(), other: facts() })
    placement.setUsable('one', false)
    placement.removeNode('other')
    const only = job({ resources: { memoryMb: 5 } })
    placement.push(only)
    expect(assigned(placement)).toEqual({})
    placement.setUsable('one', true)
    expect(assigned(placement)).toEqual({ one: [only.id] })
  })

  it.each([{ gpus: 2 }, { cores: 2 }, { memoryMb: 1001 }, { ranks: 2 }])(
    'placement knows that no node could run a job of %j',
    (resources) => {
      const placement = placementOf({ one: facts() })
      const [possible, impossible] = [job(), job({ resources })]
      placement.push(possible)
      placement.push(impossible)
      const names = findUnplaceable(placement)
      expect([...names.values()]).toEqual([[]])
      const taken = [...names.keys()].flatMap((name) => placement.removeShape(name))
      expect(taken).toEqual([impossible])
      expect(findUnplaceable(placement)).toEqual(new Map())
      expect(placement.waiting).toBe(1)
    },
  )

  it('placement counts free cores only of nodes that allow any task', () => {
    const all = facts({ cores: 2 })
    const placement = placementOf({ any: all })
    placement.addNode('functions', all, offerOf(all), { only: 'functions', allow: null })
    placement.addNode('some', all, offerOf(all), { only: null, allow: ['/usr/bin/*'] })
    expect(placement.freeCores).toBe(2)
  })

  it('placement does not count the refusal of a leaving node: it may return changed', () => {
    const placement = placementOf({ one: facts() })
    placement.push(job({ excluded: { key: 'one', agents: new Set(['one']) } }))
    expect([...findUnplaceable(placement).values()]).toEqual([['one']])
    placement.setUsable('one', false)
    expect([...findUnplaceable(placement).values()]).toEqual([[]])
  })

  it('placement keeps jobs from nodes that do not allow them, and knows if none does', () => {
    const placement = placementOf({ one: facts() })
    const all = facts()
    placement.addNode('functions', all, offerOf(all), { only: 'functions', allow: null })
    const excluded = { key: 'one', agents: new Set(['one']) }
    const [program, called] = [job({ kind: 'program' }), job({ excluded })]
    const nowhere = job({ kind: 'program', excluded })
    for (const each of [nowhere, program, called]) placement.push(each)
    expect(assigned(placement)).toEqual({ one: [program.id], functions: [called.id] })
    const [[key, refusing] = ['', []]] = findUnplaceable(placement)
    expect(refusing).toEqual(['one', 'functions'])
    expect(placement.removeExcluding('one')).toEqual([nowhere])
    expect(placement.removeShape(key)).toEqual([])
  })

  it('placement places the next job for the same cost with 10 and with 10,000 nodes', () => {
    const few = costPerPlacement(10)
    const many = costPerPlacement(10_000)
    expect(many.looks / many.placed).toBeLessThanOrEqual((2 * few.looks) / few.placed)
  })
})

/** Counts how often nodes are looked at, which does not depend on the machine. */
function costPerPlacement(nodes: number): { readonly looks: number; readonly placed: number } {
  let looks = 0
  const placement = new Placement<TestJob>()
  const running = new Map<string, TestJob[]>()
  for (let at = 0; at < nodes; at++) {
    const all = facts({ labels: { at: `${at}` } })
    placement.addNode(
      `${at}`,
      all,
      new Proxy(offerOf(all), {
        get(target, key) {
          looks++
          return Reflect.get(target, key) as unknown
        },
      }),
    )
  }
  for (let at = 0; at < nodes + 4000; at++) placement.push(job())
  // Jobs that fit nowhere now must not make the others dearer.
  placement.push(job({ resources: { cores: 1, labels: { at: '7' } } }))
  placement.push(job({ avoid: '3', isRetry: true }))
  for (const [name, jobs] of placement.assign()) running.set(name, jobs)
  looks = 0
  let placed = 0
  for (let step = 0; step < 2000; step++) {
    const name = `${(step * 7919) % nodes}`
    const ended = running.get(name)?.shift()
    if (ended !== undefined) placement.release(name, ended)
    for (const [at, jobs] of placement.assign()) {
      running.set(at, jobs)
      placed += jobs.length
    }
  }
  return { looks, placed }
}

const resources = fc.record({
  cores: fc.integer({ min: 1, max: 3 }),
  gpus: fc.integer({ min: 0, max: 1 }),
  memoryMb: fc.constantFrom(0, 0, 500, 900),
})
const priority = fc.constantFrom(0, 0, 1, 2)
const step = fc.oneof(
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('push' as const), resources, priority }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('plain' as const), avoid: fc.nat(3) }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('small' as const), priority }) },
  { weight: 5, arbitrary: fc.record({ kind: fc.constant('end' as const), pick: fc.nat() }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('usable' as const), node: fc.nat(3) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('remove' as const), pick: fc.nat() }) },
)

describe('whatever comes and goes', () => {
  it('no node is overbooked, each job is placed once, and all are placed in the end', () => {
    assertProperty(
      fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
        const all = [1, 2, 3, 3].map((cores) => facts({ cores, gpus: 1 }))
        const placement = placementOf(Object.fromEntries(all.map((one, at) => [`${at}`, one])))
        const off = new Set<number>()
        const waiting = new Set<TestJob>()
        const running: { readonly name: string; readonly job: TestJob }[] = []
        const assign = (): void => {
          for (const [name, jobs] of placement.assign()) {
            expect(off.has(Number(name))).toBe(false)
            for (const one of jobs) {
              expect(waiting.delete(one)).toBe(true)
              running.push({ name, job: one })
            }
          }
          for (const [at, node] of all.entries()) {
            const here = running.filter(({ name }) => name === `${at}`)
            const sum = (key: 'cores' | 'gpus' | 'memoryMb'): number =>
              here.reduce((total, one) => total + one.job.spec.resources[key], 0)
            expect(sum('cores')).toBeLessThanOrEqual(node.cores)
            expect(sum('gpus')).toBeLessThanOrEqual(node.gpus)
            expect(sum('memoryMb')).toBeLessThanOrEqual(node.memoryMb)
            // A job that runs anywhere does not wait while an unreserved core is idle.
            const isAnywhere = ({ spec, avoidedNode }: TestJob): boolean =>
              spec.resources === defaultResources && avoidedNode === null
            if (waiting.size === 0 || off.has(at) || ![...waiting].every(isAnywhere)) continue
            expect(sum('cores')).toBe(node.cores)
          }
          expect(placement.waiting).toBe(waiting.size)
        }
        const end = (pick: number): void => {
          const [ended] = running.splice(pick % Math.max(1, running.length), 1)
          if (ended !== undefined) placement.release(ended.name, ended.job)
        }
        for (const one of steps) {
          if (one.kind === 'push' || one.kind === 'plain' || one.kind === 'small') {
            const added =
              one.kind === 'plain'
                ? job({ avoid: `${one.avoid}`, isRetry: true })
                : job({ ...one, kind: 'function' })
            waiting.add(added)
            placement.push(added)
          } else if (one.kind === 'end') end(one.pick)
          else if (one.kind === 'usable') {
            if (!off.delete(one.node)) off.add(one.node)
            placement.setUsable(`${one.node}`, !off.has(one.node))
          } else {
            const picked = [...waiting][one.pick % Math.max(1, waiting.size)]
            if (picked !== undefined) placement.remove(picked)
            if (picked !== undefined) waiting.delete(picked)
          }
          assign()
        }
        for (const at of all.keys()) placement.setUsable(`${at}`, true)
        off.clear()
        for (let left = waiting.size + running.length; left >= 0; left--) {
          assign()
          end(0)
        }
        assign()
        expect(waiting.size).toBe(0)
      }),
      { numRuns: 200, longRuns: 5000 },
    )
  })
})
