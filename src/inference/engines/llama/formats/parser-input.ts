/**
 * The output of a model while it is generated. Parsers are generators that pause when they need
 * more input. The result does not depend on how the output is split into pieces.
 */

import { partialMatchLength } from '../token-text.ts'

/** A parser, which pauses with `yield` until there is more input. */
export type ParseStep<T> = Generator<undefined, T, undefined>

export type Emit = (text: string) => void

export class ParserInput {
  /** Parsers keep this short while they wait, because V8 copies it when text is added. */
  #unreadText = ''
  #readTexts: string[] = []
  position = 0
  hasEnded = false
  isCut = false
  #attempts = 0
  #isPeeking = false

  push(text: string): void {
    this.#unreadText += text
  }

  end(isCut: boolean): void {
    this.hasEnded = true
    this.isCut = isCut
  }

  get hasPendingText(): boolean {
    return this.#isPeeking || this.#unreadText !== ''
  }

  get isAtEnd(): boolean {
    return this.hasEnded && this.#unreadText === ''
  }

  get rest(): string {
    return this.#unreadText
  }

  #take(length: number): string {
    const text = this.#unreadText.slice(0, length)
    this.#unreadText = this.#unreadText.slice(length)
    this.position += length
    if (this.#attempts > 0) this.#readTexts.push(text)
    return text
  }

  /** Runs a parser. If it returns `false`, resets the input to where the parser began. */
  *attempt(parse: () => ParseStep<boolean>): ParseStep<boolean> {
    const start = this.#readTexts.length
    this.#attempts++
    const isParsed = yield* parse()
    this.#attempts--
    if (!isParsed) {
      const text = this.#readTexts.splice(start).join('')
      this.#unreadText = text + this.#unreadText
      this.position -= text.length
    }
    if (this.#attempts === 0) this.#readTexts = []
    return isParsed
  }

  /** Runs a parser and returns its result, then resets the input to where the parser began. */
  *peek<T>(parse: () => ParseStep<T>): ParseStep<T | undefined> {
    let result: T | undefined
    this.#isPeeking = true
    yield* this.attempt(function* () {
      result = yield* parse()
      return false
    })
    this.#isPeeking = false
    return result
  }

  *more(): ParseStep<boolean> {
    if (this.hasEnded) return false
    yield
    return true
  }

  /** Like `until`, for a part of a call. Drops a mark that was cut off. */
  *partUntil(marks: readonly string[], emit: Emit): ParseStep<string | null> {
    return yield* this.until(marks, emit, true)
  }

  /** Emits the text before the next mark. Reads and returns the mark; `null` if there is none. */
  *until(marks: readonly string[], emit: Emit, isPart = false): ParseStep<string | null> {
    for (;;) {
      const rest = this.#unreadText
      const found = findFirstMark(rest, marks)
      const canGrow = found !== null && !this.hasEnded && isMarkPrefix(rest.slice(found.at), marks)
      if (found !== null && !canGrow) {
        emitText(emit, this.#take(found.at))
        this.#take(found.mark.length)
        return found.mark
      }
      const isLast = this.hasEnded && !(isPart && this.isCut)
      const kept = canGrow ? rest.length - found.at : isLast ? 0 : partialMatchLength(rest, marks)
      emitText(emit, this.#take(rest.length - kept))
      if (this.hasEnded) this.#take(kept)
      if (!(yield* this.more())) return null
    }
  }

  *textUntil(...marks: readonly string[]): ParseStep<{
    readonly text: string
    readonly mark: string | null
  }> {
    let text = ''
    const mark = yield* this.until(marks, (piece) => {
      text += piece
    })
    return { text, mark }
  }

  *accept(...marks: readonly string[]): ParseStep<string | null> {
    for (;;) {
      const rest = this.#unreadText
      const [found] = marks
        .filter((mark) => rest.startsWith(mark))
        .toSorted((one, other) => other.length - one.length)
      if (isMarkPrefix(rest, marks) && (yield* this.more())) continue
      if (found === undefined) return null
      this.#take(found.length)
      return found
    }
  }

  /** Whether a call begins here. `opening` is `mark` itself, or the opening of a list of calls. */
  *beginsCall(mark: string, opening: string): ParseStep<boolean> {
    if (opening === mark) return true
    yield* this.space()
    return (yield* this.accept(mark)) !== null
  }

  /** Returns whether the next character is one of the letters. Reads nothing. */
  *nextIs(letters: string): ParseStep<boolean> {
    while (this.#unreadText === '') if (!(yield* this.more())) return false
    return letters.includes(this.#unreadText[0] ?? '')
  }

  *space(): ParseStep<void> {
    for (;;) {
      this.#take(this.#unreadText.length - this.#unreadText.trimStart().length)
      if (this.#unreadText !== '' || !(yield* this.more())) return
    }
  }

  /** Reads any number of the marks, with white space between them. */
  *skip(...marks: readonly string[]): ParseStep<void> {
    for (;;) {
      yield* this.space()
      if ((yield* this.accept(...marks)) === null) return
    }
  }

  *word(letter: RegExp): ParseStep<string> {
    let word = ''
    for (;;) {
      let length = 0
      while (letter.test(this.#unreadText[length] ?? '')) length++
      word += this.#take(length)
      if (this.#unreadText !== '' || !(yield* this.more())) return word
    }
  }

  /** Reads one JSON value verbatim. Returns `false` if the output ends before the value does. */
  *json(emit: Emit): ParseStep<boolean> {
    const scanner = new JsonScanner()
    for (;;) {
      emitText(emit, this.#take(scanner.scan(this.#unreadText)))
      if (scanner.isDone) return true
      if (!(yield* this.more())) return scanner.isNumberOrWord
    }
  }
}

function emitText(emit: Emit, text: string): void {
  if (text !== '') emit(text)
}

const isMarkPrefix = (text: string, marks: readonly string[]): boolean =>
  marks.some((mark) => mark.length > text.length && mark.startsWith(text))

/** Searches growing prefixes, because a search for an absent mark scans the whole text. */
function findFirstMark(text: string, marks: readonly string[]): MarkPosition | null {
  const longest = marks.reduce((max, { length }) => Math.max(max, length), 0)
  for (let length = 256; length < text.length; length *= 2) {
    const found = findMarkIn(text.slice(0, length), marks)
    // A longer mark at the same position may extend beyond the prefix.
    if (found !== null && found.at + longest <= length) return found
  }
  return findMarkIn(text, marks)
}

/** Returns the first mark in the text. Among marks at the same position, returns the longest. */
function findMarkIn(text: string, marks: readonly string[]): MarkPosition | null {
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

class JsonScanner {
  isDone = false
  #depth = 0
  #isText = false
  #isEscaped = false
  #hasBegun = false

  /** Whether the value is a number or a word, which may be complete when the output ends. */
  get isNumberOrWord(): boolean {
    return this.#hasBegun && this.#depth === 0 && !this.#isText
  }

  scan(text: string): number {
    for (let at = 0; at < text.length; at++) {
      const letter = text[at] ?? ''
      if (this.isNumberOrWord && !/[\w.+-]/.test(letter)) {
        this.isDone = true
        return at
      }
      this.#take(letter)
      if (this.isDone) return at + 1
    }
    return text.length
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
