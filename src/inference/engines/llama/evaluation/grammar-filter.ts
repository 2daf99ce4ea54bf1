/**
 * Finds the tokens that a grammar allows without trying the whole vocabulary, which would take
 * longer than a small model needs for a token. Tokens are grouped by their first byte, or by the
 * byte after a leading space. A group is examined only if the grammar allows its byte. Pure.
 */

import type { Token, Vocabulary } from '../runtime.ts'
import type { AnswerSteps } from '../grammar/grammar-stacks.ts'
import type { AnswerStart, NextCharacters } from '../grammar/next-characters.ts'

const space = 0x20
const replacement = '\uFFFD'

type TokenFacts = Pick<Vocabulary, 'size' | 'bytesOf' | 'nameOf' | 'isEnd' | 'isTextless'>

/** The tokens of a vocabulary by their first byte, or by the byte after a leading space. */
export class TokenGroups {
  readonly #byFirst = new Map<number, Token[]>()
  readonly #spaced = new Map<number, Token[]>()
  readonly #spaces: Token[] = []
  readonly #ends: readonly Token[]
  readonly #texts: TokenTexts

  constructor(facts: TokenFacts) {
    this.#texts = new TokenTexts(facts)
    const ends: Token[] = []
    for (let token = 0; token < facts.size; token++) {
      if (facts.isEnd(token)) ends.push(token)
      else this.#add(token, this.#texts.bytesOf(token))
    }
    this.#ends = ends
  }

  /** Creates the state of a new answer. */
  begin(start: AnswerStart): GrammarAnswer {
    return new GrammarAnswer(this, this.#texts, start)
  }

  /** Groups that contain all possible next tokens; `null` if any token is possible. */
  candidates({ next, steps, pending }: GrammarAnswer): readonly (readonly Token[])[] | null {
    if (next.namesToken) return null
    const groups = next.isComplete && pending.length === 0 ? [this.#ends] : []
    for (const [byte, group] of this.#byFirst) {
      const isAllowed =
        pending.length === 0 ? next.allowsFirstByte(byte) : next.allowsBeginning([...pending, byte])
      if (isAllowed) groups.push(group)
    }
    const spaced = pending.length === 0 ? next.after(space, steps) : null
    if (spaced === null) return groups
    groups.push(this.#spaces)
    for (const [byte, group] of this.#spaced) if (spaced.allowsFirstByte(byte)) groups.push(group)
    return groups
  }

  /** The allowed next tokens, and all other tokens. */
  allowed(answer: GrammarAnswer): { readonly tokens: Uint32Array; readonly banned: Uint32Array } {
    const { size } = this.#texts.facts
    const isAllowed = new Uint8Array(size)
    let count = 0
    for (const group of this.candidates(answer) ?? [this.#everyToken()]) {
      for (const token of group) {
        if (isAllowed[token] === 1 || !answer.isNext(token)) continue
        isAllowed[token] = 1
        count++
      }
    }
    // Typed arrays, because lists of the whole vocabulary would be a megabyte of garbage per token.
    const [tokens, banned] = [new Uint32Array(count), new Uint32Array(size - count)]
    for (let token = 0, at = 0; token < size; token++) {
      if (isAllowed[token] === 1) tokens[at++] = token
      else banned[token - at] = token
    }
    return { tokens, banned }
  }

  *#everyToken(): Iterable<Token> {
    for (let token = 0; token < this.#texts.facts.size; token++) yield token
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

class TokenTexts {
  readonly facts: TokenFacts
  readonly #bytes: (readonly number[] | undefined)[] = []
  /** For each token: 1 if all its bytes are ASCII, 2 if not, 0 if unknown. */
  readonly #kinds: Uint8Array

  constructor(facts: TokenFacts) {
    this.facts = facts
    this.#kinds = new Uint8Array(facts.size)
  }

  /**
   * Empty for tokens without text, and for tokens that begin with byte 0, which llama.cpp does not
   * allow either.
   */
  bytesOf(token: Token): readonly number[] {
    const known = this.#bytes[token]
    if (known !== undefined) return known
    const bytes = this.facts.isTextless(token) ? [] : this.#spelled(token)
    this.#bytes[token] = bytes[0] === 0 ? [] : bytes
    return this.#bytes[token]
  }

  isAscii(token: Token): boolean {
    this.#kinds[token] ||= this.bytesOf(token).every((byte) => byte < 0x80) ? 1 : 2
    return this.#kinds[token] === 1
  }

  #spelled(token: Token): readonly number[] {
    const bytes = this.facts.bytesOf(token)
    if (bytes !== null) return bytes
    const name = this.facts.nameOf(token)
    return name.includes(replacement) ? [] : [...Buffer.from(name)]
  }
}

/** The state of an answer after one more token. */
interface Followed {
  readonly next: NextCharacters
  readonly pending: readonly number[]
}

/** The state of an answer under a grammar. The bytes of the whole answer must be valid UTF-8. */
export class GrammarAnswer {
  readonly groups: TokenGroups
  readonly steps: AnswerSteps
  readonly #texts: TokenTexts
  #next: NextCharacters
  #pending: readonly number[] = []

  constructor(groups: TokenGroups, texts: TokenTexts, { next, steps }: AnswerStart) {
    this.groups = groups
    this.#texts = texts
    this.#next = next
    this.steps = steps
  }

  get next(): NextCharacters {
    return this.#next
  }

  /** The bytes of an incomplete character. */
  get pending(): readonly number[] {
    return this.#pending
  }

  isNext(token: Token): boolean {
    return this.#follow(token) !== null
  }

  /**
   * Adds the token to the answer. Returns `false` and changes nothing if the token is not allowed.
   */
  accept(token: Token): boolean {
    const followed = this.#follow(token)
    if (followed === null) return false
    this.#next = followed.next.renewed(this.steps)
    this.#pending = followed.pending
    return true
  }

  #follow(token: Token): Followed | null {
    const [next, pending] = [this.#next, this.#pending]
    if (this.#texts.facts.isEnd(token)) {
      return next.isComplete && pending.length === 0 ? { next, pending } : null
    }
    const named = pending.length === 0 ? next.afterToken(token, this.steps) : null
    const spelled = this.#spell(token)
    if (named === null || (spelled !== null && spelled.pending.length > 0)) return spelled
    if (spelled !== null) return { next: named.or(spelled.next, this.steps), pending: none }
    return this.#texts.facts.isTextless(token) || this.#isWhole(token)
      ? { next: named, pending: none }
      : null
  }

  /** The state after the characters of a token; `null` if the grammar does not allow them. */
  #spell(token: Token): Followed | null {
    const bytes = this.#texts.bytesOf(token)
    if (bytes.length === 0) return null
    if (this.#pending.length === 0 && this.#texts.isAscii(token)) {
      const next = this.#afterAll(bytes)
      return next === null ? null : { next, pending: none }
    }
    const read = readBytes([...this.#pending, ...bytes])
    if (read === null) return null
    const codes = Array.from(read.text, (character) => character.codePointAt(0) ?? 0)
    const next = this.#afterAll(codes)
    if (next === null) return null
    const { pending } = read
    return pending.length === 0 || next.allowsBeginning(pending) ? { next, pending } : null
  }

  #afterAll(codes: readonly number[]): NextCharacters | null {
    let next: NextCharacters | null = this.#next
    for (const code of codes) {
      next = next.after(code, this.steps)
      if (next === null) return null
    }
    return next
  }

  /** Whether the token's bytes are complete characters. */
  #isWhole(token: Token): boolean {
    return readBytes(this.#texts.bytesOf(token))?.pending.length === 0
  }
}

const none: readonly number[] = []

interface ReadBytes {
  readonly text: string
  /** The bytes of an incomplete trailing character. */
  readonly pending: readonly number[]
}

/** `null` if the bytes are not valid UTF-8. */
function readBytes(bytes: readonly number[]): ReadBytes | null {
  try {
    const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
    const text = decoder.decode(Uint8Array.from(bytes), { stream: true })
    return { text, pending: bytes.slice(Buffer.byteLength(text)) }
  } catch {
    return null
  }
}
