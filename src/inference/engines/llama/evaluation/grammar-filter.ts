/**
 * Chooses tokens that a grammar allows without applying it to the whole vocabulary, which takes
 * longer than a small model takes for a token. Tokens are grouped by their first byte, and bytes
 * that the grammar does not tell apart are tried together; a group is looked at only if the grammar
 * allows its byte next.
 */

import type { Token, Vocabulary } from '../runtime.ts'
import type { CharacterClasses } from './alphabet.ts'

/** The state of a grammar within one answer. */
export interface GrammarState {
  /** Whether the last character is not complete. */
  readonly isInCharacter: boolean
  isNext(token: Token): boolean
  /** Whether its bytes are UTF-8 together with those before; the grammar may refuse it. */
  isText(token: Token): boolean
  accept(token: Token): void
  /** As `accept`, of a token that a native sampler has accepted already. */
  follow(token: Token): void
}

const space = 0x20

/** Bytes that may begin a character of a text. */
const firstBytes = Array.from({ length: 256 }, (_, byte) => byte).filter(
  (byte) =>
    [0x09, 0x0a, 0x0d].includes(byte) ||
    (byte >= space && byte < 0x7f) ||
    (byte >= 0xc2 && byte <= 0xf4),
)

/** Bytes that may go on with one. */
const laterBytes = Array.from({ length: 64 }, (_, at) => 0x80 + at)

/** Tokens that begin with a space and the same character after it. */
interface SpacedGroup {
  /** A space and the character alone, where there is such a token. */
  shortest: Token | null
  readonly all: Token[]
}

/** Tokens of which a grammar may allow some only if it allows `probe`; `null` if none tells it. */
interface Probed {
  probe: Token | null
  readonly groups: (readonly Token[])[]
}

/** What is tried of a vocabulary, for one grammar. */
interface Plan {
  readonly first: readonly Probed[]
  /** What begins with a space, if a space is allowed. */
  readonly spaced: readonly Probed[]
}

/** The tokens of a vocabulary by their first byte, and after a space by the next character. */
export class TokenGroups {
  readonly #byFirst = new Map<number, Token[]>()
  readonly #spaced = new Map<string, SpacedGroup>()
  readonly #single = new Map<number, Token>()
  readonly #ends: readonly Token[]
  readonly #size: number
  readonly #bytesOf: Vocabulary['bytesOf']
  /** By token, 1 where all of its bytes are characters by themselves. */
  readonly #isAscii: Uint8Array
  readonly #plans = new WeakMap<CharacterClasses, Plan>()
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

  /** Refuses also bytes that are no UTF-8 together: grammars take some of them for characters. */
  strict(state: GrammarState): GrammarState {
    return new StrictState(state, this.#bytesOf, this.#isAscii)
  }

  /** Whether every byte that may begin a character is a token, so that it can be tried. */
  get isComplete(): boolean {
    return firstBytes.every((byte) => this.#single.has(byte) || !this.#byFirst.has(byte))
  }

  /** All tokens that may be next are among them. */
  candidates(state: GrammarState, classes: CharacterClasses): Token[] {
    const candidates = this.#ends.filter((end) => state.isNext(end))
    const add = (tokens: readonly Token[]): void => {
      for (const token of tokens) candidates.push(token)
    }
    if (state.isInCharacter) {
      for (const byte of laterBytes) {
        const single = this.#single.get(byte)
        if (single === undefined || state.isNext(single)) add(this.#byFirst.get(byte) ?? [])
      }
      return candidates
    }
    const { first, spaced } = this.#planOf(classes)
    for (const { probe, groups } of first) {
      if (probe === null || state.isNext(probe)) groups.forEach(add)
    }
    const single = this.#single.get(space)
    if (single === undefined || !state.isNext(single)) return candidates
    candidates.push(single)
    // Without a copy of the state: each is native memory until the garbage collector finds it.
    for (const { probe, groups } of spaced) {
      if (probe === null) add(groups.flat().filter((token) => state.isNext(token)))
      else if (state.isNext(probe)) groups.forEach(add)
    }
    return candidates
  }

  /** Tokens that cannot follow because the bytes would be no UTF-8. */
  broken(state: GrammarState): readonly Token[] {
    if (!state.isInCharacter && this.#brokenFirst !== null) return this.#brokenFirst
    const broken: Token[] = []
    for (let token = 0; token < this.#size; token++) if (!state.isText(token)) broken.push(token)
    if (!state.isInCharacter) this.#brokenFirst = broken
    return broken
  }

  #planOf(classes: CharacterClasses): Plan {
    const known = this.#plans.get(classes)
    if (known !== undefined) return known
    const first = new Map<string, Probed>()
    const hasSpace = this.#single.has(space)
    for (const byte of firstBytes) {
      const group = this.#byFirst.get(byte)
      if (group === undefined || (byte === space && hasSpace)) continue
      addProbed(first, classes.ofFirstByte(byte), this.#single.get(byte) ?? null, group)
    }
    const spaced = new Map<string, Probed>()
    for (const [character, { shortest, all }] of this.#spaced) {
      const code = character.codePointAt(0) ?? 0
      const kind = character === replacement ? 'incomplete' : String(classes.of(code))
      addProbed(spaced, kind, shortest, all)
    }
    const plan = { first: [...first.values()], spaced: [...spaced.values()] }
    this.#plans.set(classes, plan)
    return plan
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

function addProbed(
  probed: Map<string, Probed>,
  kind: string,
  probe: Token | null,
  group: readonly Token[],
): void {
  const known = probed.get(kind)
  if (known === undefined) {
    probed.set(kind, { probe, groups: [group] })
    return
  }
  known.probe ??= probe
  known.groups.push(group)
}

/** What bytes become that are no UTF-8. */
const replacement = '\uFFFD'

/** Adds to the state of a grammar that all bytes together are UTF-8. */
class StrictState implements GrammarState {
  readonly #state: GrammarState
  readonly #bytesOf: Vocabulary['bytesOf']
  readonly #isAscii: Uint8Array
  /** Of a character that is not complete. */
  #pending: readonly number[] = []

  constructor(state: GrammarState, bytesOf: Vocabulary['bytesOf'], ascii: Uint8Array) {
    this.#state = state
    this.#bytesOf = bytesOf
    this.#isAscii = ascii
  }

  get isInCharacter(): boolean {
    return this.#pending.length > 0
  }

  isNext(token: Token): boolean {
    return this.isText(token) && this.#state.isNext(token)
  }

  isText(token: Token): boolean {
    return this.#pendingWith(token) !== null
  }

  accept(token: Token): void {
    this.#pending = this.#pendingWith(token) ?? []
    this.#state.accept(token)
  }

  follow(token: Token): void {
    this.#pending = this.#pendingWith(token) ?? []
    this.#state.follow(token)
  }

  #pendingWith(token: Token): readonly number[] | null {
    if (this.#isAscii[token] === 1) return this.isInCharacter ? null : []
    return pendingAfter([...this.#pending, ...(this.#bytesOf(token) ?? [])])
  }
}

const isAscii = (bytes: readonly number[]): boolean => bytes.every((byte) => byte < 0x80)

/** The bytes of an incomplete character at the end; `null` if there are bytes that are no UTF-8. */
function pendingAfter(bytes: readonly number[]): readonly number[] | null {
  try {
    const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
    const text = decoder.decode(Uint8Array.from(bytes), { stream: true })
    return bytes.slice(Buffer.byteLength(text))
  } catch {
    return null
  }
}
