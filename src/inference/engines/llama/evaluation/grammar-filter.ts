/**
 * Chooses tokens that a grammar allows without applying it to the whole vocabulary, which takes
 * longer than a small model takes for a token. Tokens are grouped by their first byte, those that
 * begin with a space by the next one; a group is looked at only if the grammar allows its byte.
 */

import type { Token, Vocabulary } from '../runtime.ts'
import type { NextCharacters } from '../grammar/next-characters.ts'

/** The state of a grammar within one answer. */
export interface GrammarState {
  isNext(token: Token): boolean
  accept(token: Token): void
}

const space = 0x20

/** The tokens of a vocabulary by their first byte, and after a space by the next one. */
export class TokenGroups {
  readonly #byFirst = new Map<number, Token[]>()
  readonly #spaced = new Map<number, Token[]>()
  readonly #spaces: Token[] = []
  readonly #ends: readonly Token[]
  readonly #size: number
  readonly #bytesOf: Vocabulary['bytesOf']
  /** By token, 1 where all of its bytes are characters by themselves. */
  readonly #isAscii: Uint8Array
  /** Tokens that are no UTF-8 where no character is incomplete; `null` before they are needed. */
  #brokenFirst: readonly Token[] | null = null

  constructor({ size, bytesOf, isEnd }: Pick<Vocabulary, 'size' | 'bytesOf' | 'isEnd'>) {
    const ends: Token[] = []
    this.#size = size
    this.#bytesOf = bytesOf
    this.#isAscii = new Uint8Array(size)
    for (let token = 0; token < size; token++) {
      const bytes = bytesOf(token) ?? []
      this.#isAscii[token] = Number(isAscii(bytes))
      if (isEnd(token)) ends.push(token)
      else this.#add(token, bytes)
    }
    this.#ends = ends
  }

  /** An answer that begins; `next` is `null` for a grammar that cannot be followed. */
  begin(state: GrammarState, next: NextCharacters | null): GrammarAnswer {
    return new GrammarAnswer(state, next, this.#bytesOf, this.#isAscii)
  }

  /** All tokens that may be next are in these groups; `null` if that is not known. */
  candidates({ next, pending }: GrammarAnswer): readonly (readonly Token[])[] | null {
    if (next === null || this.#byFirst.size === 0) return null
    const groups = next.isComplete && pending.length === 0 ? [this.#ends] : []
    for (const [byte, group] of this.#byFirst) {
      const isAllowed =
        pending.length === 0 ? next.allowsFirstByte(byte) : next.allowsBeginning([...pending, byte])
      if (isAllowed) groups.push(group)
    }
    const spaced = pending.length === 0 ? next.after(space) : null
    if (spaced === null) return groups
    groups.push(this.#spaces)
    for (const [byte, group] of this.#spaced) if (spaced.allowsFirstByte(byte)) groups.push(group)
    return groups
  }

  /** Tokens that cannot follow because the bytes would be no UTF-8. */
  broken(answer: GrammarAnswer): readonly Token[] {
    const isFirst = answer.pending.length === 0
    if (isFirst && this.#brokenFirst !== null) return this.#brokenFirst
    const broken: Token[] = []
    for (let token = 0; token < this.#size; token++) if (!answer.isText(token)) broken.push(token)
    if (isFirst) this.#brokenFirst = broken
    return broken
  }

  #add(token: Token, [first, second]: readonly number[]): void {
    if (first === undefined) return
    if (first !== space) addTo(this.#byFirst, first, token)
    else if (second === undefined) this.#spaces.push(token)
    else addTo(this.#spaced, second, token)
  }
}

function addTo(groups: Map<number, Token[]>, byte: number, token: Token): void {
  const group = groups.get(byte)
  if (group === undefined) groups.set(byte, [token])
  else group.push(token)
}

/** What a grammar allows after a part of an answer. All bytes together have to be UTF-8. */
export class GrammarAnswer {
  readonly #state: GrammarState
  readonly #bytesOf: Vocabulary['bytesOf']
  readonly #isAscii: Uint8Array
  #next: NextCharacters | null
  #pending: readonly number[] = []

  constructor(
    state: GrammarState,
    next: NextCharacters | null,
    bytesOf: Vocabulary['bytesOf'],
    ascii: Uint8Array,
  ) {
    this.#state = state
    this.#next = next
    this.#bytesOf = bytesOf
    this.#isAscii = ascii
  }

  /** `null` where that is not known. */
  get next(): NextCharacters | null {
    return this.#next
  }

  /** Bytes of a character that is not complete. */
  get pending(): readonly number[] {
    return this.#pending
  }

  isNext(token: Token): boolean {
    return this.isText(token) && this.#state.isNext(token)
  }

  /** Whether its bytes are UTF-8 together with those before; the grammar may refuse it. */
  isText(token: Token): boolean {
    if (this.#isAscii[token] === 1) return this.#pending.length === 0
    return this.#read(token) !== null
  }

  accept(token: Token): void {
    this.#state.accept(token)
    this.follow(token)
  }

  /** As `accept`, of a token that a native sampler has accepted already. */
  follow(token: Token): void {
    const read = this.#read(token)
    this.#pending = read?.pending ?? []
    for (const character of read?.text ?? '') {
      this.#next = this.#next?.after(character.codePointAt(0) ?? 0) ?? null
    }
    if (this.#bytesOf(token) === null) this.#next = null
  }

  #read(token: Token): ReadBytes | null {
    return readBytes([...this.#pending, ...(this.#bytesOf(token) ?? [])])
  }
}

const isAscii = (bytes: readonly number[]): boolean => bytes.every((byte) => byte < 0x80)

interface ReadBytes {
  readonly text: string
  /** The bytes of an incomplete character at the end. */
  readonly pending: readonly number[]
}

/** `null` if there are bytes that are no UTF-8. */
function readBytes(bytes: readonly number[]): ReadBytes | null {
  try {
    const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
    const text = decoder.decode(Uint8Array.from(bytes), { stream: true })
    return { text, pending: bytes.slice(Buffer.byteLength(text)) }
  } catch {
    return null
  }
}
