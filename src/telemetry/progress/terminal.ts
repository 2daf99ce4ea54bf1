/** Text on a terminal: a block of lines that is redrawn in place, and escaped untrusted text. */

import { stripVTControlCharacters } from 'node:util'
import { displayWidth } from '../../foundation/text/display-width.ts'
import { cutText } from '../../views/readable.ts'

export interface Terminal {
  write(text: string): unknown
  /** Calls back when the bytes are written or can no longer be written. */
  writeBytes?(bytes: string | Uint8Array, done: () => void): void
  /** Whether the stream understands cursor codes. */
  readonly isTTY?: boolean
  /**
   * The width in columns, even of a terminal that does not understand cursor codes; 0 if unknown.
   */
  readonly columns?: number
  readonly rows?: number
  readonly closedSignal?: AbortSignal
}

/** Redraws lines in place on a terminal; elsewhere prints each block, as one line if possible. */
export class ProgressBlock {
  readonly #terminal: Terminal
  #drawn = 0

  constructor(terminal: Terminal) {
    this.#terminal = terminal
  }

  /**
   * The number of columns that a line may use; `Infinity` without a terminal. The last column stays
   * free, because some terminals wrap when it is filled.
   */
  get width(): number {
    const { isTTY, columns = 0 } = this.#terminal
    if (isTTY !== true && columns === 0) return Infinity
    // Some terminals report 0 columns.
    return Math.max(1, (columns || 80) - 1)
  }

  get isRedrawn(): boolean {
    return this.#terminal.isTTY === true
  }

  get maxLines(): number {
    const { rows = 0 } = this.#terminal
    return this.isRedrawn ? Math.max(1, (rows || 24) - 2) : Infinity
  }

  draw(lines: readonly string[]): void {
    const { width } = this
    if (width === Infinity) {
      this.#terminal.write(`${lines.join(' | ')}\n`)
      return
    }
    const cut = lines.map((line) => fitLine(line, width))
    this.#terminal.write(`${this.#rewind}${cut.map((line) => `${line}\n`).join('')}`)
    this.#drawn = cut.length
  }

  clear(): void {
    if (this.#rewind !== '') this.#terminal.write(this.#rewind)
    this.#drawn = 0
  }

  /**
   * The text that moves the cursor to the first line of the last block and clears the screen from
   * there. The first line is cleared separately: when a screen is cleared from its first cell on,
   * tmux copies it into the scroll-back. The cursor may be in any column, because a terminal echoes
   * keys such as `^C`.
   */
  get #rewind(): string {
    if (this.#drawn === 0 || !this.isRedrawn) return ''
    return `\r\u001B[${this.#drawn}A\u001B[K\u001B[B\u001B[J\u001B[A`
  }

  /** Called when other text was printed. The next block is drawn below that text. */
  detach(): void {
    this.#drawn = 0
  }
}

/** Cuts a line and marks the cut with `…`: a wrapped line would break redrawing. */
function fitLine(line: string, width: number): string {
  const plain = stripVTControlCharacters(line)
  // A cut line loses its colors.
  return displayWidth(plain) <= width ? line : cutText(plain, width)
}
