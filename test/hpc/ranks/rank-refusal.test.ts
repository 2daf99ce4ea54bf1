import { expect, it } from 'vitest'
import { refuseRanks } from '../../../src/hpc/ranks/rank-tasks.ts'
import { resolveResources, type ResourceRequest } from '../../../src/tasks/resources.ts'
import type { TaskSpec } from '../../../src/tasks/spec.ts'

const node = (allocation: string) => ({
  cores: 4,
  gpus: 0,
  memoryMb: 4000,
  labels: { allocation },
})
const spec = (resources: Partial<ResourceRequest>): TaskSpec =>
  ({ kind: 'program', resources: resolveResources(resources) }) as TaskSpec

it('a request for ranks is refused if no single allocation has room for them', () => {
  const nodes = [node('7'), node('8')]
  expect(refuseRanks(spec({ ranks: 4 }), nodes)).toBeNull()
  expect(refuseRanks(spec({ ranks: 8 }), nodes)?.message).toBe(
    'there is room for 4 of 8 ranks of 1 core, 0 GPUs and 0 MB of memory; there are ' +
      'a node with 4 cores, 0 GPUs, 4000 MB of memory and the label allocation=7; ' +
      'a node with 4 cores, 0 GPUs, 4000 MB of memory and the label allocation=8',
  )
  expect(refuseRanks(spec({ ranks: 8 }), [node('7'), node('7')])).toBeNull()
})

it('a request for ranks is refused with the possible allocations, where no node exists', () => {
  const notes = ['an allocation that may come has a node with 4 cores']
  expect(refuseRanks(spec({ ranks: 8 }), [], { notes })).toEqual({
    field: 'resources.ranks',
    message:
      'there is room for 0 of 8 ranks of 1 core, 0 GPUs and 0 MB of memory; no node is there; ' +
      'an allocation that may come has a node with 4 cores',
  })
  expect(refuseRanks(spec({ ranks: 8 }), [], { notes, mayStartLater: true })).toBeNull()
})
