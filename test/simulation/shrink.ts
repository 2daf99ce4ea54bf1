/** Finds the shortest list of faults with which a failing simulation still fails. */

import type { Fault } from './faults.ts'
import { simulate, type SimulatedParts, type SimulationResult } from './simulate.ts'

export async function shrink(
  { seed, faults }: SimulationResult,
  parts: SimulatedParts,
): Promise<readonly Fault[]> {
  let shortest = faults
  for (let at = shortest.length - 1; at >= 0; at--) {
    const candidate = shortest.toSpliced(at, 1)
    const { violations } = await simulate({ seed, parts, faults: candidate })
    if (violations.length > 0) shortest = candidate
  }
  return shortest
}
