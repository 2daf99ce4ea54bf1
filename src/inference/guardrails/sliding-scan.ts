/** Applies matchers to a text that arrives in pieces. The result does not depend on the pieces. */

import { runSteps, type Steps } from '../../runtime/turn-budget.ts'
import { type GuardHit, lookBack, type Match, type Matcher, reach, type Stretch } from './rules.ts'

/**
 * Holds back the end of an answer while it may be the beginning of a match. The joined releases do
 * not depend on how the text was divided into pieces.
 */
export interface OutputGuard {
  push(text: string): Release
  /** Releases the rest. Nothing may be pushed afterwards. */
  finish(): Release
}

export interface Release {
  /** The text that may be shown now. */
  readonly release: string
  /** Once true, nothing more is released. */
  readonly isBlocked: boolean
  /** The rules that matched for the first time. */
  readonly hits: readonly GuardHit[]
}

/**
 * A step judges the matches that begin in the next `stepChars` characters, once `reach` more have
 * arrived or the text has ended. The positions of steps and the characters that they see do not
 * depend on how the text was divided, so neither does the result. Overlapping matches are redacted
 * as one.
 */
export class SlidingScan implements OutputGuard {
  readonly #matchers: readonly Matcher[]
  readonly #stepChars: number
  readonly #marks: RegExp | null
  readonly #hits = new Set<string>()
  /** Rules that only flag and have already matched, so that they need not be searched again. */
  readonly #flagged = new Set<string>()
  /** The text that is still needed, from `lookBack` characters before the next step. */
  #text = ''
  /** The index in `#text` at which the next step begins. */
  #at = 0
  /** The text before this index of `#text` is redacted. The index may be after `#at`. */
  #covered = 0
  /** Finds the end of a redaction that has begun; `null` if there is none. */
  #closing: RegExp | null = null
  #isBlocked = false

  /** `marks` finds the marks of earlier redactions; matches inside them are ignored. */
  constructor(matchers: readonly Matcher[], stepChars: number, marks: RegExp | null = null) {
    this.#matchers = matchers
    this.#stepChars = stepChars
    this.#marks = marks
  }

  push(text: string): Release {
    if (this.#isBlocked) return blocked
    this.#text += text
    const needed = this.#stepChars + reach
    if (this.#text.length - this.#at < needed) return nothing
    return runSteps(this.#run(needed))
  }

  finish(): Release {
    return runSteps(this.#run(1))
  }

  /** Judges a whole text, in steps between which the caller may yield to the event loop. */
  *scan(text: string): Steps<Release> {
    this.#text += text
    return yield* this.#run(1)
  }

  /** Takes steps while at least `needed` characters are left. 1 means that the text is complete. */
  *#run(needed: number): Steps<Release> {
    const hits: GuardHit[] = []
    let [release, from] = ['', 0]
    while (!this.#isBlocked && this.#text.length - this.#at >= needed) {
      const stretch = this.#nextStretch(from, needed === 1)
      const matches = yield* this.#findAll(stretch)
      release += this.#step(stretch, from, matches, hits)
      from = Math.max(0, this.#at - lookBack)
    }
    this.#text = this.#isBlocked ? '' : this.#text.slice(from)
    this.#at -= from
    this.#covered -= from
    return { release, isBlocked: this.#isBlocked, hits }
  }

  #nextStretch(from: number, hasEnded: boolean): Stretch {
    const stop = this.#at + this.#stepChars
    const text = this.#text.slice(from, stop + reach)
    const isLast = hasEnded && from + text.length === this.#text.length
    return { text, begin: this.#at - from, end: stepEnd(this.#text, stop) - from, isLast }
  }

  /** Judges one step; returns the text that may be released, with redactions. */
  #step(stretch: Stretch, from: number, matches: readonly Match[], hits: GuardHit[]): string {
    const [begin, end] = [from + stretch.begin, from + stretch.end]
    let release = ''
    this.#close(stretch.text, from, end)
    for (const match of matches) {
      const start = from + match.start
      const { rule, action } = match
      if (!this.#hits.has(rule)) hits.push({ rule, action })
      this.#hits.add(rule)
      if (action === 'flag') {
        this.#flagged.add(rule)
        continue
      }
      const isOpen = start >= this.#covered
      if (isOpen) release += this.#text.slice(Math.max(begin, this.#covered), start)
      if (action === 'reject') {
        this.#isBlocked = true
        return release
      }
      if (isOpen) release += redactionMark(rule)
      this.#covered = Math.max(this.#covered, from + match.end)
      this.#closing ??= match.until
      this.#close(stretch.text, from, end)
    }
    this.#at = end
    return release + this.#text.slice(Math.max(begin, this.#covered), end)
  }

  /** Searches for the end of an open redaction. Without an end in view, redacts the whole step. */
  #close(view: string, from: number, end: number): void {
    if (this.#closing === null) return
    this.#closing.lastIndex = Math.max(this.#at, this.#covered) - from
    const close = this.#closing.exec(view)
    if (close !== null) this.#closing = null
    const covered = close === null ? end : from + close.index + close[0].length
    this.#covered = Math.max(this.#covered, covered)
  }

  /** All matches by position; matches that begin together are in the order of the rules. */
  *#findAll(stretch: Stretch): Steps<readonly Match[]> {
    const found: Match[] = []
    for (const matcher of this.#matchers) {
      for (const match of yield* matcher.find(stretch, this.#flagged)) found.push(match)
      yield
    }
    return this.#outsideMarks(found, stretch).toSorted(
      (a, b) => a.start - b.start || a.order - b.order,
    )
  }

  #outsideMarks(found: readonly Match[], { text }: Stretch): readonly Match[] {
    if (found.length === 0 || this.#marks === null) return found
    const marks = Array.from(text.matchAll(this.#marks), ({ index, 0: mark }) => {
      return { start: index, end: index + mark.length }
    })
    if (marks.length === 0) return found
    return found.filter(({ start, end }) => !marks.some((m) => start >= m.start && end <= m.end))
  }
}

/** The text that replaces redacted text. */
export const redactionMark = (rule: string): string => `[redacted:${rule}]`

/** Finds only marks with the ids of these rules: with any id, a mark could hide arbitrary text. */
export function createMarkFinder(rules: readonly string[]): RegExp | null {
  if (rules.length === 0) return null
  const ids = rules.map((rule) => rule.replaceAll(/[.-]/g, String.raw`\$&`))
  return new RegExp(String.raw`\[redacted:(?:${ids.join('|')})\]`, 'g')
}

const nothing: Release = { release: '', isBlocked: false, hits: [] }
const blocked: Release = { release: '', isBlocked: true, hits: [] }

/** Moves an end inside a surrogate pair to the beginning of the pair. */
function stepEnd(text: string, end: number): number {
  const last = text.charCodeAt(end - 1)
  return last >= 0xd8_00 && last <= 0xdb_ff ? end - 1 : Math.min(end, text.length)
}
