/** Reads the text of a grammar in llama.cpp's form (GBNF). Pure. */

/** Both ends of each range are in it. */
export interface CharacterSet {
  readonly ranges: readonly (readonly [number, number])[]
  /** All other characters are meant. */
  readonly isNegated: boolean
}

/** A part of a rule. */
export type GrammarPart =
  | { readonly kind: 'characters'; readonly set: CharacterSet }
  | { readonly kind: 'rule'; readonly name: string }
  | { readonly kind: 'group'; readonly choices: readonly GrammarSequence[] }
  | {
      readonly kind: 'repeated'
      readonly part: GrammarPart
      readonly least: number
      readonly most: number
    }

export type GrammarSequence = readonly GrammarPart[]

/** The alternatives of each rule. */
export type GrammarRules = ReadonlyMap<string, readonly GrammarSequence[]>

/** `null` for what this cannot read: names of tokens (`<…>`), and what llama.cpp refuses. */
export function readGrammar(text: string): GrammarRules | null {
  try {
    return new GrammarReader(text).read()
  } catch (error) {
    if (error instanceof UnreadableError) return null
    throw error
  }
}

class UnreadableError extends Error {}

const escapes = new Map([
  ['n', 0x0a],
  ['r', 0x0d],
  ['t', 0x09],
  ['\\', 0x5c],
  ['"', 0x22],
  ['[', 0x5b],
  [']', 0x5d],
])
const any: CharacterSet = { ranges: [], isNegated: true }

class GrammarReader {
  readonly #text: string
  #at = 0

  constructor(text: string) {
    this.#text = text
  }

  read(): GrammarRules {
    const rules = new Map<string, readonly GrammarSequence[]>()
    this.#skipSpace(true)
    while (this.#at < this.#text.length) {
      const name = this.#take(/[\w-]+/y)
      this.#skipSpace(false)
      this.#take(/::=/y)
      this.#skipSpace(true)
      rules.set(name, this.#readChoices(false))
      this.#skipSpace(true)
    }
    return rules
  }

  /** A rule ends with its line, but not within parentheses. */
  #readChoices(isNested: boolean): readonly GrammarSequence[] {
    const choices = [this.#readSequence(isNested)]
    while (this.#tryTake(/\|/y) !== null) {
      this.#skipSpace(true)
      choices.push(this.#readSequence(isNested))
    }
    return choices
  }

  #readSequence(isNested: boolean): GrammarSequence {
    const parts: GrammarPart[] = []
    for (;;) {
      const part = this.#readPart()
      if (part === null) return parts
      this.#skipSpace(isNested)
      parts.push(this.#readRepetitions(part, isNested))
    }
  }

  #readPart(): GrammarPart | null {
    switch (this.#text[this.#at]) {
      case '"':
        return this.#readLiteral()
      case '[':
        return { kind: 'characters', set: this.#readSet() }
      case '.':
        this.#at++
        return { kind: 'characters', set: any }
      case '(': {
        this.#at++
        this.#skipSpace(true)
        const choices = this.#readChoices(true)
        this.#take(/\)/y)
        return { kind: 'group', choices }
      }
      case '<':
      case '!':
        throw new UnreadableError()
    }
    const name = this.#tryTake(/[\w-]+/y)
    return name === null ? null : { kind: 'rule', name }
  }

  #readRepetitions(repeated: GrammarPart, isNested: boolean): GrammarPart {
    let part = repeated
    for (;;) {
      const sign = this.#tryTake(/[*+?]|\{\s*\d+\s*(?:,\s*\d*\s*)?\}/y)
      if (sign === null) return part
      const [least, most] = boundsOf(sign)
      part = { kind: 'repeated', part, least, most }
      this.#skipSpace(isNested)
    }
  }

  #readLiteral(): GrammarPart {
    this.#at++
    const parts: GrammarPart[] = []
    while (this.#tryTake(/"/y) === null) {
      const code = this.#readCharacter()
      const set = { ranges: [[code, code] as const], isNegated: false }
      parts.push({ kind: 'characters', set })
    }
    return { kind: 'group', choices: [parts] }
  }

  #readSet(): CharacterSet {
    this.#at++
    const isNegated = this.#tryTake(/\^/y) !== null
    const ranges: [number, number][] = []
    while (this.#tryTake(/\]/y) === null) {
      const low = this.#readCharacter()
      const isRange = this.#tryTake(/-(?!\])/y) !== null
      ranges.push([low, isRange ? this.#readCharacter() : low])
    }
    return { ranges, isNegated }
  }

  #readCharacter(): number {
    const found = this.#take(/\\x[\dA-Fa-f]{2}|\\u[\dA-Fa-f]{4}|\\U[\dA-Fa-f]{8}|\\.|[^\\]/suy)
    if (!found.startsWith('\\')) return found.codePointAt(0) ?? 0
    if (found.length > 2) return Number.parseInt(found.slice(2), 16)
    const code = escapes.get(found.slice(1))
    if (code === undefined) throw new UnreadableError()
    return code
  }

  #skipSpace(mayEndLine: boolean): void {
    this.#tryTake(mayEndLine ? /(?:[ \t\r\n]|#[^\r\n]*)*/y : /(?:[ \t]|#[^\r\n]*)*/y)
  }

  #take(pattern: RegExp): string {
    const found = this.#tryTake(pattern)
    if (found === null) throw new UnreadableError()
    return found
  }

  #tryTake(pattern: RegExp): string | null {
    pattern.lastIndex = this.#at
    const [found] = pattern.exec(this.#text) ?? []
    if (found === undefined) return null
    this.#at += found.length
    return found
  }
}

function boundsOf(sign: string): readonly [number, number] {
  if (sign === '*') return [0, Infinity]
  if (sign === '+') return [1, Infinity]
  if (sign === '?') return [0, 1]
  const [least = 0, most] = sign.slice(1, -1).split(',')
  if (most === undefined) return [Number(least), Number(least)]
  return [Number(least), most.trim() === '' ? Infinity : Number(most)]
}
