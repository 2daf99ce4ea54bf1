/**
 * Lets a program print while a block is drawn on its terminal: replaces `write` of its streams, so
 * that the block is removed first and drawn again below the text.
 */

import { stripVTControlCharacters } from 'node:util'
import { displayWidth } from '../../foundation/text/display-width.ts'
import { escapeControls } from '../../views/readable.ts'

/** The part of `process.stdout` and `process.stderr` that is used here. */
export interface PrintStream {
  readonly isTTY?: boolean
  readonly writable?: boolean
  write: Write
}

type WriteCallback = (error?: Error | null) => void
type WriteArguments = readonly (BufferEncoding | WriteCallback | undefined)[]
type Write = NodeJS.WriteStream['write']

/**
 * The maximum length of an unfinished line. A longer one is printed before its line break arrives.
 */
const maxLineLength = 16_384
const lineFeed = 10

export interface PrintListener {
  beforeText(): void
  onPart(): void
}

/**
 * Prints the program's text in whole lines. The start of a line is kept until the line break is
 * written or `release` is called. Until then, the block shows it, so that it is not lost if the
 * process is killed. Text that bypasses `write`, such as the output of a child process on the same
 * terminal, is not noticed.
 */
export class PrintedAbove {
  readonly #streams: readonly ReplacedStream[]
  #isPassingThrough = false

  constructor(streams: readonly PrintStream[], listener: PrintListener) {
    const isPassed = (): boolean => this.#isPassingThrough
    this.#streams = streams.map((stream) => new ReplacedStream(stream, isPassed, listener))
  }

  /**
   * Returns the unfinished lines, as a terminal shows them. A line that is wider than `width` is
   * printed instead, with a line break that the program did not write.
   */
  parts(width: number): string[] {
    return this.#streams.map((stream) => stream.showPart(width)).filter((part) => part !== '')
  }

  get hasParts(): boolean {
    return this.#streams.some(({ hasPart }) => hasPart)
  }

  /** Calls `write`. The text that it writes belongs to the block and is not changed. */
  passThrough(write: () => void): void {
    this.#isPassingThrough = true
    try {
      write()
    } finally {
      this.#isPassingThrough = false
    }
  }

  release(): void {
    for (const stream of this.#streams) stream.restore()
    for (const stream of this.#streams) stream.writeRest(this.#streams)
  }
}

class ReplacedStream {
  readonly #stream: PrintStream
  readonly #listener: PrintListener
  readonly #write: Write
  readonly #hadWriteProperty: boolean
  readonly #replacement: Write
  #heldBytes: Uint8Array = new Uint8Array()
  #isReleased = false

  constructor(stream: PrintStream, isPassed: () => boolean, listener: PrintListener) {
    this.#stream = stream
    this.#listener = listener
    this.#write = stream.write
    this.#hadWriteProperty = Object.hasOwn(stream, 'write')
    this.#replacement = (chunk: string | Uint8Array, ...rest: WriteArguments) => {
      const isText = typeof chunk === 'string' || chunk instanceof Uint8Array
      // Anything but text goes to the stream, which rejects it.
      if (this.#isReleased || isPassed() || !isText) {
        return Reflect.apply(this.#write, stream, [chunk, ...rest]) as boolean
      }
      const whole = this.#takeLines(toBytes(chunk, rest[0]))
      if (whole.length > 0) listener.beforeText()
      // Writes even empty text, so that its callback is called.
      const callback = rest.find((one): one is WriteCallback => typeof one === 'function')
      const hasRoom = this.#write.call(stream, whole, undefined, callback)
      if (this.hasPart) listener.onPart()
      return hasRoom
    }
    stream.write = this.#replacement
  }

  #takeLines(bytes: Uint8Array): Uint8Array {
    const end = bytes.lastIndexOf(lineFeed) + 1
    const whole =
      end === 0 ? bytes.subarray(0, 0) : Buffer.concat([this.#heldBytes, bytes.subarray(0, end)])
    // Copied, because the caller may reuse its buffer.
    this.#heldBytes = Buffer.concat(end === 0 ? [this.#heldBytes, bytes] : [bytes.subarray(end)])
    return this.#heldBytes.length <= maxLineLength
      ? whole
      : Buffer.concat([whole, this.#takePart()])
  }

  /** Removes and returns the unfinished line with a line break, so that the block starts below. */
  #takePart(): Uint8Array {
    const end = completeLength(this.#heldBytes)
    const part = Buffer.concat([this.#heldBytes.subarray(0, end), Uint8Array.of(lineFeed)])
    this.#heldBytes = this.#heldBytes.subarray(end)
    return part
  }

  get hasPart(): boolean {
    return this.#heldBytes.length > 0
  }

  get isWritable(): boolean {
    return this.#stream.writable !== false
  }

  showPart(width: number): string {
    const text = toShownText(this.#heldBytes)
    if (displayWidth(text) <= width || !this.isWritable) return text
    this.#listener.beforeText()
    this.#write.call(this.#stream, this.#takePart())
    return ''
  }

  restore(): void {
    if (this.#isReleased) return
    this.#isReleased = true
    // If other code has replaced `write` since, `#replacement` stays and passes everything through.
    if (this.#stream.write === this.#replacement) {
      if (this.#hadWriteProperty) this.#stream.write = this.#write
      else Reflect.deleteProperty(this.#stream, 'write')
    }
  }

  /**
   * Writes the unfinished line, if there is one. If the program has ended this stream, uses another
   * stream on the same terminal.
   */
  writeRest(others: readonly ReplacedStream[]): void {
    const target = [this, ...others].find(({ isWritable }) => isWritable)
    if (this.hasPart && target !== undefined) target.#write.call(target.#stream, this.#heldBytes)
    this.#heldBytes = new Uint8Array()
  }
}

/** Returns what a terminal shows of a line. Parts of the line may have been overwritten. */
function toShownText(bytes: Uint8Array): string {
  const text = Buffer.from(bytes.subarray(0, completeLength(bytes))).toString()
  const latest = stripVTControlCharacters(text)
    .split('\r')
    .findLast((part) => part !== '')
  return escapeControls((latest ?? '').replaceAll('\t', '    '))
}

/** The number of bytes without an incomplete UTF-8 character at the end. */
function completeLength(bytes: Uint8Array): number {
  const start = bytes.findLastIndex((byte) => (byte & 0xc0) !== 0x80)
  const first = bytes[start] ?? 0
  const length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1
  return start !== -1 && start + length > bytes.length ? start : bytes.length
}

const toBytes = (chunk: string | Uint8Array, encoding: WriteArguments[number]): Uint8Array =>
  typeof chunk === 'string'
    ? Buffer.from(chunk, typeof encoding === 'string' ? encoding : 'utf8')
    : chunk
