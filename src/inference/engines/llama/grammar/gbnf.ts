/** Parses GBNF grammars as llama.cpp does, and rejects grammars that llama.cpp misreads. Pure. */

/** The first and the last character of a range. */
export type CharacterRange = readonly [number, number]

/** One element of a rule. A token is compared as a whole, not by its characters. */
export type GrammarElement =
  /** The ranges are ascending and do not touch. Equal lists are the same object. */
  | { readonly kind: 'characters'; readonly ranges: readonly CharacterRange[] }
  | { readonly kind: 'token'; readonly token: number; readonly isNegated: boolean }
  | { readonly kind: 'rule'; readonly rule: number }

export type Alternatives = readonly (readonly GrammarElement[])[]

/** Rules by number: named rules, groups and repetitions. */
export type GrammarRules = readonly Alternatives[]

export interface Grammar {
  readonly rules: GrammarRules
  /** The number of the rule for the whole text. */
  readonly root: number
}

/** With deeper nesting, llama.cpp overflows its stack. */
const maxDepth = 500
/** llama.cpp refuses more repetitions. */
const maxRepeats = 2000
/**
 * The maximum size after repetitions are expanded, so that other requests are not delayed for long.
 */
const maxElements = 120_000
const lastCharacter = 0x10ffff

/** Throws an `Error` with the problem and its position. */
export const parseGrammar = (text: string): Grammar => new GrammarParser(text).parse()

const blanks = /(?:[ \t]|#[^\r\n]*)*/y
const blanksAndLines = /(?:[ \t\r\n]|#[^\r\n]*)*/y
const nameForm = /[A-Za-z0-9-]+/y
const tokenForm = /!?<\[\d{1,9}\]>/y
const repeatForm = /\{\s*\d{1,18}\s*(?:,\s*(?:\d{1,18}\s*)?)?\}/y
const characterForm = /\\x[\da-fA-F]{2}|\\u[\da-fA-F]{4}|\\U[\da-fA-F]{8}|\\[trn\\"[\]-]|[^\\]/uy

/** A rule in the syntax of Lark, which vLLM accepts in the same field. */
const larkRule = /^[ \t]*[?!]?\w+(?:\.\d+)?[ \t]*:(?!:=)/m

const escapes: Readonly<Record<string, number>> = { t: 0x09, r: 0x0d, n: 0x0a }

class GrammarParser {
  readonly #text: string
  readonly #rules: (Alternatives | null)[] = []
  readonly #names = new Map<string, number>()
  readonly #classes = new Map<string, GrammarElement>()
  #at = 0
  #elements = 0

  constructor(text: string) {
    this.#text = text
  }

  parse(): Grammar {
    if (!this.#text.isWellFormed()) throw new Error('the grammar has half of a surrogate pair')
    if (this.#text.includes('\0')) throw new Error('the grammar has a character of number 0')
    this.#match(blanksAndLines)
    while (this.#at < this.#text.length) this.#rule()
    const root = this.#names.get('root')
    if (root === undefined) throw new Error('the grammar has no rule `root`')
    for (const [name, rule] of this.#names) {
      if (this.#rules[rule] === null) throw new Error(`the grammar has no rule \`${name}\``)
    }
    return { rules: this.#rules.map((alternatives) => alternatives ?? []), root }
  }

  #rule(): void {
    const name = this.#match(nameForm)
    if (name === null) throw this.#unexpected('the name of a rule')
    const rule = this.#ruleOf(name)
    this.#match(blanks)
    if (this.#next === '_') throw this.#unexpected('a name of letters, digits and `-`')
    if (!this.#skip('::=')) throw this.#unexpected('`::=`')
    this.#match(blanksAndLines)
    this.#rules[rule] = this.#alternatives(0)
    if (this.#at < this.#text.length && !/[\r\n]/.test(this.#next)) {
      throw this.#unexpected('the end of the line')
    }
    this.#match(blanksAndLines)
  }

  #ruleOf(name: string): number {
    const known = this.#names.get(name)
    if (known !== undefined) return known
    const rule = this.#add(null)
    this.#names.set(name, rule)
    return rule
  }

  #add(alternatives: Alternatives | null): number {
    return this.#rules.push(alternatives) - 1
  }

  #alternatives(depth: number): Alternatives {
    if (depth > maxDepth) throw new Error(`the grammar is nested deeper than ${maxDepth} brackets`)
    const alternatives = [this.#sequence(depth)]
    while (this.#skip('|')) {
      this.#match(blanksAndLines)
      alternatives.push(this.#sequence(depth))
    }
    return alternatives
  }

  #sequence(depth: number): readonly GrammarElement[] {
    this.#spend(1)
    const sequence: GrammarElement[] = []
    const space = depth === 0 ? blanks : blanksAndLines
    let last: readonly GrammarElement[] = []
    // The number of rules of the last item, including the rules that it repeats.
    let size = 1
    for (;;) {
      const rulesBefore = this.#rules.length
      const item = this.#item(depth)
      if (item === null) {
        const range = this.#quantifier()
        if (range === null) return sequence
        if (last.length === 0) throw this.#unexpected('something to repeat')
        size *= timesOf(range)
        if (size >= maxRepeats) throw new Error(`the grammar repeats ${maxRepeats} times or more`)
        sequence.length -= last.length
        sequence.push(...this.#repeated(last, range))
      } else {
        last = item
        size = Math.max(1, this.#rules.length - rulesBefore)
        this.#spend(item.length)
        for (const element of item) sequence.push(element)
      }
      this.#match(space)
    }
  }

  #item(depth: number): readonly GrammarElement[] | null {
    if (this.#skip('"')) return this.#literal()
    if (this.#skip('[')) return this.#class()
    if (this.#skip('.')) return [this.#characters([[0, lastCharacter]])]
    if (this.#next === '<' || this.#next === '!') {
      const form = this.#match(tokenForm)
      if (form === null) throw this.#unexpected('a token such as `<[5]>`')
      const token = Number.parseInt(form.replace(/^!?<\[/, ''), 10)
      return [{ kind: 'token', token, isNegated: form.startsWith('!') }]
    }
    if (this.#skip('(')) {
      const start = this.#at - 1
      this.#match(blanksAndLines)
      const rule = this.#add(null)
      this.#rules[rule] = this.#alternatives(depth + 1)
      this.#expectMore('group', start)
      if (!this.#skip(')')) throw this.#unexpected('`)`')
      return [{ kind: 'rule', rule }]
    }
    const name = this.#match(nameForm)
    return name === null ? null : [{ kind: 'rule', rule: this.#ruleOf(name) }]
  }

  #literal(): readonly GrammarElement[] {
    const elements: GrammarElement[] = []
    const start = this.#at - 1
    while (!this.#skip('"')) {
      this.#expectMore('literal', start)
      const code = this.#character()
      elements.push(this.#characters([[code, code]]))
    }
    return elements
  }

  /** An empty class matches nothing and is skipped, as in llama.cpp. */
  #class(): readonly GrammarElement[] {
    const start = this.#at - 1
    const isNegated = this.#skip('^')
    const ranges: CharacterRange[] = []
    while (!this.#skip(']')) {
      this.#expectMore('class', start)
      const from = this.#character()
      const isRange = this.#next === '-' && this.#text[this.#at + 1] !== ']'
      if (isRange) this.#at++
      const to = isRange ? this.#character() : from
      if (to < from) throw this.#fault('a range of the grammar ends before it begins,')
      ranges.push([from, to])
    }
    if (ranges.length === 0) return []
    const others = complementOf(ranges)
    return [this.#characters(isNegated ? others : complementOf(others))]
  }

  #characters(ranges: readonly CharacterRange[]): GrammarElement {
    const key = ranges.join()
    const known = this.#classes.get(key)
    if (known !== undefined) return known
    const element: GrammarElement = { kind: 'characters', ranges }
    this.#classes.set(key, element)
    return element
  }

  #character(): number {
    const text = this.#match(characterForm)
    if (text === null) throw this.#unexpected('a character')
    const [, kind = ''] = text
    const code = !text.startsWith('\\')
      ? (text.codePointAt(0) ?? 0)
      : text.length > 2
        ? Number.parseInt(text.slice(2), 16)
        : (escapes[kind] ?? kind.charCodeAt(0))
    const isCharacter = code <= lastCharacter && (code < 0xd800 || code > 0xdfff)
    if (!isCharacter) throw this.#fault(`\`${text}\` is no character,`)
    return code
  }

  #quantifier(): Repeats | null {
    if (this.#skip('*')) return [0, Infinity]
    if (this.#skip('+')) return [1, Infinity]
    if (this.#skip('?')) return [0, 1]
    if (this.#next !== '{') return null
    const repeat = this.#match(repeatForm)
    if (repeat === null) throw this.#unexpected('a repetition such as `{2,5}`')
    const [first = '', second] = repeat.slice(1, -1).split(',')
    const min = Number(first)
    const max = second === undefined ? min : second.trim() === '' ? Infinity : Number(second)
    // llama.cpp would count down from the largest number instead.
    if (max < min) throw new Error(`\`${repeat}\` has the larger number first`)
    return [min, max > maxRepeats ? Infinity : max]
  }

  /** Expands a repetition as llama.cpp does: copies, then a chain of optional rules. */
  #repeated(item: readonly GrammarElement[], [min, max]: Repeats): GrammarElement[] {
    const further = max === Infinity ? 1 : max - min
    this.#spend(item.length * (min + further))
    const repeated = Array.from({ length: min }, () => item).flat()
    let last: GrammarElement | null = null
    for (let count = 0; count < further; count++) {
      const rule = this.#add(null)
      const itself: GrammarElement = { kind: 'rule', rule }
      const next: GrammarElement | null = max === Infinity ? itself : last
      this.#rules[rule] = [next === null ? item : [...item, next], []]
      last = itself
    }
    return last === null ? repeated : [...repeated, last]
  }

  #spend(elements: number): void {
    this.#elements += elements
    if (this.#elements > maxElements) throw new Error('the grammar has too many parts')
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

  /** Throws if the text ends inside the construct that begins at `start`. */
  #expectMore(what: string, start: number): void {
    if (this.#at >= this.#text.length)
      throw this.#fault(`a ${what} of the grammar has no end; it begins`, start)
  }

  #unexpected(what: string): Error {
    const isLark = !this.#text.includes('::=') && larkRule.test(this.#text)
    const hint = isLark ? '; this looks like Lark, but GBNF is expected: `root ::= …`' : ''
    return this.#fault(`the grammar cannot be read: expected ${what},`, this.#at, hint)
  }

  #fault(what: string, at = this.#at, hint = ''): Error {
    const lines = this.#text.slice(0, at).split('\n')
    const column = (lines.at(-1)?.length ?? 0) + 1
    return new Error(`${what} in line ${lines.length}, column ${column}${hint}`)
  }
}

type Repeats = readonly [min: number, max: number]

const timesOf = ([min, max]: Repeats): number =>
  Math.max(1, max === Infinity || max === 0 ? min : max)

function complementOf(ranges: readonly CharacterRange[]): readonly CharacterRange[] {
  const others: CharacterRange[] = []
  let next = 0
  for (const [from, to] of ranges.toSorted(([one], [other]) => one - other)) {
    if (from > next) others.push([next, from - 1])
    next = Math.max(next, to + 1)
  }
  if (next <= lastCharacter) others.push([next, lastCharacter])
  return others
}
