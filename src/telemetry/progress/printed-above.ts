/**
 * Lets a program print while a block is drawn on its terminal: replaces `write` of its streams, so
 * that the block is removed first and drawn again below the text.
 */

/** The part of `process.stdout` and `process.stderr` that is used here. */
export interface PrintStream {
  readonly isTTY?: boolean
  write: Write
}

type Done = (error?: Error | null) => void
/** The arguments of `write` after the text. */
type Rest = readonly (BufferEncoding | Done | undefined)[]
type Write = NodeJS.WriteStream['write']

/** A longer line is printed before its end is known. */
const longestLine = 16_384
const lineFeed = 10

/**
 * Text appears in whole lines: a part of a line is kept until its line break, or until `release`.
 * Text that does not go through `write`, as that of a child process with the same terminal, is not
 * noticed.
 */
export class PrintedAbove {
  readonly #streams: readonly HeldStream[]
  readonly #beforeText: () => void
  #isOwn = false

  /** Calls `beforeText` each time before text is printed. */
  constructor(streams: readonly PrintStream[], beforeText: () => void) {
    this.#beforeText = beforeText
    this.#streams = streams.map((stream) => {
      const isPassed = (): boolean => this.#isOwn
      return new HeldStream(stream, isPassed, () => this.#beforeText())
    })
  }

  /** What `write` writes belongs to the block and is passed through. */
  passThrough(write: () => void): void {
    this.#isOwn = true
    try {
      write()
    } finally {
      this.#isOwn = false
    }
  }

  /** Restores the streams and writes what was kept. */
  release(): void {
    for (const stream of this.#streams) stream.release()
  }
}

/** One stream, and the beginning of a line whose end was not written yet. */
class HeldStream {
  readonly #stream: PrintStream
  readonly #write: Write
  readonly #hadOwnWrite: boolean
  readonly #replacement: Write
  #held: Uint8Array = new Uint8Array()
  #isReleased = false

  constructor(stream: PrintStream, isPassed: () => boolean, beforeText: () => void) {
    this.#stream = stream
    this.#write = stream.write
    this.#hadOwnWrite = Object.hasOwn(stream, 'write')
    this.#replacement = (chunk: string | Uint8Array, ...rest: Rest) => {
      const isText = typeof chunk === 'string' || chunk instanceof Uint8Array
      // The stream itself refuses what is not text.
      if (this.#isReleased || isPassed() || !isText) {
        return Reflect.apply(this.#write, stream, [chunk, ...rest]) as boolean
      }
      const whole = this.#takeLines(toBytes(chunk, rest[0]))
      if (whole.length > 0) beforeText()
      // Also without text, for the callback.
      const done = rest.find((one): one is Done => typeof one === 'function')
      return this.#write.call(stream, whole, undefined, done)
    }
    stream.write = this.#replacement
  }

  /** The lines that are complete now. */
  #takeLines(bytes: Uint8Array): Uint8Array {
    const end = bytes.lastIndexOf(lineFeed) + 1
    const whole =
      end === 0 ? bytes.subarray(0, 0) : Buffer.concat([this.#held, bytes.subarray(0, end)])
    // Copied, because the caller may change its bytes.
    this.#held = Buffer.concat(end === 0 ? [this.#held, bytes] : [bytes.subarray(end)])
    if (this.#held.length <= longestLine) return whole
    // The block begins on a line of its own.
    const all = Buffer.concat([whole, this.#held, Uint8Array.of(lineFeed)])
    this.#held = new Uint8Array()
    return all
  }

  release(): void {
    if (this.#isReleased) return
    this.#isReleased = true
    // If something else has replaced `write` since, the replacement passes everything through.
    if (this.#stream.write === this.#replacement) {
      if (this.#hadOwnWrite) this.#stream.write = this.#write
      else Reflect.deleteProperty(this.#stream, 'write')
    }
    if (this.#held.length > 0) this.#write.call(this.#stream, this.#held)
  }
}

const toBytes = (chunk: string | Uint8Array, encoding: Rest[number]): Uint8Array =>
  typeof chunk === 'string'
    ? Buffer.from(chunk, typeof encoding === 'string' ? encoding : 'utf8')
    : chunk
