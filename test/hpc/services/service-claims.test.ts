import { describe, expect, it } from 'vitest'
import { ValueError } from '../../../src/foundation/errors.ts'
import { type ClaimedNode, expectRoomFor } from '../../../src/hpc/services/service-nodes.ts'

const node = (name: string, ...held: ClaimedNode['held']): ClaimedNode => ({
  name,
  cores: 4,
  gpus: 2,
  held,
})

const nodes = [
  node('n1'),
  node('n2', { service: 'chat', cores: 1, gpus: 1 }, { service: 'code', cores: 1, gpus: 0 }),
]

const claim = (nodeOffset: number, ...wanted: readonly (readonly [number, number])[]): unknown => {
  try {
    const request = wanted.map(([cores, gpus]) => ({ cores, gpus }))
    return expectRoomFor({ service: 'new', nodeOffset, nodes: request }, nodes)
  } catch (error) {
    if (!ValueError.isInstance(error)) throw error
    return [error.field, error.message.replace(`${error.field}: `, '')]
  }
}

describe('a service that is added to nodes', () => {
  it('an added service fits beside others if its resources are free', () => {
    expect(claim(0, [3, 2], [1, 1])).toBe(undefined)
    expect(claim(1, [1, 0])).toBe(undefined)
    expect(claim(0, [1, 2], [0, 0])).toBe(undefined)
  })

  it('an added service is refused with the node, the other services and the field', () => {
    expect(claim(1, [1, 2])).toEqual([
      'hardware.num_gpus',
      'node 1 (n2) has 2 GPUs, of which service "chat" holds 1; service "new" needs 2 there',
    ])
    expect(claim(0, [1, 3])).toEqual([
      'hardware.num_gpus',
      'node 0 (n1) has 2 GPUs; service "new" needs 3 there',
    ])
    expect(claim(0, [1, 1], [2, 0])).toEqual([
      'engine.cores',
      'node 1 (n2) has 4 cores, of which service "chat" holds 1 and service "code" holds 1, ' +
        'and one stays for tasks; service "new" needs 2 there',
    ])
  })

  it('an added service is refused where only allocations by waiting work have nodes', () => {
    expect(() => expectRoomFor({ service: 'new', nodeOffset: 0, nodes: [] }, [])).not.toThrow()
    const one = { service: 'new', nodeOffset: 0, nodes: [{ cores: 1, gpus: 0 }] }
    expect(() => expectRoomFor(one, [])).toThrow(
      expect.objectContaining({
        field: 'hardware.node_offset',
        message:
          'hardware.node_offset: service "new" needs nodes; there are none: servers run on ' +
          'nodes of the launch, and of no other allocation',
        hint: 'Ask for them: tutti launch --nodes N.',
      }),
    )
  })

  it('an added service is refused if it needs nodes that are not there', () => {
    expect(claim(2, [1, 1])).toEqual([
      'hardware.node_offset',
      'service "new" needs node 2; there are the nodes 0 to 1 (n1 to n2)',
    ])
    expect(claim(1, [1, 1], [1, 1], [1, 1])).toEqual([
      'hardware.num_nodes',
      'service "new" needs the nodes 1 to 3; there are the nodes 0 to 1 (n1 to n2)',
    ])
  })
})
