/**
 * Chooses tokens that a grammar allows without applying it to the whole vocabulary, which takes
 * longer than a small model takes for a token. Tokens are grouped by their first byte; a group is
 * looked at only if the grammar allows that byte next.
 */

import type { Token, Vocabulary } from '../runtime.ts'

/** The state of a grammar within one answer. */
export interface GrammarState {
  /** Whether the last character is not complete. */
  readonly isInCharacter: boolean
  isNext(token: Token): boolean
  accept(token: Token): void
  /** As `accept`, of a token that a native sampler has accepted already. */
  follow(token: Token): void
}

const space = 0x20

/** Bytes that may begin a character of a text. */
const firstBytes = Array.from({ length: 256 }, (_, byte) => byte).filter(
  (byte) => [0x09, 0x0a, 0x0d].includes(byte) || (byte >= space && byte < 0x7f) || byte >= 0xc2,
)

/** Bytes that may go on with one. */
const laterBytes = Array.from({ length: 64 }, (_, at) => 0x80 + at)

/** Tokens that begin with a space and the same character after it. */
interface SpacedGroup {
  /** A space and the character alone, where there is such a token. */
  shortest: Token | null
  readonly all: Token[]
}

/** The tokens of a vocabulary by their first byte, and after a space by the next character. */
export class TokenGroups {
  readonly #byFirst = new Map<number, Token[]>()
  readonly #spaced = new Map<string, SpacedGroup>()
  readonly #single = new Map<number, Token>()
  readonly #ends: readonly Token[]
  readonly #bytesOf: Vocabulary['bytesOf']

  constructor({ size, bytesOf, isEnd }: Pick<Vocabulary, 'size' | 'bytesOf' | 'isEnd'>) {
    const ends: Token[] = []
    this.#bytesOf = bytesOf
    for (let token = 0; token < size; token++) {
      if (isEnd(token)) ends.push(token)
      else this.#add(token, bytesOf(token) ?? [])
    }
    this.#ends = ends
  }

  /** Refuses also bytes that are no UTF-8 together: grammars take some of them for characters. */
  strict(state: GrammarState): GrammarState {
    return new StrictState(state, this.#bytesOf)
  }

  /** Whether every byte that may begin a character is a token, so that it can be tried. */
  get isComplete(): boolean {
    return firstBytes.every((byte) => this.#single.has(byte) || !this.#byFirst.has(byte))
  }

  /** All tokens that may be next are among them. */
  candidates(state: GrammarState): Token[] {
    const candidates = this.#ends.filter((end) => state.isNext(end))
    for (const byte of this.#allowed(state)) {
      const single = this.#single.get(byte)
      if (byte !== space || single === undefined) {
        for (const token of this.#byFirst.get(byte) ?? []) candidates.push(token)
        continue
      }
      candidates.push(single)
      this.#addSpaced(state, candidates)
    }
    return candidates
  }

  /** Without a copy of the state: each is native memory until the garbage collector finds it. */
  #addSpaced(state: GrammarState, candidates: Token[]): void {
    for (const { shortest, all } of this.#spaced.values()) {
      if (shortest !== null && !state.isNext(shortest)) continue
      for (const token of all) {
        if (shortest !== null || state.isNext(token)) candidates.push(token)
      }
    }
  }

  #allowed(state: GrammarState): number[] {
    const bytes = state.isInCharacter ? laterBytes : firstBytes
    return bytes.filter((byte) => {
      if (!this.#byFirst.has(byte)) return false
      const single = this.#single.get(byte)
      return single === undefined || state.isNext(single)
    })
  }

  #add(token: Token, bytes: readonly number[]): void {
    const [first, second] = bytes
    if (first === undefined) return
    if (second === undefined) {
      if (!this.#single.has(first)) this.#single.set(first, token)
    } else if (first === space) {
      this.#groupSpaced(token, bytes.slice(1))
    }
    const group = this.#byFirst.get(first)
    if (group === undefined) this.#byFirst.set(first, [token])
    else group.push(token)
  }

  /** Tokens that end within the character are one group, which has no shortest one. */
  #groupSpaced(token: Token, bytes: readonly number[]): void {
    const text = Buffer.from(bytes).toString()
    const [character = ''] = text
    const group = this.#spaced.get(character) ?? { shortest: null, all: [] }
    if (text === character && character !== replacement) group.shortest ??= token
    group.all.push(token)
    this.#spaced.set(character, group)
  }
}

/** What bytes become that are no UTF-8. */
const replacement = '\uFFFD'

/** Adds to the state of a grammar that all bytes together are UTF-8. */
class StrictState implements GrammarState {
  readonly #state: GrammarState
  readonly #bytesOf: Vocabulary['bytesOf']
  /** Of a character that is not complete. */
  #pending: readonly number[] = []

  constructor(state: GrammarState, bytesOf: Vocabulary['bytesOf']) {
    this.#state = state
    this.#bytesOf = bytesOf
  }

  get isInCharacter(): boolean {
    return this.#pending.length > 0
  }

  isNext(token: Token): boolean {
    return this.#state.isNext(token) && pendingAfter(this.#with(token)) !== null
  }

  accept(token: Token): void {
    this.#pending = pendingAfter(this.#with(token)) ?? []
    this.#state.accept(token)
  }

  follow(token: Token): void {
    this.#pending = pendingAfter(this.#with(token)) ?? []
    this.#state.follow(token)
  }

  #with(token: Token): readonly number[] {
    const bytes = this.#bytesOf(token) ?? []
    return this.#pending.length === 0 ? bytes : [...this.#pending, ...bytes]
  }
}

/** The bytes of an incomplete character at the end; `null` if there are bytes that are no UTF-8. */
function pendingAfter(bytes: readonly number[]): readonly number[] | null {
  if (bytes.every((byte) => byte < 0x80)) return []
  try {
    const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
    const text = decoder.decode(Uint8Array.from(bytes), { stream: true })
    return bytes.slice(Buffer.byteLength(text))
  } catch {
    return null
  }
}
