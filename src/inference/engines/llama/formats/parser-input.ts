/**
 * The output of a model while it is generated. Parsers are generators that read it sequentially and
 * pause if they need more. The result does not depend on how the output is split into pieces.
 */

import { maxBeginningLength } from '../token-text.ts'

/** A parser. It pauses with `yield` until there is more input. */
export type Step<T> = Generator<undefined, T, undefined>

export type Emit = (text: string) => void

export class ParserInput {
  /** The unread text. Short while the parser waits, because V8 copies it then. */
  #rest = ''
  /** The text that was read during running attempts, for backtracking. */
  #read: string[] = []
  #position = 0
  #hasEnded = false
  #isCut = false
  #attempts = 0
  #isPeeking = false

  push(text: string): void {
    this.#rest += text
  }

  /** `isCut` means that the output was cut off. */
  end(isCut: boolean): void {
    this.#hasEnded = true
    this.#isCut = isCut
  }

  /** Whether the output was cut off, so that the model would have written more. */
  get isCut(): boolean {
    return this.#isCut
  }

  get hasEnded(): boolean {
    return this.#hasEnded
  }

  /** Whether there is text that is unread, or that was read only as an attempt. */
  get isHolding(): boolean {
    return this.#isPeeking || this.#rest !== ''
  }

  /** Whether everything was read and no more input will come. */
  get isAtEnd(): boolean {
    return this.#hasEnded && this.#rest === ''
  }

  /** The unread text. */
  get rest(): string {
    return this.#rest
  }

  /** The number of characters that were read. */
  get position(): number {
    return this.#position
  }

  #take(length: number): string {
    const text = this.#rest.slice(0, length)
    this.#rest = this.#rest.slice(length)
    this.#position += length
    if (this.#attempts > 0) this.#read.push(text)
    return text
  }

  /** Runs a parser. If it returns `false`, the input is reset to where the parser began. */
  *attempt(parse: () => Step<boolean>): Step<boolean> {
    const start = this.#read.length
    this.#attempts++
    const isIt = yield* parse()
    this.#attempts--
    if (!isIt) this.#goBack(start)
    if (this.#attempts === 0) this.#read = []
    return isIt
  }

  #goBack(start: number): void {
    const text = this.#read.splice(start).join('')
    this.#rest = text + this.#rest
    this.#position -= text.length
  }

  /** Runs a parser for its result only, and resets the input to where it began. */
  *peek<T>(parse: () => Step<T>): Step<T | undefined> {
    let result: T | undefined
    this.#isPeeking = true
    yield* this.attempt(function* () {
      result = yield* parse()
      return false
    })
    this.#isPeeking = false
    return result
  }

  /** Waits for more input. Returns `false` at the end of the output. */
  *more(): Step<boolean> {
    if (this.#hasEnded) return false
    yield
    return true
  }

  /**
   * Like `until`, for a part of a call: if the output is cut off, an incomplete mark is dropped.
   */
  *partUntil(marks: readonly string[], emit: Emit): Step<string | null> {
    return yield* this.until(marks, emit, true)
  }

  /** Reads up to and including the first of the marks. Returns `null` if the output ends before. */
  *until(marks: readonly string[], emit: Emit, isPart = false): Step<string | null> {
    for (;;) {
      const rest = this.#rest
      const found = firstOf(rest, marks)
      const canGrow = found !== null && !this.#hasEnded && begins(rest.slice(found.at), marks)
      if (found !== null && !canGrow) {
        emitIf(emit, this.#take(found.at))
        this.#take(found.mark.length)
        return found.mark
      }
      const isLast = this.#hasEnded && !(isPart && this.#isCut)
      const kept = canGrow ? rest.length - found.at : isLast ? 0 : maxBeginningLength(rest, marks)
      emitIf(emit, this.#take(rest.length - kept))
      if (this.#hasEnded) this.#take(kept)
      if (!(yield* this.more())) return null
    }
  }

  /** The text before the first of the marks. `mark` is `null` if the output ended before. */
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

  /** Reads one of the marks if it comes next, otherwise returns `null`. */
  *accept(...marks: readonly string[]): Step<string | null> {
    for (;;) {
      const rest = this.#rest
      const found = marks.filter((mark) => rest.startsWith(mark)).toSorted(byLength)[0]
      if (begins(rest, marks) && (yield* this.more())) continue
      if (found === undefined) return null
      this.#take(found.length)
      return found
    }
  }

  /** Whether a call begins: its mark was the opening, or follows the opening of a list. */
  *beginsCall(mark: string, opening: string): Step<boolean> {
    if (opening === mark) return true
    yield* this.space()
    return (yield* this.accept(mark)) !== null
  }

  /** Whether one of the letters comes next. Reads nothing. */
  *nextIs(letters: string): Step<boolean> {
    while (this.#rest === '') if (!(yield* this.more())) return false
    return letters.includes(this.#rest[0] ?? '')
  }

  *space(): Step<void> {
    for (;;) {
      this.#take(this.#rest.length - this.#rest.trimStart().length)
      if (this.#rest !== '' || !(yield* this.more())) return
    }
  }

  /** Reads any number of the marks, with white space between them. */
  *skip(...marks: readonly string[]): Step<void> {
    for (;;) {
      yield* this.space()
      if ((yield* this.accept(...marks)) === null) return
    }
  }

  /** Reads letters as long as they match. */
  *word(letter: RegExp): Step<string> {
    let word = ''
    for (;;) {
      let length = 0
      while (letter.test(this.#rest[length] ?? '')) length++
      word += this.#take(length)
      if (this.#rest !== '' || !(yield* this.more())) return word
    }
  }

  /** Reads one JSON value verbatim. Returns `false` if the output ends before the value does. */
  *json(emit: Emit): Step<boolean> {
    const scanner = new JsonScanner()
    for (;;) {
      emitIf(emit, this.#take(scanner.scan(this.#rest)))
      if (scanner.isDone) return true
      if (!(yield* this.more())) return scanner.isNumberOrWord
    }
  }
}

const byLength = (one: string, other: string): number => other.length - one.length

function emitIf(emit: Emit, text: string): void {
  if (text !== '') emit(text)
}

/** Whether the text is the beginning of a longer mark. */
const begins = (text: string, marks: readonly string[]): boolean =>
  marks.some((mark) => mark.length > text.length && mark.startsWith(text))

/**
 * The first of the marks in a text. Searching the whole text for each mark would repeatedly scan it
 * for absent marks, so prefixes of growing length are searched instead.
 */
function firstOf(text: string, marks: readonly string[]): MarkPosition | null {
  const longest = marks.reduce((max, { length }) => Math.max(max, length), 0)
  for (let length = 256; length < text.length; length *= 2) {
    const found = firstIn(text.slice(0, length), marks)
    // A longer mark at the same position may extend beyond the prefix.
    if (found !== null && found.at + longest <= length) return found
  }
  return firstIn(text, marks)
}

/** If several marks are at the same position, the longest is returned. */
function firstIn(text: string, marks: readonly string[]): MarkPosition | null {
  let best: MarkPosition | null = null
  for (const mark of marks) {
    const at = text.indexOf(mark)
    if (at === -1 || (best !== null && at > best.at)) continue
    if (best === null || at < best.at || mark.length > best.mark.length) best = { at, mark }
  }
  return best
}

interface MarkPosition {
  readonly at: number
  readonly mark: string
}

/** Finds the end of a JSON value. */
class JsonScanner {
  isDone = false
  #depth = 0
  #isText = false
  #isEscaped = false
  #hasBegun = false

  /** Whether the value has no brackets or quotes, so that the end of the output may complete it. */
  get isNumberOrWord(): boolean {
    return this.#hasBegun && this.#depth === 0 && !this.#isText
  }

  /** The number of characters of the text that belong to the value. */
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

  /** A number or a word ends before the next character that cannot belong to it. */
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
