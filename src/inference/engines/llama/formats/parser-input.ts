/**
 * The output of a model while it is generated. Parsers are generators that read it from the
 * beginning to the end, and pause where more of it is needed: however it is cut, they do the same.
 */

import { longestBeginning } from '../token-text.ts'

/** A parser: pauses with `yield` until there is more input. */
export type Step<T> = Generator<undefined, T, undefined>

export type Emit = (text: string) => void

export class ParserInput {
  #buffer = ''
  #at = 0
  #hasEnded = false
  #isCut = false
  /** What a rewind may go back to is kept. */
  #bookmarks = 0

  push(text: string): void {
    if (this.#bookmarks === 0) {
      this.#buffer = this.rest
      this.#at = 0
    }
    this.#buffer += text
  }

  /** `isCut`: it did not end by itself. */
  end(isCut: boolean): void {
    this.#hasEnded = true
    this.#isCut = isCut
  }

  /** The output has ended, and the model would have written more. */
  get isCut(): boolean {
    return this.#isCut
  }

  get hasEnded(): boolean {
    return this.#hasEnded
  }

  /** What has not been read. */
  get rest(): string {
    return this.#buffer.slice(this.#at)
  }

  /** Runs a parser that may find out that this is something else: `false` goes back. */
  *attempt(parse: () => Step<boolean>): Step<boolean> {
    const start = this.#at
    this.#bookmarks++
    const isIt = yield* parse()
    this.#bookmarks--
    if (!isIt) this.#at = start
    return isIt
  }

  /** `false` at the end. */
  *more(): Step<boolean> {
    if (this.#hasEnded) return false
    yield
    return true
  }

  /** The same for a part of a call: the beginning of a mark where the output is cut is left out. */
  *partUntil(marks: readonly string[], emit: Emit): Step<string | null> {
    return yield* this.until(marks, emit, true)
  }

  /** Reads up to the first of the marks and over it; `null` if the output ends before. */
  *until(marks: readonly string[], emit: Emit, isPart = false): Step<string | null> {
    for (;;) {
      const { rest } = this
      const found = firstOf(rest, marks)
      if (found !== null) {
        emitIf(emit, rest.slice(0, found.at))
        this.#at += found.at + found.mark.length
        return found.mark
      }
      const isLast = this.#hasEnded && !(isPart && this.#isCut)
      const kept = isLast ? 0 : longestBeginning(rest, marks)
      emitIf(emit, rest.slice(0, rest.length - kept))
      this.#at += this.#hasEnded ? rest.length : rest.length - kept
      if (!(yield* this.more())) return null
    }
  }

  /** The text up to the mark; `isWhole` is false if the output ended before. */
  *textUntil(...marks: readonly string[]): Step<{
    readonly text: string
    readonly mark: string | null
  }> {
    let text = ''
    const mark = yield* this.until(marks, (piece) => {
      text += piece
    })
    return { text, mark }
  }

  /** Reads one of the marks, if it comes next. */
  *accept(...marks: readonly string[]): Step<string | null> {
    for (;;) {
      const { rest } = this
      const found = marks.filter((mark) => rest.startsWith(mark)).toSorted(byLength)[0]
      const canGrow = marks.some((mark) => mark.length > rest.length && mark.startsWith(rest))
      if (canGrow && (yield* this.more())) continue
      if (found === undefined) return null
      this.#at += found.length
      return found
    }
  }

  /** Whether one of the letters comes next; nothing is read. */
  *nextIs(letters: string): Step<boolean> {
    while (this.rest === '') if (!(yield* this.more())) return false
    return letters.includes(this.rest[0] ?? '')
  }

  *space(): Step<void> {
    for (;;) {
      const { rest } = this
      const text = rest.trimStart()
      this.#at += rest.length - text.length
      if (text !== '' || !(yield* this.more())) return
    }
  }

  /** Reads letters as long as they fit. */
  *word(letter: RegExp): Step<string> {
    let word = ''
    for (;;) {
      const next = this.#buffer[this.#at]
      if (next === undefined) {
        if (!(yield* this.more())) return word
      } else if (letter.test(next)) {
        word += next
        this.#at++
      } else return word
    }
  }

  /** Reads one value of JSON as it is written; `false` if the output ends before its end. */
  *json(emit: Emit): Step<boolean> {
    const scanner = new JsonScanner()
    for (;;) {
      const { rest } = this
      const length = scanner.scan(rest)
      emitIf(emit, rest.slice(0, length))
      this.#at += length
      if (scanner.isDone) return true
      if (!(yield* this.more())) return scanner.isNumberOrWord
    }
  }

  /** Reads everything that is left. */
  *all(emit: Emit): Step<void> {
    yield* this.until([], emit)
  }
}

const byLength = (one: string, other: string): number => other.length - one.length

function emitIf(emit: Emit, text: string): void {
  if (text !== '') emit(text)
}

function firstOf(text: string, marks: readonly string[]) {
  let best: { readonly at: number; readonly mark: string } | null = null
  for (const mark of marks) {
    const at = text.indexOf(mark)
    if (at !== -1 && (best === null || at < best.at)) best = { at, mark }
  }
  return best
}

/** Finds the end of a value of JSON. */
class JsonScanner {
  isDone = false
  #depth = 0
  #isText = false
  #isEscaped = false
  #hasBegun = false

  /** Without brackets or quotes, its end is that of the output. */
  get isNumberOrWord(): boolean {
    return this.#hasBegun && this.#depth === 0 && !this.#isText
  }

  /** How many characters belong to the value. */
  scan(text: string): number {
    for (let at = 0; at < text.length; at++) {
      const letter = text[at] ?? ''
      if (this.#endsBefore(letter)) {
        this.isDone = true
        return at
      }
      this.#take(letter)
      if (this.isDone) return at + 1
    }
    return text.length
  }

  /** A number or a word ends before what follows it. */
  #endsBefore(letter: string): boolean {
    if (!this.isNumberOrWord) return false
    return !/[\w.+-]/.test(letter)
  }

  #take(letter: string): void {
    if (this.#isText) {
      if (this.#isEscaped) this.#isEscaped = false
      else if (letter === '\\') this.#isEscaped = true
      else if (letter === '"') {
        this.#isText = false
        this.isDone = this.#depth === 0
      }
      return
    }
    if (letter.trim() === '' && !this.#hasBegun) return
    this.#hasBegun = true
    if (letter === '"') this.#isText = true
    else if (letter === '{' || letter === '[') this.#depth++
    else if (letter === '}' || letter === ']') this.isDone = --this.#depth <= 0
  }
}
