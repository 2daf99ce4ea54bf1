/** Applies matchers to a text that arrives in pieces. The result does not depend on the pieces. */

import { runSteps, type Steps } from '../../runtime/turn-budget.ts'
import {
  type GuardHit,
  lookBack,
  type Match,
  type Matcher,
  lookAhead,
  type TextSegment,
} from './rules.ts'

/** Judges one answer. It holds back text that may be the beginning of a match. */
export interface OutputGuard {
  push(text: string): ReleasedText
  /** Releases the rest. Nothing may be pushed afterwards. */
  finish(): ReleasedText
}

export interface ReleasedText {
  readonly text: string
  /** Whether the text is blocked. After that, no more text is released. */
  readonly isBlocked: boolean
  /** The rules that have matched now but not earlier in the text. */
  readonly hits: readonly GuardHit[]
}

/** A step judges `stepChars` characters once `lookAhead` more characters have arrived. */
export class SlidingScan implements OutputGuard {
  readonly #matchers: readonly Matcher[]
  readonly #stepChars: number
  readonly #markPattern: RegExp | null
  readonly #hits = new Set<string>()
  /** Rules that only flag and have already matched. They need not be searched again. */
  readonly #flagged = new Set<string>()
  /** The text that is still needed. It begins `lookBack` characters before the next step. */
  #text = ''
  /** The index in `#text` at which the next step begins. */
  #at = 0
  /** The text before this index of `#text` is redacted. The index may be after `#at`. */
  #redactedUntil = 0
  /** Finds the end of a redaction that has begun; `null` if no redaction is open. */
  #closingPattern: RegExp | null = null
  #isBlocked = false

  /** `marks` finds the marks of earlier redactions. Matches inside such marks are ignored. */
  constructor(matchers: readonly Matcher[], stepChars: number, marks: RegExp | null = null) {
    this.#matchers = matchers
    this.#stepChars = stepChars
    this.#markPattern = marks
  }

  push(text: string): ReleasedText {
    if (this.#isBlocked) return blockedRelease
    this.#text += text
    const needed = this.#stepChars + lookAhead
    if (this.#text.length - this.#at < needed) return noRelease
    return runSteps(this.#run(needed))
  }

  finish(): ReleasedText {
    return runSteps(this.#run(1))
  }

  *scan(text: string): Steps<ReleasedText> {
    this.#text += text
    return yield* this.#run(1)
  }

  /** Steps while at least `needed` characters are left; 1 means that the text is complete. */
  *#run(needed: number): Steps<ReleasedText> {
    const hits: GuardHit[] = []
    let [text, from] = ['', 0]
    while (!this.#isBlocked && this.#text.length - this.#at >= needed) {
      const segment = this.#nextSegment(from, needed === 1)
      const matches = yield* this.#findAll(segment)
      text += this.#step(segment, from, matches, hits)
      from = Math.max(0, this.#at - lookBack)
    }
    this.#text = this.#isBlocked ? '' : this.#text.slice(from)
    this.#at -= from
    this.#redactedUntil -= from
    return { text, isBlocked: this.#isBlocked, hits }
  }

  #nextSegment(from: number, hasEnded: boolean): TextSegment {
    const stop = this.#at + this.#stepChars
    const text = this.#text.slice(from, stop + lookAhead)
    const isLast = hasEnded && from + text.length === this.#text.length
    return { text, begin: this.#at - from, end: alignStepEnd(this.#text, stop) - from, isLast }
  }

  #step(segment: TextSegment, from: number, matches: readonly Match[], hits: GuardHit[]): string {
    const [begin, end] = [from + segment.begin, from + segment.end]
    let release = ''
    this.#extendRedaction(segment.text, from, end)
    for (const match of matches) {
      const start = from + match.start
      const { rule, action } = match
      if (!this.#hits.has(rule)) hits.push({ rule, action })
      this.#hits.add(rule)
      if (action === 'flag') {
        this.#flagged.add(rule)
        continue
      }
      const isOpen = start >= this.#redactedUntil
      if (isOpen) release += this.#text.slice(Math.max(begin, this.#redactedUntil), start)
      if (action === 'reject') {
        this.#isBlocked = true
        return release
      }
      if (isOpen) release += toRedactionMark(rule)
      this.#redactedUntil = Math.max(this.#redactedUntil, from + match.end)
      this.#closingPattern ??= match.endPattern
      this.#extendRedaction(segment.text, from, end)
    }
    this.#at = end
    return release + this.#text.slice(Math.max(begin, this.#redactedUntil), end)
  }

  #extendRedaction(view: string, from: number, end: number): void {
    if (this.#closingPattern === null) return
    this.#closingPattern.lastIndex = Math.max(this.#at, this.#redactedUntil) - from
    const close = this.#closingPattern.exec(view)
    if (close !== null) this.#closingPattern = null
    const covered = close === null ? end : from + close.index + close[0].length
    this.#redactedUntil = Math.max(this.#redactedUntil, covered)
  }

  /** Returns all matches by position. Matches that begin together are in the order of the rules. */
  *#findAll(segment: TextSegment): Steps<readonly Match[]> {
    const found: Match[] = []
    for (const matcher of this.#matchers) {
      for (const match of yield* matcher.find(segment, this.#flagged)) found.push(match)
      yield
    }
    return this.#dropInsideMarks(found, segment).toSorted(
      (a, b) => a.start - b.start || a.order - b.order,
    )
  }

  #dropInsideMarks(found: readonly Match[], { text }: TextSegment): readonly Match[] {
    if (found.length === 0 || this.#markPattern === null) return found
    const marks = Array.from(text.matchAll(this.#markPattern), ({ index, 0: mark }) => {
      return { start: index, end: index + mark.length }
    })
    if (marks.length === 0) return found
    return found.filter(({ start, end }) => !marks.some((m) => start >= m.start && end <= m.end))
  }
}

export const toRedactionMark = (rule: string): string => `[redacted:${rule}]`

/** Marks with other ids do not match, because they could hide arbitrary text. */
export function createMarkPattern(rules: readonly string[]): RegExp | null {
  if (rules.length === 0) return null
  const ids = rules.map((rule) => rule.replaceAll(/[.-]/g, String.raw`\$&`))
  return new RegExp(String.raw`\[redacted:(?:${ids.join('|')})\]`, 'g')
}

const noRelease: ReleasedText = { text: '', isBlocked: false, hits: [] }
const blockedRelease: ReleasedText = { text: '', isBlocked: true, hits: [] }

function alignStepEnd(text: string, end: number): number {
  const last = text.charCodeAt(end - 1)
  return last >= 0xd8_00 && last <= 0xdb_ff ? end - 1 : Math.min(end, text.length)
}
