/** A value that only those see who ask for it by name; printing and serialising show a mask. */

import { inspect } from 'node:util'
import { registerSecret } from '../../foundation/secrets.ts'

const mask = '[masked]'

/** A secret, registered with `maskSecrets` from its making on. */
export class Secret {
  readonly #value: string

  constructor(value: string) {
    this.#value = value
    registerSecret(value)
  }

  reveal(): string {
    return this.#value
  }

  toString(): string {
    return mask
  }

  toJSON(): string {
    return mask
  }

  [inspect.custom](): string {
    return mask
  }
}

/** The same record, frozen, whose names are shown and whose values are not. */
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
