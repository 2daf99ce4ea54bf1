/** A configuration file as a plain tree that knows its places, and the list of what is wrong. */

import { ValueError } from '../../foundation/errors.ts'
import { maskSecrets } from '../../foundation/secrets.ts'

/** Both count from 1. */
export interface Place {
  readonly line: number
  readonly column: number
}

export interface ScalarNode {
  readonly kind: 'scalar'
  readonly value: string | number | boolean | null
  /** As it is written, so that `0x10` differs from `16`. */
  readonly source: string
  readonly place: Place
}

export interface ListNode {
  readonly kind: 'list'
  readonly items: readonly ConfigNode[]
  readonly place: Place
}

/** An entry's key occurs once in its map. */
export interface MapNode {
  readonly kind: 'map'
  readonly entries: readonly ConfigEntry[]
  readonly place: Place
}

export interface ConfigEntry {
  readonly key: string
  readonly place: Place
  readonly value: ConfigNode
}

export type ConfigNode = ScalarNode | ListNode | MapNode

export const startOfFile: Place = { line: 1, column: 1 }

/** Gives the place of any offset in a text. */
export function placesIn(text: string): (offset: number) => Place {
  const starts = [0]
  for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) starts.push(at + 1)
  return (offset) => {
    let [low, high] = [0, starts.length - 1]
    while (low < high) {
      const middle = Math.ceil((low + high) / 2)
      if ((starts[middle] ?? 0) <= offset) low = middle
      else high = middle - 1
    }
    return { line: low + 1, column: offset - (starts[low] ?? 0) + 1 }
  }
}

/** A long key is no slip of the pen, but may be a token that lost its place. */
export function showKey(key: string): string {
  return key.length > 32 ? `a key of ${key.length} characters` : key
}

/** More would bury the first ones. */
const mostShown = 50

/** Collects everything that is wrong with one file, or with an option, to be told at once. */
export class Problems {
  readonly #file: string | null
  readonly #found: { readonly place: Place; readonly text: string }[] = []

  /** `null` for an option: its problems have no place, and its names are in camelCase. */
  constructor(file: string | null) {
    this.#file = file
  }

  add(place: Place, text: string): void {
    this.#found.push({ place, text })
  }

  /** Throws one `ValueError` with a line for each problem, in the file's order. */
  throwIfAny(): void {
    if (this.#found.length === 0) return
    const inOrder = this.#found.toSorted(
      (a, b) => a.place.line - b.place.line || a.place.column - b.place.column,
    )
    // A value that has an alias is looked at more than once.
    const lines = new Set(inOrder.map((problem) => this.#toLine(problem)))
    const shown = [...lines].slice(0, mostShown)
    const left = lines.size - shown.length
    if (left > 0) shown.push(`and ${left} more problems`)
    throw new ValueError(maskSecrets(shown.join('\n')), {
      code: 'ConfigError',
      field: this.#file === null ? 'engine' : 'configFile',
    })
  }

  #toLine({ place, text }: { readonly place: Place; readonly text: string }): string {
    if (this.#file === null) return toCamelCase(text)
    return `${this.#file}:${place.line}:${place.column} ${text}`
  }
}

const toCamelCase = (text: string): string =>
  text.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())
