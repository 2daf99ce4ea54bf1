/** Uids: those that are generated, and those that callers choose. */

import { generatedNumber, uidOfNumber } from '../foundation/ids.ts'
import { expectId } from '../foundation/options.ts'

/** The number of the latest generated uid. */
let generated = 0

export function generateUid(): string {
  return uidOfNumber(++generated)
}

/** A chosen uid of the generated form advances the numbers: it is never generated again. */
export function expectOwnUid(given: unknown): string {
  const uid = expectId('uid', given)
  generated = Math.max(generated, generatedNumber(uid) ?? 0)
  return uid
}
