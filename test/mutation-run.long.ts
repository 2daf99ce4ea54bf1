import { expect } from 'vitest'
import { chooseSeed } from './long-run.ts'
import { needs, requireCommand } from './require.ts'
import { describeMutant, runMutants } from '../scripts/mutation/mutation-run.ts'
import { mutatedFolders, unlistedOf } from '../scripts/mutation/survivors.ts'

/** No mutant is begun after this time; two runs of tests may take longer. */
const minutes = 15

needs(requireCommand('unshare'))(
  'tests notice each of the small changes that a seed draws, except those listed',
  async () => {
    const { killed, survived } = await runMutants({
      root: process.cwd(),
      within: mutatedFolders,
      count: 60,
      minutes,
      seed: chooseSeed(),
      print: (line) => process.stdout.write(`${line}\n`),
    })
    expect(killed.length).toBeGreaterThan(0)
    expect(unlistedOf(survived).map(describeMutant)).toEqual([])
  },
  2 * minutes * 60_000,
)
