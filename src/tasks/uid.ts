/** Uids: those that are generated, and those that callers choose. */

import { expectId } from '../foundation/options.ts'

/** The number of the latest generated uid. */
let generated = 0

export interface Uid {
  readonly text: string
  /** Of a uid as they are generated, whoever chose it; `null` of any other. */
  readonly number: number | null
}

const toText = (number: number): string => `task-${String(number).padStart(6, '0')}`

export function generateUid(): Uid {
  const number = ++generated
  return { text: toText(number), number }
}

/** One that looks like a generated uid moves the numbers on: it will not be generated again. */
export function expectOwnUid(given: unknown): Uid {
  const text = expectId('uid', given)
  const digits = /^task-(\d{6,15})$/.exec(text)?.[1]
  const number = digits === undefined ? null : Number(digits)
  if (number === null || toText(number) !== text) return { text, number: null }
  generated = Math.max(generated, number)
  return { text, number }
}
