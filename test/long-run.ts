/** The differences between `npm test` and `npm run test:long`: counts and seeds, never code. */

const isLongRun = process.env['TUTTI_LONG'] !== undefined

/** `npm run test:hpc` runs files of its own. */
export const isHpcRun = process.env['TUTTI_HPC'] !== undefined

/** The seed of `npm test`. Any number would do; it changes only to find something new. */
const fixedSeed = 20_250_101

/** The first number in `npm test`, the second in `npm run test:long`. */
export function byRun<Value>(normal: Value, long: Value): Value {
  return isLongRun ? long : normal
}

/**
 * The seed of a test that draws its cases: fixed in `npm test`, new in the long run, which prints
 * it. `TUTTI_SEED=N` repeats one.
 */
export function chooseSeed(): number {
  const given = process.env['TUTTI_SEED']
  if (given !== undefined) return Number(given)
  if (!isLongRun) return fixedSeed
  const seed = Math.floor(Math.random() * 2 ** 32) | 0
  process.stdout.write(`TUTTI_SEED=${seed}\n`)
  return seed
}

/** Numbers from 0 to 1 that follow from the seed alone. */
export function createRandom(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return state / 2 ** 32
  }
}

/**
 * How long a test may run before it counts as hanging. No test may need it: a test that starts ten
 * processes takes two minutes beside twenty busy ones, and under the load of `npm run test:loaded`
 * everything takes many times longer.
 */
export const hangMs = process.env['TUTTI_LOADED_RESULTS'] === undefined ? 300_000 : 1_200_000
