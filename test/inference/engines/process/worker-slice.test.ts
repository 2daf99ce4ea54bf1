import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { placeWorker } from '../../../../src/inference/engines/process/server-command.ts'
import { assertProperty } from '../../../property.ts'

describe('the GPUs of a worker', () => {
  type Row = [number, number, number, number, string | undefined, number, string | null]
  it.each<Row>([
    // index, tpSize, numGpus, nodeOffset, visible, node, gpus
    [0, 1, 4, 0, undefined, 0, '0'],
    [3, 1, 4, 0, undefined, 0, '3'],
    [4, 1, 4, 0, undefined, 1, '0'],
    [0, 2, 4, 0, undefined, 0, '0,1'],
    [1, 2, 4, 0, undefined, 0, '2,3'],
    [2, 2, 4, 5, undefined, 6, '0,1'],
    [0, 3, 4, 0, undefined, 0, '0,1,2'],
    [1, 3, 4, 0, undefined, 1, '0,1,2'],
    [0, 1, 0, 2, undefined, 2, null],
    [1, 8, 0, 2, '3', 3, null],
    [1, 1, 2, 0, '6,7', 0, '7'],
    [0, 2, 2, 0, 'GPU-aa, GPU-bb ,GPU-cc', 0, 'GPU-aa,GPU-bb'],
  ])('worker %i with %i GPUs, nodes of %i from node %i, visible: %s', (...row) => {
    const [index, tpSize, numGpus, nodeOffset, visible, node, gpus] = row
    expect(placeWorker({ index, tpSize, numGpus, nodeOffset, visible })).toEqual({ node, gpus })
  })

  it('no two workers of a node share a GPU', () => {
    const size = fc.integer({ min: 1, max: 8 })
    assertProperty(
      fc.property(size, size, fc.integer({ min: 1, max: 20 }), (tpSize, numGpus, workers) => {
        fc.pre(tpSize <= numGpus)
        const taken = Array.from({ length: workers }, (_, index) => {
          const slice = { index, tpSize, numGpus, nodeOffset: 1, visible: undefined }
          const { node, gpus } = placeWorker(slice)
          const ids = gpus?.split(',').map(Number) ?? []
          expect(ids).toHaveLength(tpSize)
          expect(Math.max(...ids)).toBeLessThan(numGpus)
          return ids.map((id) => `${node}/${id}`)
        }).flat()
        expect(new Set(taken).size).toBe(taken.length)
      }),
    )
  })

  it('a worker that does not fit is refused', () => {
    const wide = { index: 0, tpSize: 4, numGpus: 2, nodeOffset: 0, visible: undefined }
    expect(() => placeWorker(wide)).toThrow('a worker of 4 GPUs does not fit into a node of 2')
    const hidden = { index: 0, tpSize: 1, numGpus: 2, nodeOffset: 0, visible: '1' }
    expect(() => placeWorker(hidden)).toThrow('CUDA_VISIBLE_DEVICES shows 1 GPUs of 2')
  })
})
