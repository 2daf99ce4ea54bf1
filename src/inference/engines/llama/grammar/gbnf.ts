/** Parses GBNF grammars as llama.cpp does. Rejects grammars that llama.cpp misreads. Pure. */

export type CharacterRange = readonly [number, number]

/** An element of a rule. A token element matches a whole token, regardless of its characters. */
export type GrammarElement =
  /** Ascending ranges that do not touch. Equal lists are the same object. */
  | { readonly kind: 'characters'; readonly ranges: readonly CharacterRange[] }
  | { readonly kind: 'token'; readonly token: number; readonly isNegated: boolean }
  | { readonly kind: 'rule'; readonly rule: number }

export type Alternatives = readonly (readonly GrammarElement[])[]

/** The alternatives of each rule, by its number. Groups and repetitions are rules too. */
export type GrammarRules = readonly Alternatives[]

export interface Grammar {
  readonly rules: GrammarRules
  readonly root: number
}

/** The maximum nesting depth. With deeper nesting, llama.cpp overflows its stack. */
const maxDepth = 500
/** The maximum number of repetitions in llama.cpp. */
const maxRepeats = 2000
/** The number of parts is limited, so that other requests are not delayed for long. */
const maxElements = 120_000
const lastCharacter = 0x10ffff

export const parseGrammar = (text: string): Grammar => new GrammarParser(text).parse()

const blankPattern = /(?:[ \t]|#[^\r\n]*)*/y
const blankLinePattern = /(?:[ \t\r\n]|#[^\r\n]*)*/y
const namePattern = /[A-Za-z0-9-]+/y
const tokenPattern = /!?<\[\d{1,9}\]>/y
const repeatPattern = /\{\s*\d{1,18}\s*(?:,\s*(?:\d{1,18}\s*)?)?\}/y
const characterPattern = /\\x[\da-fA-F]{2}|\\u[\da-fA-F]{4}|\\U[\da-fA-F]{8}|\\[trn\\"[\]-]|[^\\]/uy

/** Matches a rule in the syntax of Lark, which vLLM accepts in the same field. */
const larkRulePattern = /^[ \t]*[?!]?\w+(?:\.\d+)?[ \t]*:(?!:=)/m

const escapes: Readonly<Record<string, number>> = { t: 0x09, r: 0x0d, n: 0x0a }

class GrammarParser {
  readonly #text: string
  readonly #rules: (Alternatives | null)[] = []
  readonly #names = new Map<string, number>()
  readonly #classes = new Map<string, GrammarElement>()
  #at = 0
  #elementCount = 0

  constructor(text: string) {
    this.#text = text
  }

  parse(): Grammar {
    if (!this.#text.isWellFormed()) throw new Error('the grammar has half of a surrogate pair')
    if (this.#text.includes('\0')) throw new Error('the grammar has a character of number 0')
    this.#match(blankLinePattern)
    while (this.#at < this.#text.length) this.#parseRule()
    const root = this.#names.get('root')
    if (root === undefined) throw new Error('the grammar has no rule `root`')
    for (const [name, rule] of this.#names) {
      if (this.#rules[rule] === null) throw new Error(`the grammar has no rule \`${name}\``)
    }
    return { rules: this.#rules.map((alternatives) => alternatives ?? []), root }
  }

  #parseRule(): void {
    const name = this.#match(namePattern)
    if (name === null) throw this.#unexpectedError('the name of a rule')
    const rule = this.#ruleNumber(name)
    this.#match(blankPattern)
    if (this.#next === '_') throw this.#unexpectedError('a name of letters, digits and `-`')
    if (!this.#skip('::=')) throw this.#unexpectedError('`::=`')
    this.#match(blankLinePattern)
    this.#rules[rule] = this.#parseAlternatives(0)
    if (this.#at < this.#text.length && !/[\r\n]/.test(this.#next)) {
      throw this.#unexpectedError('the end of the line')
    }
    this.#match(blankLinePattern)
  }

  #ruleNumber(name: string): number {
    const rule = this.#names.get(name) ?? this.#addRule(null)
    this.#names.set(name, rule)
    return rule
  }

  #addRule(alternatives: Alternatives | null): number {
    return this.#rules.push(alternatives) - 1
  }

  #parseAlternatives(depth: number): Alternatives {
    if (depth > maxDepth) throw new Error(`the grammar is nested deeper than ${maxDepth} brackets`)
    const alternatives = [this.#parseSequence(depth)]
    while (this.#skip('|')) {
      this.#match(blankLinePattern)
      alternatives.push(this.#parseSequence(depth))
    }
    return alternatives
  }

  #parseSequence(depth: number): readonly GrammarElement[] {
    this.#countElements(1)
    const sequence: GrammarElement[] = []
    const space = depth === 0 ? blankPattern : blankLinePattern
    let last: readonly GrammarElement[] = []
    // The number of rules in the last item, including repetitions.
    let size = 1
    for (;;) {
      const rulesBefore = this.#rules.length
      const item = this.#parseItem(depth)
      if (item === null) {
        const range = this.#parseQuantifier()
        if (range === null) return sequence
        if (last.length === 0) throw this.#unexpectedError('something to repeat')
        const [min, max] = range
        size *= Math.max(1, max === Infinity || max === 0 ? min : max)
        if (size >= maxRepeats) throw new Error(`the grammar repeats ${maxRepeats} times or more`)
        sequence.length -= last.length
        sequence.push(...this.#expandRepetition(last, range))
      } else {
        last = item
        size = Math.max(1, this.#rules.length - rulesBefore)
        this.#countElements(item.length)
        for (const element of item) sequence.push(element)
      }
      this.#match(space)
    }
  }

  #parseItem(depth: number): readonly GrammarElement[] | null {
    if (this.#skip('"')) return this.#parseLiteral()
    if (this.#skip('[')) return this.#parseClass()
    if (this.#skip('.')) return [this.#toElement([[0, lastCharacter]])]
    if (this.#next === '<' || this.#next === '!') {
      const form = this.#match(tokenPattern)
      if (form === null) throw this.#unexpectedError('a token such as `<[5]>`')
      const token = Number.parseInt(form.replace(/^!?<\[/, ''), 10)
      return [{ kind: 'token', token, isNegated: form.startsWith('!') }]
    }
    if (this.#skip('(')) {
      const start = this.#at - 1
      this.#match(blankLinePattern)
      const rule = this.#addRule(null)
      this.#rules[rule] = this.#parseAlternatives(depth + 1)
      this.#expectMore('group', start)
      if (!this.#skip(')')) throw this.#unexpectedError('`)`')
      return [{ kind: 'rule', rule }]
    }
    const name = this.#match(namePattern)
    return name === null ? null : [{ kind: 'rule', rule: this.#ruleNumber(name) }]
  }

  #parseLiteral(): readonly GrammarElement[] {
    const elements: GrammarElement[] = []
    const start = this.#at - 1
    while (!this.#skip('"')) {
      this.#expectMore('literal', start)
      const code = this.#parseCharacter()
      elements.push(this.#toElement([[code, code]]))
    }
    return elements
  }

  /** Returns no element for an empty class, because llama.cpp skips it. */
  #parseClass(): readonly GrammarElement[] {
    const start = this.#at - 1
    const isNegated = this.#skip('^')
    const ranges: CharacterRange[] = []
    while (!this.#skip(']')) {
      this.#expectMore('class', start)
      const from = this.#parseCharacter()
      const isRange = this.#next === '-' && this.#text[this.#at + 1] !== ']'
      if (isRange) this.#at++
      const to = isRange ? this.#parseCharacter() : from
      if (to < from) throw this.#errorAt('a range of the grammar ends before it begins,')
      ranges.push([from, to])
    }
    if (ranges.length === 0) return []
    const others = complement(ranges)
    return [this.#toElement(isNegated ? others : complement(others))]
  }

  #toElement(ranges: readonly CharacterRange[]): GrammarElement {
    const key = ranges.join()
    const element = this.#classes.get(key) ?? { kind: 'characters', ranges }
    this.#classes.set(key, element)
    return element
  }

  #parseCharacter(): number {
    const text = this.#match(characterPattern)
    if (text === null) throw this.#unexpectedError('a character')
    const [, kind = ''] = text
    const code = !text.startsWith('\\')
      ? (text.codePointAt(0) ?? 0)
      : text.length > 2
        ? Number.parseInt(text.slice(2), 16)
        : (escapes[kind] ?? kind.charCodeAt(0))
    const isCharacter = code <= lastCharacter && (code < 0xd800 || code > 0xdfff)
    if (!isCharacter) throw this.#errorAt(`\`${text}\` is no character,`)
    return code
  }

  #parseQuantifier(): RepeatRange | null {
    if (this.#skip('*')) return [0, Infinity]
    if (this.#skip('+')) return [1, Infinity]
    if (this.#skip('?')) return [0, 1]
    if (this.#next !== '{') return null
    const repeat = this.#match(repeatPattern)
    if (repeat === null) throw this.#unexpectedError('a repetition such as `{2,5}`')
    const [first = '', second] = repeat.slice(1, -1).split(',')
    const min = Number(first)
    const max = second === undefined ? min : second.trim() === '' ? Infinity : Number(second)
    // llama.cpp would count down from the larger number, so such a range is rejected.
    if (max < min) throw new Error(`\`${repeat}\` has the larger number first`)
    return [min, max > maxRepeats ? Infinity : max]
  }

  /** As in llama.cpp, returns the required copies, then a chain of optional rules. */
  #expandRepetition(item: readonly GrammarElement[], [min, max]: RepeatRange): GrammarElement[] {
    const optionalCount = max === Infinity ? 1 : max - min
    this.#countElements(item.length * (min + optionalCount))
    const repeated = Array.from({ length: min }, () => item).flat()
    let last: GrammarElement | null = null
    for (let count = 0; count < optionalCount; count++) {
      const rule = this.#addRule(null)
      const itself: GrammarElement = { kind: 'rule', rule }
      const next: GrammarElement | null = max === Infinity ? itself : last
      this.#rules[rule] = [next === null ? item : [...item, next], []]
      last = itself
    }
    return last === null ? repeated : [...repeated, last]
  }

  #countElements(elements: number): void {
    this.#elementCount += elements
    if (this.#elementCount > maxElements) throw new Error('the grammar has too many parts')
  }

  get #next(): string {
    return this.#text[this.#at] ?? ''
  }

  #skip(text: string): boolean {
    const isMatch = this.#text.startsWith(text, this.#at)
    if (isMatch) this.#at += text.length
    return isMatch
  }

  #match(form: RegExp): string | null {
    form.lastIndex = this.#at
    const [found = null] = form.exec(this.#text) ?? []
    this.#at += found?.length ?? 0
    return found
  }

  #expectMore(what: string, start: number): void {
    if (this.#at >= this.#text.length)
      throw this.#errorAt(`a ${what} of the grammar has no end; it begins`, start)
  }

  #unexpectedError(what: string): Error {
    const isLark = !this.#text.includes('::=') && larkRulePattern.test(this.#text)
    const hint = isLark ? '; this looks like Lark, but GBNF is expected: `root ::= …`' : ''
    return this.#errorAt(`the grammar cannot be read: expected ${what},`, this.#at, hint)
  }

  #errorAt(what: string, at = this.#at, hint = ''): Error {
    const lines = this.#text.slice(0, at).split('\n')
    const column = (lines.at(-1)?.length ?? 0) + 1
    return new Error(`${what} in line ${lines.length}, column ${column}${hint}`)
  }
}

type RepeatRange = readonly [min: number, max: number]

function complement(ranges: readonly CharacterRange[]): readonly CharacterRange[] {
  const others: CharacterRange[] = []
  let next = 0
  for (const [from, to] of ranges.toSorted(([one], [other]) => one - other)) {
    if (from > next) others.push([next, from - 1])
    next = Math.max(next, to + 1)
  }
  if (next <= lastCharacter) others.push([next, lastCharacter])
  return others
}
