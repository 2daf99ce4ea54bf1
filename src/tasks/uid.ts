/** Uids: those that are generated, and those that callers choose. */

import { generatedNumber, uidOfNumber } from '../foundation/ids.ts'
import { expectId } from '../foundation/options.ts'

/** The number of the latest generated uid. */
let generated = 0

export function generateUid(): string {
  return uidOfNumber(++generated)
}

/** No process generates so many: uids with higher numbers are not met. */
const mostGenerated = 10 ** 13

/** A chosen uid of the generated form advances the numbers: it is never generated again. */
export function expectOwnUid(given: unknown): string {
  const uid = expectId('uid', given)
  const number = generatedNumber(uid) ?? 0
  if (number < mostGenerated) generated = Math.max(generated, number)
  return uid
}
