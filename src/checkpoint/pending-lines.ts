/** The writer's buffer of lines that are not yet in the file; the oldest may be dropped. */

/** The maximum size of one write: a killed process rarely tears a small write. */
export const chunkBytes = 65_536

/** The next bytes for the file: whole lines, unless one line alone is longer than a chunk. */
export interface Slice {
  readonly bytes: Buffer
  readonly offset: number
  readonly length: number
}

interface Chunk {
  readonly bytes: Buffer
  start: number
  readonly end: number
  lines: number
}

const newline = 0x0a
/** UTF-8 needs at most three bytes per UTF-16 unit. */
const bytesPerUnit = 3

export class PendingLines {
  /** Concatenation is lazy and encoding has a cost per call: one call per chunk is fastest. */
  #text = ''
  #textLines = 0
  #chunks: Chunk[] = []
  #encodedBytes = 0
  #lines = 0
  /** Whether the first chunk begins inside a line whose first part is already in the file. */
  #isHalfWritten = false
  #spare: Buffer | undefined = Buffer.allocUnsafeSlow(chunkBytes * bytesPerUnit)

  /** The number of lines that are not completely in the file. */
  get lines(): number {
    return this.#lines
  }

  /** Whether a full chunk is ready to be written. */
  get hasChunk(): boolean {
    return this.#chunks.length > 0
  }

  append(line: string): void {
    if (this.#text.length + line.length > chunkBytes) this.#encode()
    this.#text += line
    this.#textLines++
    this.#lines++
  }

  /** The bytes to write next: only full chunks, or also lines that do not fill a chunk yet. */
  next(which: 'chunks' | 'all'): Slice | undefined {
    if (which === 'all' && this.#chunks.length === 0) this.#encode()
    const head = this.#chunks[0]
    if (head === undefined) return undefined
    return { bytes: head.bytes, offset: head.start, length: sliceLength(head) }
  }

  /** Removes `written` bytes from the front; returns the number of lines that this completed. */
  advance(written: number): number {
    const head = this.#chunks[0]
    if (head === undefined) return 0
    const from = head.start
    head.start += written
    this.#encodedBytes -= written
    const isDone = head.start === head.end
    const completed = isDone ? head.lines : countNewlines(head.bytes, from, head.start)
    head.lines -= completed
    this.#lines -= completed
    this.#isHalfWritten = !isDone && head.bytes[head.start - 1] !== newline
    if (isDone) this.#remove(0)
    return completed
  }

  /**
   * Drops the oldest whole lines until at most `lines` and `bytes` are left; returns how many were
   * dropped. Keeps the rest of a half-written line, so that the next line starts on a new line.
   */
  trim(limit: { readonly lines: number; readonly bytes: number }): number {
    let dropped = 0
    while (this.#lines > limit.lines || this.#encodedBytes + this.#text.length > limit.bytes) {
      if (!this.#dropOldest()) break
      dropped++
    }
    return dropped
  }

  /** Drops everything, including a half-written line. */
  clear(): void {
    this.#text = ''
    this.#textLines = 0
    this.#chunks = []
    this.#encodedBytes = 0
    this.#lines = 0
    this.#isHalfWritten = false
  }

  #dropOldest(): boolean {
    if (this.#isHalfWritten) this.#isolateHead()
    const index = this.#isHalfWritten ? 1 : 0
    if (this.#chunks.length <= index) this.#encode()
    const chunk = this.#chunks[index]
    if (chunk === undefined) return false
    const next = chunk.lines === 1 ? chunk.end : endOfLine(chunk)
    this.#encodedBytes -= next - chunk.start
    chunk.start = next
    chunk.lines--
    this.#lines--
    if (chunk.lines === 0) this.#remove(index)
    return true
  }

  /** Moves the half-written line into its own chunk, so that the lines after it can be dropped. */
  #isolateHead(): void {
    const head = this.#chunks[0]
    if (head === undefined || head.lines === 1) return
    const end = endOfLine(head)
    this.#chunks.unshift({ bytes: head.bytes, start: head.start, end, lines: 1 })
    head.start = end
    head.lines--
  }

  #encode(): void {
    if (this.#textLines === 0) return
    const chunk = this.#toChunk(this.#text, this.#textLines)
    this.#chunks.push(chunk)
    this.#encodedBytes += chunk.end
    this.#text = ''
    this.#textLines = 0
  }

  #toChunk(text: string, lines: number): Chunk {
    const spare = this.#spare
    if (spare === undefined || text.length > chunkBytes) {
      const bytes = Buffer.from(text)
      return { bytes, start: 0, end: bytes.length, lines }
    }
    this.#spare = undefined
    return { bytes: spare, start: 0, end: spare.write(text), lines }
  }

  #remove(index: number): void {
    const [chunk] = this.#chunks.splice(index, 1)
    if (chunk === undefined || chunk.bytes.length !== chunkBytes * bytesPerUnit) return
    if (this.#chunks.every((other) => other.bytes !== chunk.bytes)) this.#spare = chunk.bytes
  }
}

function sliceLength(chunk: Chunk): number {
  const size = chunk.end - chunk.start
  if (size <= chunkBytes) return size
  const last = chunk.bytes.lastIndexOf(newline, chunk.start + chunkBytes - 1)
  return last < chunk.start ? chunkBytes : last + 1 - chunk.start
}

function endOfLine(chunk: Chunk): number {
  const at = chunk.bytes.indexOf(newline, chunk.start)
  return at < 0 || at >= chunk.end ? chunk.end : at + 1
}

function countNewlines(bytes: Buffer, from: number, to: number): number {
  let count = 0
  for (
    let at = bytes.indexOf(newline, from);
    at >= 0 && at < to;
    at = bytes.indexOf(newline, at + 1)
  ) {
    count++
  }
  return count
}
