/** Uids: those that are generated, and those that callers choose. */

import { expectId } from '../foundation/options.ts'

/** The number of the latest generated uid. */
let generated = 0

export interface Uid {
  readonly text: string
  /** Of a uid as they are generated, whoever chose it; `null` of any other. */
  readonly number: number | null
}

/** At least six digits; more only where the number needs them, and none beyond all reason. */
const generatedForm = /^task-(\d{6}|[1-9]\d{6,13})$/
const beyondForm = 1e14

export function generateUid(): Uid {
  const number = ++generated
  const text = `task-${String(number).padStart(6, '0')}`
  return { text, number: number < beyondForm ? number : null }
}

/** One that looks like a generated uid moves the numbers on: it will not be generated again. */
export function expectOwnUid(given: unknown): Uid {
  const text = expectId('uid', given)
  const digits = generatedForm.exec(text)?.[1]
  if (digits === undefined) return { text, number: null }
  const number = Number(digits)
  generated = Math.max(generated, number)
  return { text, number }
}
