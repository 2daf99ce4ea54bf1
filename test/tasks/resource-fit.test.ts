import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  type Amounts,
  canRun,
  describeShortage,
  describeNode,
  describeRequest,
  fitsInto,
  hasLabels,
  findShortage,
  missingResource,
  maxRanks,
  maxRequests,
} from '../../src/tasks/resource-fit.ts'
import { defaultResources } from '../../src/tasks/resources.ts'
import { assertProperty } from '../property.ts'

const labels = fc.dictionary(fc.constantFrom('disk', 'zone'), fc.constantFrom('a', 'b'))
const amounts = {
  cores: fc.integer({ min: 1, max: 64 }),
  gpus: fc.integer({ min: 0, max: 8 }),
  memoryMb: fc.integer({ min: 0, max: 4000 }),
}
const node = fc.record({ ...amounts, labels }, { requiredKeys: ['cores', 'gpus', 'memoryMb'] })
const request = fc
  .record(
    { ...amounts, labels, ranksPerNode: fc.integer({ min: 1, max: 8 }) },
    { requiredKeys: ['cores', 'gpus', 'memoryMb'] },
  )
  .map((given) => ({ ...defaultResources, ...given }))

const times = (count: number, { cores, gpus, memoryMb }: Amounts): Amounts => ({
  cores: count * cores,
  gpus: count * gpus,
  memoryMb: count * memoryMb,
})

describe('resource fit', () => {
  it('room: so many requests fit together, and one more does not', () => {
    assertProperty(
      fc.property(node, request, (free, asked) => {
        const room = maxRequests(free, asked)
        expect(fitsInto(free, times(room, asked))).toBe(true)
        expect(fitsInto(free, times(room + 1, asked))).toBe(false)
        expect(room > 0).toBe(fitsInto(free, asked))
      }),
    )
  })

  it('a node could run a request if and only if it lacks nothing', () => {
    assertProperty(
      fc.property(node, request, (one, asked) => {
        expect(missingResource(one, asked) === null).toBe(canRun(one, asked))
        expect(findShortage(one, asked) === null).toBe(fitsInto(one, asked))
      }),
    )
  })

  it('a larger node with more labels runs whatever a smaller one runs', () => {
    assertProperty(
      fc.property(node, node, request, (small, extra, asked) => {
        fc.pre(canRun(small, asked))
        const large = {
          cores: small.cores + extra.cores,
          gpus: small.gpus + extra.gpus,
          memoryMb: small.memoryMb + extra.memoryMb,
          labels: { ...extra.labels, ...small.labels },
        }
        expect(canRun(large, asked)).toBe(true)
        expect(maxRanks(large, asked)).toBeGreaterThanOrEqual(maxRanks(small, asked))
      }),
    )
  })

  it('ranks: a node has exactly ranksPerNode of them, or none', () => {
    assertProperty(
      fc.property(node, request, (one, asked) => {
        const ranks = maxRanks(one, asked)
        const room = hasLabels(one, asked) ? maxRequests(one, asked) : 0
        const { ranksPerNode = room } = asked
        expect(ranks).toBe(room >= ranksPerNode ? ranksPerNode : 0)
      }),
    )
  })

  it('a single node could run no request for several ranks', () => {
    const whole = { cores: 8, gpus: 0, memoryMb: 1000 }
    expect(canRun(whole, { ...defaultResources, ranks: 2 })).toBe(false)
  })

  it('amounts are described with their units', () => {
    const asked = { ...defaultResources, cores: 4, gpus: 1, labels: { disk: 'ssd' } }
    expect(describeRequest(asked)).toBe('4 cores, 1 GPU and the label disk=ssd')
    const small = { cores: 1, gpus: 0, memoryMb: 4000 }
    expect(describeNode(small)).toBe('1 core, 0 GPUs and 4000 MB of memory')
    expect(missingResource(small, asked)).toBe('has 1 core')
    expect(missingResource({ ...small, cores: 4, gpus: 1 }, asked)).toBe(
      'does not have the label disk=ssd',
    )
    expect(describeShortage(defaultResources, [{ name: 'n1', facts: small }], 'none')).toBe(
      'no agent has 1 core; the largest of them, "n1", has 1 core, 0 GPUs and 4000 MB of memory',
    )
  })
})
