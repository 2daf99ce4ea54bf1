/** Values that print and serialise as a mask; `reveal()` returns them. */

import { inspect } from 'node:util'
import { registerSecret } from '../../foundation/secrets.ts'

const mask = '[masked]'

/** A secret; `maskSecrets` masks it as soon as it is constructed. */
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

  /** Returns a mask. */
  toString(): string {
    return mask
  }

  /** Returns a mask. */
  toJSON(): string {
    return mask
  }

  /** Returns a mask, for `console.log`. */
  [inspect.custom](): string {
    return mask
  }
}

/** The same record, frozen; printing or serialising it shows the names but masks the values. */
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
