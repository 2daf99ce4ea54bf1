/** Uids: those that are generated, and those that callers choose. */

import { expectId } from '../foundation/options.ts'

const prefix = 'task-'
const minDigits = 6
/** Numbers stay exact, and far below what a process can generate. */
const maxDigits = 14
const zero = 48

/** The number of the latest generated uid. */
let generated = 0

export function generateUid(): string {
  return uidOfNumber(++generated)
}

/** The generated uid with this number. */
export const uidOfNumber = (number: number): string =>
  prefix + String(number).padStart(minDigits, '0')

/** A chosen uid of the generated form advances the numbers: it is never generated again. */
export function expectOwnUid(given: unknown): string {
  const uid = expectId('uid', given)
  generated = Math.max(generated, generatedNumber(uid) ?? 0)
  return uid
}

/** The number in a uid of the generated form, whoever chose it; `null` for any other. */
export function generatedNumber(uid: string): number | null {
  const digits = uid.length - prefix.length
  if (digits < minDigits || digits > maxDigits || !uid.startsWith(prefix)) return null
  if (digits > minDigits && uid.charCodeAt(prefix.length) === zero) return null
  let number = 0
  for (let at = prefix.length; at < uid.length; at++) {
    const digit = uid.charCodeAt(at) - zero
    if (digit < 0 || digit > 9) return null
    number = number * 10 + digit
  }
  return number
}
