import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { resolveAllocations } from '../../../src/hpc/pilots/pilot-options.ts'
import { findSources, type PilotSource } from '../../../src/hpc/pilots/pilot-sources.ts'
import { SlurmCommands } from '../../../src/hpc/slurm/slurm-commands.ts'

const grace = 60
const nodes = [
  'n1|10.1.0.11|4|4000|(null)|(null)|main*|n/a|infinite',
  'n1|10.1.0.11|4|4000|(null)|(null)|small|n/a|30:00',
  'n1|10.1.0.11|4|4000|(null)|(null)|tiny|1:00|30:00',
  'g1|10.1.0.12|8|8000|gpu:2|(null)|gpu|1:00:00|2-00:00:00',
]

/** With a program that prints these nodes as `sinfo`. */
function find(given: object): Promise<PilotSource[]> {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-sinfo-'))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  const file = join(folder, 'sinfo')
  writeFileSync(file, `#!/bin/sh\ncat <<'END'\n${nodes.join('\n')}\nEND\n`)
  chmodSync(file, 0o755)
  const env = { PATH: `${folder}${delimiter}${process.env['PATH']}` }
  return findSources(resolveAllocations(given, grace), new SlurmCommands({ env }), grace)
}

const secondsOf = async (given: object): Promise<number | undefined> =>
  (await find(given))[0]?.kind.usableSeconds

describe('what Slurm tells of allocations that may come', () => {
  it('task time in an allocation is the limit, less the grace and the start time', async () => {
    expect(await secondsOf({ max: 1 })).toBe(Infinity)
    expect(await secondsOf({ max: 1, partition: 'small' })).toBe(1800 - grace - 30)
    expect(await secondsOf({ max: 1, partition: 'gpu' })).toBe(3600 - grace - 30)
    expect(await secondsOf({ max: 1, partition: 'gpu', timeSeconds: 7200 })).toBe(7200 - grace - 30)
    // As Slurm grants it.
    expect(await secondsOf({ max: 1, timeSeconds: 601 })).toBe(660 - grace - 30)
    expect(await secondsOf({ max: 1, timeSeconds: 120 })).toBe(120 - grace - 30)
    // Whichever of them Slurm chooses.
    expect(await secondsOf({ max: 1, partition: 'main,small' })).toBe(1800 - grace - 30)
  })

  it('partitions that do not allow the time are left out', async () => {
    const [source] = await find({ max: 1, partition: 'small,main', timeSeconds: 7200 })
    expect(source?.kind.candidates.map(({ labels }) => labels)).toEqual([{ partition: 'main' }])
    const [only] = await find({ max: 1, partition: 'small', timeSeconds: 7200 })
    expect(only?.kind.candidates).toHaveLength(1)
  })

  it('a partition with a short limit, and an unknown one, are refused', async () => {
    await expect(find({ max: 1, partition: 'tiny' })).rejects.toMatchObject({
      field: 'allocations.timeSeconds',
      message:
        'allocations.timeSeconds: without it the limit is 60 s, by partition tiny: ' +
        'less than twice graceSeconds (60)',
      hint: 'Give at least 120 s, or a shorter graceSeconds.',
    })
    expect(await secondsOf({ max: 1, partition: 'tiny', timeSeconds: 600 })).toBe(510)
    await expect(find([{ max: 1 }, { max: 1, partition: 'small,nope' }])).rejects.toMatchObject({
      field: 'allocations[1].partition',
      message:
        'allocations[1].partition: Slurm has no partition nope; it has main, small, tiny, gpu',
    })
  })
})
