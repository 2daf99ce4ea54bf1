import { describe, expect, it } from 'vitest'
import { resourceRefusal, Slots } from '../../../src/backends/local/slots.ts'
import { defaultResources, type ResourceRequest } from '../../../src/tasks/resources.ts'

const asks = (request: Partial<ResourceRequest>): ResourceRequest => ({
  ...defaultResources,
  ...request,
})
const capacity = { cores: 4, memoryMb: 100, gpuIds: [2, 5, 7] }

describe('slots', () => {
  it('slots: cores are taken and given back, GPUs are identified by their ids', () => {
    const slots = new Slots(capacity)
    const first = slots.acquire(asks({ cores: 3, gpus: 2, memoryMb: 60 }))
    expect(first.gpuIds).toEqual([2, 5])
    expect(slots.fits(asks({ cores: 1, gpus: 1, memoryMb: 40 }))).toBe(true)
    expect(slots.fits(asks({ cores: 2 }))).toBe(false)
    expect(slots.fits(asks({ gpus: 2 }))).toBe(false)
    expect(slots.fits(asks({ memoryMb: 41 }))).toBe(false)
    const second = slots.acquire(asks({ gpus: 1 }))
    expect(second.gpuIds).toEqual([7])
    slots.release(first)
    expect(slots.acquire(asks({ gpus: 1 })).gpuIds).toEqual([2])
    slots.release(second)
    expect(slots.acquire(asks({ gpus: 2 })).gpuIds).toEqual([5, 7])
    expect(capacity.gpuIds).toEqual([2, 5, 7])
  })

  it.each([
    [{ cores: 5 }, 'resources.cores', 'asks for 5, but the node has 4'],
    [{ memoryMb: 101 }, 'resources.memoryMb', 'asks for 101, but the node has 100'],
    [{ gpus: 4 }, 'resources.gpus', 'asks for 4, but the node has 3'],
    [{ ranks: 2 }, 'resources.ranks', 'this backend runs no MPI ranks'],
    [{ ranksPerNode: 1 }, 'resources.ranksPerNode', 'this backend runs no MPI ranks'],
    [
      { labels: { zone: 'a', disk: 'ssd' } },
      'resources.labels',
      'asks for zone=a, disk=ssd, but the node has no labels',
    ],
  ])('slots: a request never fits: %j', (request, field, message) => {
    expect(resourceRefusal(asks(request), capacity)).toEqual({ field, message })
  })

  it('slots: a request for all cores is granted when none is in use', () => {
    expect(resourceRefusal(asks({ cores: 4, memoryMb: 100, gpus: 3 }), capacity)).toBeNull()
  })
})
