/**
 * Finds the tokens that a grammar allows. Trying the whole vocabulary would take longer than a
 * small model needs for a token, so tokens are grouped by their first byte, or by the byte after a
 * leading space. Only groups whose byte is allowed are examined. Pure.
 */

import { tryRead } from '../../../../foundation/errors.ts'
import type { Token, Vocabulary } from '../runtime.ts'
import type { StepBudget } from '../grammar/grammar-stacks.ts'
import type { GrammarStart, NextCharacters } from '../grammar/next-characters.ts'

const space = 0x20
const replacement = '\uFFFD'

type TokenVocabulary = Pick<Vocabulary, 'size' | 'bytesOf' | 'nameOf' | 'isEnd' | 'isTextless'>

export class TokenGroups {
  readonly #byFirstByte = new Map<number, Token[]>()
  readonly #bySecondByte = new Map<number, Token[]>()
  readonly #spaceTokens: Token[] = []
  readonly #endTokens: readonly Token[]
  readonly #tokenBytes: TokenBytes

  constructor(vocabulary: TokenVocabulary) {
    this.#tokenBytes = new TokenBytes(vocabulary)
    const ends: Token[] = []
    for (let token = 0; token < vocabulary.size; token++) {
      if (vocabulary.isEnd(token)) ends.push(token)
      else this.#add(token, this.#tokenBytes.bytesOf(token))
    }
    this.#endTokens = ends
  }

  begin(start: GrammarStart): GrammarState {
    return new GrammarState(this, this.#tokenBytes, start)
  }

  /**
   * Returns groups that together contain all allowed tokens, and possibly others; `null` if no
   * token can be excluded.
   */
  findCandidates({ next, steps, pending }: GrammarState): readonly (readonly Token[])[] | null {
    if (next.namesToken) return null
    const groups = next.isComplete && pending.length === 0 ? [this.#endTokens] : []
    for (const [byte, group] of this.#byFirstByte) {
      const isAllowed =
        pending.length === 0 ? next.allowsFirstByte(byte) : next.allowsBytes([...pending, byte])
      if (isAllowed) groups.push(group)
    }
    const spaced = pending.length === 0 ? next.after(space, steps) : null
    if (spaced === null) return groups
    groups.push(this.#spaceTokens)
    for (const [byte, group] of this.#bySecondByte)
      if (spaced.allowsFirstByte(byte)) groups.push(group)
    return groups
  }

  findAllowed(answer: GrammarState): {
    readonly tokens: Uint32Array
    readonly banned: Uint32Array
  } {
    const { size } = this.#tokenBytes.vocabulary
    const isAllowed = new Uint8Array(size)
    let count = 0
    for (const group of this.findCandidates(answer) ?? [this.#allTokens()]) {
      for (const token of group) {
        if (isAllowed[token] === 1 || !answer.isAllowed(token)) continue
        isAllowed[token] = 1
        count++
      }
    }
    // Typed arrays, because plain lists of the vocabulary would be a megabyte of garbage per token.
    const [tokens, banned] = [new Uint32Array(count), new Uint32Array(size - count)]
    for (let token = 0, at = 0; token < size; token++) {
      if (isAllowed[token] === 1) tokens[at++] = token
      else banned[token - at] = token
    }
    return { tokens, banned }
  }

  *#allTokens(): Iterable<Token> {
    for (let token = 0; token < this.#tokenBytes.vocabulary.size; token++) yield token
  }

  #add(token: Token, [first, second]: readonly number[]): void {
    if (first === undefined) return
    if (first !== space) addToGroup(this.#byFirstByte, first, token)
    else if (second === undefined) this.#spaceTokens.push(token)
    else addToGroup(this.#bySecondByte, second, token)
  }
}

function addToGroup(groups: Map<number, Token[]>, byte: number, token: Token): void {
  const group = groups.get(byte)
  if (group === undefined) groups.set(byte, [token])
  else group.push(token)
}

class TokenBytes {
  readonly vocabulary: TokenVocabulary
  readonly #bytes: (readonly number[] | undefined)[] = []
  /** For each token: 1 if all its bytes are ASCII, 2 if not, 0 if unknown. */
  readonly #asciiFlags: Uint8Array

  constructor(vocabulary: TokenVocabulary) {
    this.vocabulary = vocabulary
    this.#asciiFlags = new Uint8Array(vocabulary.size)
  }

  /** Returns no bytes for tokens without text, and for tokens that begin with byte 0. */
  bytesOf(token: Token): readonly number[] {
    const known = this.#bytes[token]
    if (known !== undefined) return known
    const bytes = this.vocabulary.isTextless(token) ? [] : this.#readBytes(token)
    this.#bytes[token] = bytes[0] === 0 ? [] : bytes
    return this.#bytes[token]
  }

  isAscii(token: Token): boolean {
    this.#asciiFlags[token] ||= this.bytesOf(token).every((byte) => byte < 0x80) ? 1 : 2
    return this.#asciiFlags[token] === 1
  }

  #readBytes(token: Token): readonly number[] {
    const bytes = this.vocabulary.bytesOf(token)
    if (bytes !== null) return bytes
    const name = this.vocabulary.nameOf(token)
    return name.includes(replacement) ? [] : [...Buffer.from(name)]
  }
}

interface NextState {
  readonly next: NextCharacters
  readonly pending: readonly number[]
}

/** The state of an answer that follows a grammar. The answer must be valid UTF-8. */
export class GrammarState {
  readonly groups: TokenGroups
  readonly steps: StepBudget
  readonly #tokenBytes: TokenBytes
  next: NextCharacters
  /** The bytes of an incomplete character at the end of the answer. */
  pending: readonly number[] = []

  constructor(groups: TokenGroups, tokenBytes: TokenBytes, { next, steps }: GrammarStart) {
    this.groups = groups
    this.#tokenBytes = tokenBytes
    this.next = next
    this.steps = steps
  }

  isAllowed(token: Token): boolean {
    return this.#advance(token) !== null
  }

  /** If the token is not allowed, changes nothing and returns `false`. */
  accept(token: Token): boolean {
    const nextState = this.#advance(token)
    if (nextState === null) return false
    this.next = nextState.next.afterChoice(this.steps)
    this.pending = nextState.pending
    return true
  }

  #advance(token: Token): NextState | null {
    const { next, pending } = this
    if (this.#tokenBytes.vocabulary.isEnd(token)) {
      return next.isComplete && pending.length === 0 ? { next, pending } : null
    }
    const named = pending.length === 0 ? next.afterToken(token, this.steps) : null
    const spelled = this.#advanceByText(token)
    if (named === null || (spelled !== null && spelled.pending.length > 0)) return spelled
    if (spelled !== null)
      return { next: named.mergeWith(spelled.next, this.steps), pending: noBytes }
    const { vocabulary } = this.#tokenBytes
    const isWhole =
      vocabulary.isTextless(token) ||
      decodeBytes(this.#tokenBytes.bytesOf(token))?.pending.length === 0
    return isWhole ? { next: named, pending: noBytes } : null
  }

  #advanceByText(token: Token): NextState | null {
    const bytes = this.#tokenBytes.bytesOf(token)
    if (bytes.length === 0) return null
    if (this.pending.length === 0 && this.#tokenBytes.isAscii(token)) {
      const next = this.#advanceByCodes(bytes)
      return next === null ? null : { next, pending: noBytes }
    }
    const read = decodeBytes([...this.pending, ...bytes])
    if (read === null) return null
    const codes = Array.from(read.text, (character) => character.codePointAt(0) ?? 0)
    const next = this.#advanceByCodes(codes)
    if (next === null) return null
    const { pending } = read
    return pending.length === 0 || next.allowsBytes(pending) ? { next, pending } : null
  }

  #advanceByCodes(codes: readonly number[]): NextCharacters | null {
    let next: NextCharacters | null = this.next
    for (const code of codes) {
      next = next.after(code, this.steps)
      if (next === null) return null
    }
    return next
  }
}

const noBytes: readonly number[] = []

/** Returns `null` for bytes that cannot begin a valid text. */
function decodeBytes(bytes: readonly number[]) {
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
  const text = tryRead(() => decoder.decode(Uint8Array.from(bytes), { stream: true }))
  return text === undefined ? null : { text, pending: bytes.slice(Buffer.byteLength(text)) }
}
