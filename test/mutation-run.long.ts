import { expect } from 'vitest'
import { needs, requireCommand } from './require.ts'
import { describeMutant, runMutants } from '../scripts/mutation/mutation-run.ts'
import { mutatedFolders } from '../scripts/mutation/survivors.ts'

/**
 * Fixed, because a new seed may find mutants that have not been reviewed; `TUTTI_SEED=N` sets one.
 */
const seed = Number(process.env['TUTTI_SEED'] ?? 1)
/** No mutant is begun after this time; two runs of tests may take longer. */
const minutes = 15

needs(requireCommand('unshare'))(
  'tests notice each of the small changes that a seed draws, except those listed',
  async () => {
    const { killed, survived } = await runMutants({
      root: process.cwd(),
      within: mutatedFolders,
      count: 40,
      minutes,
      seed,
      print: (line) => process.stdout.write(`${line}\n`),
    })
    expect(killed.length).toBeGreaterThan(0)
    expect(survived.map(describeMutant)).toEqual([])
  },
  2 * minutes * 60_000,
)
