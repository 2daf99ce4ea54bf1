/** Cuts bytes into lines at 0x0A alone, with bounded memory. It neither reads nor parses. */

/** Where a line begins. */
export interface LinePlace {
  /** 1 for the first. */
  readonly line: number
  /** In bytes. */
  readonly offset: number
}

/** Takes a line without its newline; `null` stands for one that was too long to keep. */
type LineVisitor = (text: string | null, line: number, offset: number) => void

const newline = 0x0a
const byteOrderMark = '\uFEFF'

/** Holds at most the line that the last chunk left open. Invalid UTF-8 is replaced, not refused. */
export class LineSplitter {
  readonly #maxLineBytes: number
  readonly #visit: LineVisitor
  #parts: Buffer[] = []
  #openBytes = 0
  #line = 1
  #offset = 0

  constructor(maxLineBytes: number, visit: LineVisitor) {
    this.#maxLineBytes = maxLineBytes
    this.#visit = visit
  }

  /** Visits every line that ends in this chunk; the chunk may be reused afterwards. */
  push(chunk: Buffer): void {
    let start = 0
    for (;;) {
      const end = chunk.indexOf(newline, start)
      if (end < 0) break
      this.#finish(chunk, start, end)
      start = end + 1
    }
    this.#keep(chunk.subarray(start))
  }

  /** The last line when no newline ended it; `undefined` when one did. */
  end(): { readonly text: string | null; readonly place: LinePlace } | undefined {
    if (this.#openBytes === 0) return undefined
    const place = { line: this.#line, offset: this.#offset }
    return { text: this.#isTooLong(this.#openBytes) ? null : this.#joined(), place }
  }

  #finish(chunk: Buffer, start: number, end: number): void {
    const size = this.#openBytes + end - start
    this.#visit(this.#textOf(chunk, start, end, size), this.#line, this.#offset)
    this.#line++
    this.#offset += size + 1
    this.#openBytes = 0
    this.#parts = []
  }

  #textOf(chunk: Buffer, start: number, end: number, size: number): string | null {
    if (this.#isTooLong(size)) return null
    if (this.#parts.length === 0) return this.#withoutMark(chunk.toString('utf8', start, end))
    this.#parts.push(chunk.subarray(start, end))
    return this.#joined()
  }

  #keep(rest: Buffer): void {
    if (rest.length === 0) return
    this.#openBytes += rest.length
    if (this.#isTooLong(this.#openBytes)) this.#parts = []
    else this.#parts.push(Buffer.from(rest))
  }

  #joined(): string {
    return this.#withoutMark(Buffer.concat(this.#parts).toString('utf8'))
  }

  #withoutMark(text: string): string {
    return this.#offset === 0 && text.startsWith(byteOrderMark) ? text.slice(1) : text
  }

  #isTooLong(bytes: number): boolean {
    return bytes > this.#maxLineBytes
  }
}
