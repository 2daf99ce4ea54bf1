/**
 * Finds matches of users' regular expressions in linear time, whatever the expression, because RE2
 * never backtracks. The only file that imports re2js.
 */

import { RE2JS, RE2JSException, RE2Set } from 're2js'
import type { Steps } from '../../runtime/turn-budget.ts'
import { type Match, type Matcher, reach, type Stretch } from './rules.ts'

const maxLength = 512
/**
 * The maximum number of instructions of a compiled pattern. In the worst case, RE2 executes all of
 * them at every character, so their number and the length of a view bound the cost of a call.
 */
const maxInstructions = 300
/** The maximum total number of instructions of patterns that are tested together. */
const maxSetInstructions = 250
/** The maximum product of characters and instructions, which bounds the cost of one RE2 call. */
const maxWork = 160_000
/** The minimum and maximum number of characters that are searched at a time. */
const [minWindow, maxWindow] = [32, 1024]
/** After this many matches in a window, the rest of it is searched in narrow windows. */
const manyMatches = 32
const narrowWindow = 128
/**
 * Memory for a few hundred states of an automaton, more than ordinary patterns need. With more
 * memory, patterns with very many states would spend their time on building states.
 */
const [minStateBytes, stateBytesPerInstruction] = [1 << 18, 2560]
const flags = RE2JS.CASE_INSENSITIVE

/** Why a pattern is refused; `undefined` if it is valid. */
export function findPatternProblem(pattern: string): string | undefined {
  if (pattern.length > maxLength) return `expected at most ${maxLength} characters`
  const translation = translatePattern(pattern)
  if ('problem' in translation) return translation.problem
  try {
    const regex = RE2JS.compile(translation.source, flags)
    if (matchesNothing(regex)) return 'expected a regular expression that never matches empty text'
    const size = regex.programSize()
    if (size <= maxInstructions) return undefined
    const limit = `${size} instructions, at most ${maxInstructions}`
    return `expected a smaller regular expression (${limit})`
  } catch (error) {
    if (!(error instanceof RE2JSException)) throw error
    return `expected a regular expression that RE2 supports (${reasonOf(error)})`
  }
}

/**
 * Whether the expression matches the empty string, as `a*` and `\b` do. Such a match has no text to
 * report, and the search would stop at every position of a text.
 */
const matchesNothing = (regex: RE2JS): boolean =>
  ['', 'a', ' '].some((text) => {
    const matcher = regex.matcher(text)
    return matcher.find() && matcher.start() === matcher.end()
  })

/** RE2's message, such as "invalid repeat count: {1,2000}", reworded if it would mislead. */
function reasonOf({ message }: RE2JSException): string {
  const property = /\\[pP]\{[^}]*\}/.exec(message)?.[0]
  if (property !== undefined) return `unknown property ${property}, expected one like \\p{L}`
  const reason = message.replace('error parsing regexp: ', '').replaceAll('`', '')
  const inWords = 'more than 1000 repetitions, those of nested groups multiplied'
  return reason.replace('invalid repeat count', inWords)
}

/** The pattern of a rule. `findPatternProblem` must have accepted the pattern. */
export interface OwnPattern extends Pick<Match, 'rule' | 'action' | 'order'> {
  readonly pattern: string
  /** Removes matches that overlap an exception; `null` if the rule has no exceptions. */
  readonly select: ((matches: readonly Match[], stretch: Stretch) => readonly Match[]) | null
}

interface CompiledPattern extends OwnPattern {
  readonly regex: RE2JS
  /** For views that end before the text does. */
  readonly regexInside: RE2JS
  readonly isAnchored: boolean
}

function compile(own: OwnPattern): CompiledPattern {
  const translation = translatePattern(own.pattern)
  if ('problem' in translation) throw new TypeError(translation.problem)
  const { source, sourceInside, isAnchored } = translation
  const regex = RE2JS.compile(source, flags)
  const regexInside = sourceInside === source ? regex : RE2JS.compile(sourceInside, flags)
  return { ...own, regex, regexInside, isAnchored }
}

const sizeOf = (patterns: readonly CompiledPattern[]): number =>
  patterns.reduce((sum, { regex }) => sum + regex.programSize(), 0)

/** The progress of the search for one pattern. */
interface Search {
  readonly pattern: CompiledPattern
  at: number
  isOver: boolean
}

/**
 * Patterns that are tested together in one pass over the text. Only where the test succeeds are the
 * borders of matches searched, which takes ten times as long.
 */
export class PatternSet implements Matcher {
  readonly #patterns: readonly CompiledPattern[]
  readonly #set: RE2Set
  readonly #setInside: RE2Set
  readonly #windowChars: number
  readonly isLocal: boolean

  /** Distributes patterns to as few sets as their sizes allow. */
  static group(patterns: readonly OwnPattern[]): PatternSet[] {
    const groups: CompiledPattern[][] = []
    for (const pattern of patterns.map(compile)) {
      const group = groups.at(-1)
      const isFull = group === undefined || sizeOf([...group, pattern]) > maxSetInstructions
      if (isFull) groups.push([pattern])
      else group.push(pattern)
    }
    return groups.map((group) => new PatternSet(group))
  }

  private constructor(patterns: readonly CompiledPattern[]) {
    this.#patterns = patterns
    this.isLocal = patterns.every(({ isAnchored, select }) => !isAnchored && select === null)
    const isSame = patterns.every(({ regex, regexInside }) => regex === regexInside)
    this.#set = toSet(patterns.map(({ regex }) => regex))
    this.#setInside = isSame ? this.#set : toSet(patterns.map(({ regexInside }) => regexInside))
    const chars = Math.trunc(maxWork / sizeOf(patterns)) - reach
    this.#windowChars = Math.min(maxWindow, Math.max(minWindow, chars))
  }

  *find(stretch: Stretch, reported: ReadonlySet<string>): Steps<readonly Match[]> {
    const found: Match[] = []
    const searches: Search[] = []
    for (let at = stretch.begin; at < stretch.end;) {
      if (at > stretch.begin) yield
      const window = windowAt(stretch, at, at + this.#windowChars)
      const set = window.isLast ? this.#set : this.#setInside
      for (const index of set.match(window.view)) {
        const pattern = this.#patterns[index]
        if (pattern === undefined || reported.has(pattern.rule)) continue
        const search = (searches[index] ??= { pattern, at, isOver: false })
        if (search.isOver) continue
        search.at = Math.max(search.at, at)
        const matches = yield* findInWindow(search, window, stretch)
        const selected = pattern.select?.(matches, stretch) ?? matches
        for (const match of selected) found.push(match)
        search.isOver = selected.length > 0 && pattern.action !== 'redact'
      }
      at = window.end
    }
    return found
  }
}

function toSet(regexes: readonly RE2JS[]): RE2Set {
  const size = regexes.reduce((sum, regex) => sum + regex.programSize(), 0)
  const stateBytes = Math.max(minStateBytes, size * stateBytesPerInstruction)
  const set = new RE2Set(RE2Set.UNANCHORED, flags, stateBytes)
  for (const regex of regexes) set.add(regex.pattern())
  return set
}

/** A part of a stretch, and `view`, the text in and around it that RE2 searches. */
interface Window {
  /** Matches that begin at or after this index belong to the next window. */
  readonly end: number
  readonly view: string
  /** The index in the stretch at which the view begins. */
  readonly from: number
  /** Whether the text ends at the end of the view. */
  readonly isLast: boolean
}

function windowAt(stretch: Stretch, begin: number, wantedEnd: number): Window {
  const { text } = stretch
  const end = betweenCharacters(text, Math.min(stretch.end, wantedEnd))
  // Includes the preceding character, which decides whether `\b` and `^` match.
  const from = Math.max(0, begin - 1)
  const view = text.slice(from, end + reach)
  return { end, view, from, isLast: stretch.isLast && from + view.length === text.length }
}

/**
 * For each match, however short, RE2 may read the whole view. So every match is a step, and where
 * there are many matches, views are short: with long views, the time for a text full of short
 * matches would grow with the square of the view's length.
 */
function* findInWindow(search: Search, whole: Window, stretch: Stretch): Steps<Match[]> {
  const { pattern } = search
  const { rule, action, order } = pattern
  const matches: Match[] = []
  let [window, found] = [whole, 0]
  let matcher = matcherOf(pattern, window)
  while (search.at < whole.end) {
    const { from, end, view } = window
    const isFound = matcher.find(search.at - from) && from + matcher.start() < end
    if (!isFound) search.at = end
    else {
      const [start, stop] = [from + matcher.start(), from + matcher.end()]
      if (stop === start) search.at = start + widthAt(view, start - from)
      else {
        matches.push({ rule, action, order, start, end: stop, until: null })
        // The next window finds the rest of a match that is longer than the view.
        search.at = !window.isLast && stop === from + view.length ? end : stop
      }
      found++
      yield
    }
    const isDense = found === manyMatches && window === whole
    if (isDense || (window !== whole && search.at >= end)) {
      if (search.at >= whole.end) break
      window = windowAt(stretch, search.at, Math.min(whole.end, search.at + narrowWindow))
      matcher = matcherOf(pattern, window)
    }
  }
  return matches
}

const matcherOf = ({ regex, regexInside }: CompiledPattern, { isLast, view }: Window) =>
  (isLast ? regex : regexInside).matcher(view)

const isHigh = (code: number): boolean => code >= 0xd8_00 && code <= 0xdb_ff
const isLow = (code: number): boolean => code >= 0xdc_00 && code <= 0xdf_ff

const widthAt = (text: string, at: number): number =>
  (text.codePointAt(at) ?? 0) > 0xff_ff ? 2 : 1

/** Moves a position inside a surrogate pair to the beginning of the pair. */
const betweenCharacters = (text: string, at: number): number =>
  isHigh(text.charCodeAt(at - 1)) && isLow(text.charCodeAt(at)) ? at - 1 : at

export interface Translation {
  readonly source: string
  /** Like `source`, but `$` never matches: for views that end before the text does. */
  readonly sourceInside: string
  /** Whether the expression contains `^` or `$`, which depend on the borders of the text. */
  readonly isAnchored: boolean
}

/**
 * The expression in RE2's syntax, or why it is refused. Expressions that JavaScript rejects with
 * the flags `i` and `u` are refused too, so that users need to know only JavaScript's syntax.
 */
function translatePattern(pattern: string): Translation | { readonly problem: string } {
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
    const refused = isInClass ? undefined : unsupported(text)
    if (refused !== undefined) {
      const place = `"${text}" at character ${at + 1}`
      return { problem: `expected a regular expression without ${refused} (${place})` }
    }
    atoms.push(isInClass ? translateInClass(text) : translateAtom(text))
    isInClass = isInClass ? text !== ']' : text === '[' || text === '[^'
    at += text.length
  }
  // With the modifier `m`, `$` also matches before a line break, so `$` is kept.
  const isMultiline = atoms.some((one) => /^\(\?[a-z]*m/.test(one))
  const inside = isMultiline ? atoms : atoms.map((one) => (one === endAnchor ? never : one))
  return {
    source: atoms.join(''),
    sourceInside: inside.join(''),
    isAnchored: atoms.some((one) => one === startAnchor || one === endAnchor),
  }
}

/** Written as groups to distinguish anchors from `^` and `$` in a character class. */
const startAnchor = '(?:^)'
const endAnchor = '(?:$)'
const never = String.raw`[^\x00-\x{10FFFF}]`

/** All escapes that JavaScript allows with the flag `u`. */
const escapes = [
  String.raw`\\u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}`,
  String.raw`\\u(?:\{[\da-fA-F]+\}|[\da-fA-F]{4})`,
  String.raw`\\(?:k<[^>]*>|[1-9]\d*|[pP]\{[^}]*\}|x[\da-fA-F]{2}|c.|.)`,
]
const groups = [String.raw`\(\?<?[=!]`, String.raw`\(\?<[^>]*>`, String.raw`\(\?[a-z-]*:`]
const classes = [String.raw`\[\^?\]`, String.raw`\[\^?`]
const atom = new RegExp([...escapes, ...groups, ...classes, '.'].join('|'), 'suy')
const classAtom = new RegExp([...escapes, '.'].join('|'), 'suy')

function unsupported(text: string): string | undefined {
  if (/^\\(?:k<|[1-9])/.test(text)) return 'back-references'
  return /^\(\?<?[=!]/.test(text) ? 'look-around' : undefined
}

/** Makes groups non-capturing, because rules need only the whole match. */
function translateAtom(text: string): string {
  if (text === '(' || text.startsWith('(?<')) return '(?:'
  if (text === '^') return startAnchor
  if (text === '$') return endAnchor
  if (text === '[]') return never
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
