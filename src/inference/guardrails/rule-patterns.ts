/** Searches texts for users' regular expressions. Uses RE2, which always takes linear time. */

import { RE2JS, RE2JSException, RE2Set } from 're2js'
import type { Steps } from '../../runtime/turn-budget.ts'
import { type Match, type Matcher, lookAhead, type TextSegment } from './rules.ts'

const maxPatternChars = 512
/** The maximum size of a pattern: RE2 may execute all its instructions at every character. */
const maxInstructions = 300
const maxSetInstructions = 250
/** The maximum product of characters and instructions, which bounds the cost of one RE2 call. */
const maxWork = 160_000
const [minWindowChars, maxWindowChars] = [32, 1024]
/** After this many matches in a window, the rest of the window is searched in narrow windows. */
const denseMatchCount = 32
const narrowWindowChars = 128
/** RE2's memory for states. With more, building very many states would take most of the time. */
const [minStateBytes, stateBytesPerInstruction] = [1 << 18, 2560]
const flags = RE2JS.CASE_INSENSITIVE

export function findPatternProblem(pattern: string): string | undefined {
  if (pattern.length > maxPatternChars) return `expected at most ${maxPatternChars} characters`
  const translation = translatePattern(pattern)
  if ('problem' in translation) return translation.problem
  try {
    const regex = RE2JS.compile(translation.source, flags)
    if (matchesEmptyText(regex))
      return 'expected a regular expression that never matches empty text'
    const size = regex.programSize()
    if (size <= maxInstructions) return undefined
    const limitText = `${size} instructions, at most ${maxInstructions}`
    return `expected a smaller regular expression (${limitText})`
  } catch (error) {
    if (!(error instanceof RE2JSException)) throw error
    return `expected a regular expression that RE2 supports (${toReason(error)})`
  }
}

/** Whether a pattern matches the empty string, as `a*` and `\b` do. */
const matchesEmptyText = (regex: RE2JS): boolean =>
  ['', 'a', ' '].some((text) => {
    const matcher = regex.matcher(text)
    return matcher.find() && matcher.start() === matcher.end()
  })

/** Returns the message of RE2, reworded where it would be misleading. */
function toReason({ message }: RE2JSException): string {
  const property = /\\[pP]\{[^}]*\}/.exec(message)?.[0]
  if (property !== undefined) return `unknown property ${property}, expected one like \\p{L}`
  const reason = message.replace('error parsing regexp: ', '').replaceAll('`', '')
  const inWords = 'more than 1000 repetitions, those of nested groups multiplied'
  return reason.replace('invalid repeat count', inWords)
}

export interface RulePattern extends Pick<Match, 'rule' | 'action' | 'order'> {
  readonly pattern: string
  /** Removes matches that overlap an exception; `null` if the rule has no exceptions. */
  readonly filterMatches:
    | ((matches: readonly Match[], segment: TextSegment) => readonly Match[])
    | null
}

interface CompiledPattern extends RulePattern {
  readonly regex: RE2JS
  /** The variant for parts that end before the text does. */
  readonly regexBeforeEnd: RE2JS
  readonly isAnchored: boolean
}

function compile(rulePattern: RulePattern): CompiledPattern {
  const translation = translatePattern(rulePattern.pattern)
  if ('problem' in translation) throw new TypeError(translation.problem)
  const { source, sourceBeforeEnd, isAnchored } = translation
  const regex = RE2JS.compile(source, flags)
  const regexBeforeEnd = sourceBeforeEnd === source ? regex : RE2JS.compile(sourceBeforeEnd, flags)
  return { ...rulePattern, regex, regexBeforeEnd, isAnchored }
}

const countInstructions = (patterns: readonly CompiledPattern[]): number =>
  patterns.reduce((sum, { regex }) => sum + regex.programSize(), 0)

interface Search {
  readonly pattern: CompiledPattern
  at: number
  isDone: boolean
}

/**
 * Several patterns. For each window, one pass of RE2 finds out which patterns match; only these are
 * then searched for the positions of their matches.
 */
export class PatternSet implements Matcher {
  readonly #patterns: readonly CompiledPattern[]
  readonly #set: RE2Set
  readonly #setBeforeEnd: RE2Set
  readonly #windowChars: number
  readonly isLocal: boolean

  static createAll(patterns: readonly RulePattern[]): PatternSet[] {
    const groups: CompiledPattern[][] = []
    for (const pattern of patterns.map(compile)) {
      const group = groups.at(-1)
      const isFull =
        group === undefined || countInstructions([...group, pattern]) > maxSetInstructions
      if (isFull) groups.push([pattern])
      else group.push(pattern)
    }
    return groups.map((group) => new PatternSet(group))
  }

  private constructor(patterns: readonly CompiledPattern[]) {
    this.#patterns = patterns
    this.isLocal = patterns.every(
      ({ isAnchored, filterMatches }) => !isAnchored && filterMatches === null,
    )
    const isSame = patterns.every(({ regex, regexBeforeEnd }) => regex === regexBeforeEnd)
    this.#set = createSet(patterns.map(({ regex }) => regex))
    this.#setBeforeEnd = isSame
      ? this.#set
      : createSet(patterns.map(({ regexBeforeEnd }) => regexBeforeEnd))
    const chars = Math.trunc(maxWork / countInstructions(patterns)) - lookAhead
    this.#windowChars = Math.min(maxWindowChars, Math.max(minWindowChars, chars))
  }

  *find(segment: TextSegment, reported: ReadonlySet<string>): Steps<readonly Match[]> {
    const found: Match[] = []
    const searches: Search[] = []
    for (let at = segment.begin; at < segment.end;) {
      if (at > segment.begin) yield
      const window = createWindow(segment, at, at + this.#windowChars)
      const set = window.isLast ? this.#set : this.#setBeforeEnd
      for (const index of set.match(window.view)) {
        const pattern = this.#patterns[index]
        if (pattern === undefined || reported.has(pattern.rule)) continue
        const search = (searches[index] ??= { pattern, at, isDone: false })
        if (search.isDone) continue
        search.at = Math.max(search.at, at)
        const matches = yield* findInWindow(search, window, segment)
        const selected = pattern.filterMatches?.(matches, segment) ?? matches
        for (const match of selected) found.push(match)
        search.isDone = selected.length > 0 && pattern.action !== 'redact'
      }
      at = window.end
    }
    return found
  }
}

function createSet(regexes: readonly RE2JS[]): RE2Set {
  const size = regexes.reduce((sum, regex) => sum + regex.programSize(), 0)
  const stateBytes = Math.max(minStateBytes, size * stateBytesPerInstruction)
  const set = new RE2Set(RE2Set.UNANCHORED, flags, stateBytes)
  for (const regex of regexes) set.add(regex.pattern())
  return set
}

/** A part of a segment. `view` is the text in and around this part, which RE2 searches. */
interface Window {
  /** Matches that begin at or after this index belong to the next window. */
  readonly end: number
  readonly view: string
  /** The index in the text of the segment at which the view begins. */
  readonly from: number
  readonly isLast: boolean
}

function createWindow(segment: TextSegment, begin: number, wantedEnd: number): Window {
  const { text } = segment
  const nearEnd = Math.min(segment.end, wantedEnd)
  const end = getCharacterWidth(text, nearEnd - 1) === 2 ? nearEnd - 1 : nearEnd
  // Includes the preceding character, which decides whether `\b` and `^` match.
  const from = Math.max(0, begin - 1)
  const view = text.slice(from, end + lookAhead)
  return { end, view, from, isLast: segment.isLast && from + view.length === text.length }
}

/** RE2 may read the whole view for each match, so dense matches are searched in short views. */
function* findInWindow(search: Search, whole: Window, segment: TextSegment): Steps<Match[]> {
  const { pattern } = search
  const { rule, action, order } = pattern
  const matches: Match[] = []
  let [window, found] = [whole, 0]
  let matcher = createMatcher(pattern, window)
  while (search.at < whole.end) {
    const { from, end, view } = window
    const isFound = matcher.find(search.at - from) && from + matcher.start() < end
    if (!isFound) search.at = end
    else {
      const [start, stop] = [from + matcher.start(), from + matcher.end()]
      if (stop === start) search.at = start + getCharacterWidth(view, start - from)
      else {
        matches.push({ rule, action, order, start, end: stop, endPattern: null })
        // A match that reaches the end of the view may be longer. The search then continues at
        // the end of the window, so that the next window finds the rest of the match.
        search.at = !window.isLast && stop === from + view.length ? end : stop
      }
      found++
      yield
    }
    const isDense = found === denseMatchCount && window === whole
    if (isDense || (window !== whole && search.at >= end)) {
      if (search.at >= whole.end) break
      window = createWindow(segment, search.at, Math.min(whole.end, search.at + narrowWindowChars))
      matcher = createMatcher(pattern, window)
    }
  }
  return matches
}

const createMatcher = ({ regex, regexBeforeEnd }: CompiledPattern, { isLast, view }: Window) =>
  (isLast ? regex : regexBeforeEnd).matcher(view)

const getCharacterWidth = (text: string, at: number): number =>
  (text.codePointAt(at) ?? 0) > 0xff_ff ? 2 : 1

export interface TranslatedPattern {
  readonly source: string
  /**
   * Like `source`, but `$` never matches, except with the modifier `m`. Used for parts that end
   * before the text does.
   */
  readonly sourceBeforeEnd: string
  /** Whether the expression contains `^` or `$`, which depend on the borders of the text. */
  readonly isAnchored: boolean
}

/** Translates from JavaScript to RE2. Refuses expressions that JavaScript rejects. */
function translatePattern(pattern: string): TranslatedPattern | { readonly problem: string } {
  try {
    void new RegExp(pattern, 'iu')
  } catch (error) {
    const reason = String(error).split(': ').at(-1)
    return { problem: `expected a regular expression (${reason})` }
  }
  const atoms: string[] = []
  let isInClass = false
  for (let at = 0; at < pattern.length;) {
    const syntax: RegExp = isInClass ? classAtom : atom
    syntax.lastIndex = at
    const text: string = syntax.exec(pattern)?.[0] ?? pattern.charAt(at)
    const refused = isInClass ? undefined : findUnsupported(text)
    if (refused !== undefined) {
      const place = `"${text}" at character ${at + 1}`
      return { problem: `expected a regular expression without ${refused} (${place})` }
    }
    atoms.push(isInClass ? translateInClass(text) : translateAtom(text))
    isInClass = isInClass ? text !== ']' : text === '[' || text === '[^'
    at += text.length
  }
  // With the modifier `m`, `$` is kept, because it also matches before a line break.
  const isMultiline = atoms.some((one) => /^\(\?[a-z]*m/.test(one))
  const beforeEnd = isMultiline
    ? atoms
    : atoms.map((one) => (one === endAnchor ? neverMatches : one))
  return {
    source: atoms.join(''),
    sourceBeforeEnd: beforeEnd.join(''),
    isAnchored: atoms.some((one) => one === startAnchor || one === endAnchor),
  }
}

/** Anchors are written as groups, so that they differ from `^` and `$` in a character class. */
const startAnchor = '(?:^)'
const endAnchor = '(?:$)'
const neverMatches = String.raw`[^\x00-\x{10FFFF}]`

const escapes = [
  String.raw`\\u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}`,
  String.raw`\\u(?:\{[\da-fA-F]+\}|[\da-fA-F]{4})`,
  String.raw`\\(?:k<[^>]*>|[1-9]\d*|[pP]\{[^}]*\}|x[\da-fA-F]{2}|c.|.)`,
]
const groups = [String.raw`\(\?<?[=!]`, String.raw`\(\?<[^>]*>`, String.raw`\(\?[a-z-]*:`]
const classes = [String.raw`\[\^?\]`, String.raw`\[\^?`]
const atom = new RegExp([...escapes, ...groups, ...classes, '.'].join('|'), 'suy')
const classAtom = new RegExp([...escapes, '.'].join('|'), 'suy')

function findUnsupported(text: string): string | undefined {
  if (/^\\(?:k<|[1-9])/.test(text)) return 'back-references'
  return /^\(\?<?[=!]/.test(text) ? 'look-around' : undefined
}

/** Groups become non-capturing, because rules need only the whole match. */
function translateAtom(text: string): string {
  if (text === '(' || text.startsWith('(?<')) return '(?:'
  if (text === '^') return startAnchor
  if (text === '$') return endAnchor
  if (text === '[]') return neverMatches
  if (text === '[^]') return String.raw`[\x00-\x{10FFFF}]`
  if (text === String.raw`\s`) return `[${whiteSpace}]`
  if (text === String.raw`\S`) return `[^${whiteSpace}]`
  return translateEscape(text)
}

function translateInClass(text: string): string {
  // RE2 would read `[` in a class as the beginning of a POSIX class.
  if (text === '[') return String.raw`\[`
  if (text === String.raw`\b`) return String.raw`\x08`
  if (text === String.raw`\s`) return whiteSpace
  if (text === String.raw`\S`) return notWhiteSpace
  return translateEscape(text)
}

function translateEscape(text: string): string {
  if (!text.startsWith('\\')) return text
  const name = text.slice(1)
  if (name === '0') return toEscape(0)
  if (name.startsWith('c')) return toEscape(name.charCodeAt(1) % 32)
  if (/^[pP]\{/.test(name)) return text.replace(/(?:Script|sc|General_Category|gc)=/, '')
  if (!name.startsWith('u')) return text
  const [first = 0, second] = text.match(/[\da-fA-F]{2,}/g)?.map((hex) => parseInt(hex, 16)) ?? []
  if (second === undefined) return toEscape(first)
  return toEscape(0x1_00_00 + (first - 0xd8_00) * 0x4_00 + (second - 0xdc_00))
}

const toEscape = (code: number): string => String.raw`\x{${code.toString(16)}}`

/** The characters of JavaScript's `\s`. In RE2, `\s` means only five ASCII characters. */
const whiteSpace =
  String.raw`\t-\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}` +
  String.raw`\x{feff}`
const notWhiteSpace =
  String.raw`\x00-\x08\x0e-\x1f!-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}` +
  String.raw`\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{fefe}` +
  String.raw`\x{ff00}-\x{10ffff}`
