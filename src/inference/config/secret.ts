/** Values that print and serialise as a mask; `reveal()` returns them. */

import { inspect } from 'node:util'
import { registerSecret } from '../../foundation/secrets.ts'

const mask = '[masked]'

/** A secret; `maskSecrets` masks it from its construction on. */
export class Secret {
  readonly #value: string

  constructor(value: string) {
    this.#value = value
    registerSecret(value)
  }

  /** The value itself. */
  reveal(): string {
    return this.#value
  }

  /** A mask. */
  toString(): string {
    return mask
  }

  /** A mask. */
  toJSON(): string {
    return mask
  }

  /** A mask, for `console.log`. */
  [inspect.custom](): string {
    return mask
  }
}

/** The same record, frozen; printing and serialising it shows names and masks values. */
export function withMaskedValues(
  record: Readonly<Record<string, string>>,
): Readonly<Record<string, string>> {
  const toMasked = (): Record<string, string> =>
    Object.fromEntries(Object.keys(record).map((name) => [name, mask]))
  const copy = { ...record }
  Object.defineProperties(copy, {
    toJSON: { value: toMasked },
    [inspect.custom]: { value: toMasked },
  })
  return Object.freeze(copy)
}
