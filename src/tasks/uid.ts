/** Uids: generated ones, and those that callers choose. */

import { generatedNumber, uidOfNumber } from '../foundation/ids.ts'
import { expectId } from '../foundation/options.ts'

/** The number of the latest generated uid. */
let generated = 0

export function generateUid(): string {
  return uidOfNumber(++generated)
}

/** More than any process generates; a higher chosen number does not advance `generated`. */
const maxGenerated = 10 ** 13

/** A chosen uid of the generated form advances the numbers, so that it is not generated again. */
export function expectOwnUid(given: unknown): string {
  const uid = expectId('uid', given)
  const number = generatedNumber(uid) ?? 0
  if (number < maxGenerated) generated = Math.max(generated, number)
  return uid
}
