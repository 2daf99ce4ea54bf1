/**
 * How every property test runs. `npm test` repeats one fixed seed, so that it always gives the same
 * result; `npm run test:long` explores a new seed each time and prints it.
 */

import fc, { type IAsyncProperty, type IProperty, type Parameters } from 'fast-check'
import { byRun, chooseSeed } from './long-run.ts'

interface PropertyOptions<Input> {
  readonly numRuns?: number
  /** Cases in the long run, where they are more than `numRuns`. */
  readonly longRuns?: number
  /** Counterexamples that were found, as values: each is checked first, in every run. */
  readonly examples?: Input[]
  /** Counterexamples too large to write down, by the seed that found them. */
  readonly knownSeeds?: readonly number[]
}

/** `fc.assert` with the seed chosen here; whatever a long run finds is kept in the options. */
export function assertProperty<Input>(
  property: IProperty<Input>,
  options?: PropertyOptions<Input>,
): void
export function assertProperty<Input>(
  property: IAsyncProperty<Input>,
  options?: PropertyOptions<Input>,
): Promise<void>
export function assertProperty<Input>(
  property: IProperty<Input> | IAsyncProperty<Input>,
  options: PropertyOptions<Input> = {},
): void | Promise<void> {
  const runs = toParameters(options)
  if (property.isAsync()) return assertInTurn(property as IAsyncProperty<Input>, runs)
  for (const parameters of runs) fc.assert(property as IProperty<Input>, parameters)
  return undefined
}

async function assertInTurn<Input>(
  property: IAsyncProperty<Input>,
  runs: readonly Parameters<Input>[],
): Promise<void> {
  for (const parameters of runs) await fc.assert(property, parameters)
}

function toParameters<Input>(options: PropertyOptions<Input>): Parameters<Input>[] {
  const { numRuns = 100, longRuns = numRuns, examples = [], knownSeeds = [] } = options
  const known = knownSeeds.map((seed) => ({ numRuns, seed }))
  return [...known, { numRuns: byRun(numRuns, longRuns), examples, seed: chooseSeed() }]
}
