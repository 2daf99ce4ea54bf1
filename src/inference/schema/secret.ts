/** Secrets, which are printed and serialized as a mask. Only `reveal()` returns the value. */

import { inspect } from 'node:util'
import { registerSecret } from '../../foundation/secrets.ts'

const mask = '[masked]'

/** A secret value. The constructor registers the value, so that `maskSecrets` masks it. */
export class Secret {
  readonly #value: string

  constructor(value: string) {
    this.#value = value
    registerSecret(value)
  }

  /** Returns the secret in plain text. */
  reveal(): string {
    return this.#value
  }

  /** Returns `[masked]`, so that text made from the secret does not reveal it. */
  toString(): string {
    return mask
  }

  /** Returns `[masked]`, so that `JSON.stringify` does not reveal the value. */
  toJSON(): string {
    return mask
  }

  /** Returns `[masked]`, so that `console.log` does not reveal the value. */
  [inspect.custom](): string {
    return mask
  }
}

/** Returns a frozen copy. When it is printed or serialized, only the names are shown. */
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
