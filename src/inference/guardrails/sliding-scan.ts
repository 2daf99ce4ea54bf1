/** Runs matchers over a text that comes in pieces, in steps that depend on the text alone. */

import type { Found, Matcher } from './matchers.ts'
import type { GuardHit } from './rules.ts'

/**
 * Holds an answer back until what stands there can no longer become a match. However the text is
 * cut into pieces, all releases together are the same.
 */
export interface OutputGuard {
  push(text: string): Release
  /** The rest. Nothing may be pushed after it. */
  finish(): Release
}

export interface Release {
  /** May be shown now. */
  readonly release: string
  /** Once true, nothing is released anymore. */
  readonly isBlocked: boolean
  /** New ones; each rule hits once in a text. */
  readonly hits: readonly GuardHit[]
}

/**
 * Characters after a step that its matchers may look at: the longest match that is sure to be found
 * whole, and what an answer is held back by.
 */
const reach = 256
/** Characters before a step that stay visible, for words that stand across its border. */
const lookBack = 160

/**
 * A step judges the matches that begin in the next `stepChars` characters, once `reach` more have
 * come or the text has ended. Steps begin at the same places however the text was cut, and each
 * sees the same characters, so the outcome is the same too. Overlapping matches are redacted as
 * one.
 */
export class SlidingScan implements OutputGuard {
  readonly #matchers: readonly Matcher[]
  readonly #stepChars: number
  readonly #told = new Set<string>()
  /** The text from `lookBack` before the next step on. */
  #text = ''
  /** Where in `#text` the next step begins. */
  #at = 0
  /** Up to here, which may lie beyond `#at`, the text is redacted. */
  #covered = 0
  /** Finds the end of a redaction that is still open. */
  #closing: RegExp | null = null
  #isBlocked = false

  constructor(matchers: readonly Matcher[], stepChars: number) {
    this.#matchers = matchers
    this.#stepChars = stepChars
  }

  push(text: string): Release {
    this.#text += text
    return this.#run(this.#stepChars + reach)
  }

  finish(): Release {
    return this.#run(1)
  }

  /** Takes steps as long as `needed` characters lie ahead. */
  #run(needed: number): Release {
    const hits: GuardHit[] = []
    let [release, from] = ['', 0]
    while (!this.#isBlocked && this.#text.length - this.#at >= needed) {
      release += this.#step(from, hits)
      from = Math.max(0, this.#at - lookBack)
    }
    this.#text = this.#isBlocked ? '' : this.#text.slice(from)
    this.#at -= from
    this.#covered -= from
    return { release, isBlocked: this.#isBlocked, hits }
  }

  /** Judges one step, seeing the text from `from` on; gives what may be shown of it. */
  #step(from: number, hits: GuardHit[]): string {
    const begin = this.#at
    const end = stepEnd(this.#text, begin + this.#stepChars)
    const view = this.#text.slice(from, begin + this.#stepChars + reach)
    let release = ''
    this.#close(view, from, end)
    for (const { matcher, found } of this.#findAll(view, begin - from, end - from)) {
      const start = from + found.start
      const { rule, action } = matcher
      if (!this.#told.has(rule)) hits.push({ rule, action })
      this.#told.add(rule)
      if (action === 'flag') continue
      const isOpen = start >= this.#covered
      if (isOpen) release += this.#text.slice(Math.max(begin, this.#covered), start)
      if (action === 'reject') {
        this.#isBlocked = true
        return release
      }
      if (isOpen) release += `[redacted:${rule}]`
      this.#covered = Math.max(this.#covered, from + found.end)
      this.#closing ??= found.until
      this.#close(view, from, end)
    }
    this.#at = end
    return release + this.#text.slice(Math.max(begin, this.#covered), end)
  }

  /** Looks for the end of an open redaction; where it is not in view, the step is covered. */
  #close(view: string, from: number, end: number): void {
    if (this.#closing === null) return
    this.#closing.lastIndex = Math.max(this.#at, this.#covered) - from
    const close = this.#closing.exec(view)
    if (close !== null) this.#closing = null
    const covered = close === null ? end : from + close.index + close[0].length
    this.#covered = Math.max(this.#covered, covered)
  }

  /** In the order of the text; of those that begin together, in the order of the rules. */
  #findAll(
    view: string,
    begin: number,
    end: number,
  ): { readonly matcher: Matcher; readonly found: Found }[] {
    return this.#matchers
      .flatMap((matcher) => matcher.find(view, begin, end).map((found) => ({ matcher, found })))
      .toSorted((a, b) => a.found.start - b.found.start)
  }
}

/** Not between the halves of one character. */
function stepEnd(text: string, end: number): number {
  const last = text.charCodeAt(end - 1)
  return last >= 0xd800 && last <= 0xdbff ? end - 1 : Math.min(end, text.length)
}
