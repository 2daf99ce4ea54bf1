import { describe, expect, it } from 'vitest'
import { resolveAllocations } from '../../../src/hpc/pilots/pilot-options.ts'

const grace = 60

const badOption = (option: string) =>
  [{ max: 1, sbatch: ['-wn4', option] }, 'allocations.sbatch[1]'] as const

describe('the option allocations', () => {
  it('the option allocations has defaults for all fields except `max`', () => {
    expect(resolveAllocations({ max: 3 }, grace)).toEqual([
      {
        field: 'allocations',
        nodes: 1,
        min: 0,
        max: 3,
        backlog: 1,
        idleSeconds: 60,
        timeSeconds: null,
        maxTotal: Infinity,
        labels: {},
        request: { nodes: 1, more: [] },
      },
    ])
  })

  it('the option allocations becomes arguments of sbatch', () => {
    const given = {
      nodes: 2,
      max: 3,
      gpusPerNode: 4,
      timeSeconds: 3601,
      partition: 'gpu',
      account: 'a',
      qos: 'q',
      constraint: 'c',
      sbatch: ['--reservation=r'],
    }
    expect(resolveAllocations([given], grace)[0]?.request).toEqual({
      nodes: 2,
      gpusPerNode: 4,
      time: '61',
      partition: 'gpu',
      account: 'a',
      qos: 'q',
      constraint: 'c',
      more: ['--reservation=r'],
    })
  })

  it('the option allocations is refused by the name of the field', () => {
    const bad: readonly (readonly [unknown, string])[] = [
      [{}, 'allocations.max'],
      [{ max: 0 }, 'allocations.max'],
      [{ max: 1, min: 2 }, 'allocations.min'],
      [{ max: 1, nodes: 0 }, 'allocations.nodes'],
      [{ max: 1, backlog: 0 }, 'allocations.backlog'],
      [{ max: 1, idleSeconds: -1 }, 'allocations.idleSeconds'],
      [{ max: 1, timeSeconds: 119 }, 'allocations.timeSeconds'],
      [{ max: 1, maxTotal: 0 }, 'allocations.maxTotal'],
      [{ max: 1, gpusPerNode: 1.5 }, 'allocations.gpusPerNode'],
      [{ max: 1, partition: 7 }, 'allocations.partition'],
      [{ max: 1, labels: { a: 1 } }, 'allocations.labels.a'],
      [{ max: 1, timeSeconds: 1e12 }, 'allocations.timeSeconds'],
      [{ max: 1, account: 'a\nb' }, 'allocations.account'],
      [{ max: 3, min: 2, maxTotal: 1 }, 'allocations.min'],
      [{ max: 1, labels: { partition: 'a' } }, 'allocations.labels.partition'],
      [{ max: 1, labels: { allocation: 'a' } }, 'allocations.labels.allocation'],
      [{ max: 1, idleSeconds: null }, 'allocations.idleSeconds'],
      ...['x', '-', '--', '--output=x', '-a1-5', '--reservation=a\nb'].map(badOption),
      // There are fields for them, which the plan knows.
      ...['--time=1', '-t1', '--part=x', '-p x', '-N3', '--nodes=3', '--gpus=1'].map(badOption),
      [{ max: 1, idle: 1 }, 'allocations.idle'],
      [[{ max: 1 }, { max: 1, min: 2 }], 'allocations[1].min'],
      [[], 'allocations'],
      ['4', 'allocations'],
    ]
    for (const [given, field] of bad) {
      expect(() => resolveAllocations(given, grace), field).toThrow(
        expect.objectContaining({ field }),
      )
    }
  })
})
