/** The port through which every command speaks: to people, to programs, or not at all. */

import { stripVTControlCharacters } from 'node:util'
import { escapeControls, escapeLines } from './control-characters.ts'

/** Where a command's words go. Progress is for people only and may be redrawn. */
export interface Output {
  /** How many columns a line of progress may fill; `Infinity` where nothing limits it. */
  readonly width: number
  /** Aborts when results can no longer be written: what makes them may stop, quietly. */
  readonly closed: AbortSignal
  /** Replaces the progress block. */
  progress(lines: readonly string[]): void
  /** The command's result: words for people, or the value for programs. */
  result(value: object, lines: readonly string[]): void
  /** Something that went wrong, for people; never part of a result. */
  problem(line: string): void
}

export type OutputForm = 'text' | 'json' | 'quiet'

/** A stream that may be a terminal. */
export interface Terminal {
  write(text: string): unknown
  readonly isTTY?: boolean
  readonly columns?: number
  /** Aborts when it can no longer be written. */
  readonly closedSignal?: AbortSignal
}

export function createOutput(form: OutputForm, stdout: Terminal, stderr: Terminal): Output {
  if (form === 'text') return new TextOutput(stdout, stderr)
  return {
    width: Infinity,
    closed: closedOf(stdout),
    progress() {},
    result(value) {
      if (form === 'json') stdout.write(`${JSON.stringify(value)}\n`)
    },
    problem(line) {
      stderr.write(`${escapeLines(line)}\n`)
    },
  }
}

const closedOf = ({ closedSignal }: Terminal): AbortSignal =>
  closedSignal ?? new AbortController().signal

/** Redraws progress in place on a terminal; elsewhere every block is one line. */
class TextOutput implements Output {
  readonly closed: AbortSignal
  readonly #stdout: Terminal
  readonly #stderr: Terminal
  #drawn = 0

  constructor(stdout: Terminal, stderr: Terminal) {
    this.closed = closedOf(stdout)
    this.#stdout = stdout
    this.#stderr = stderr
  }

  /** The last column stays free: some terminals wrap when it is filled. */
  get width(): number {
    if (this.#stderr.isTTY !== true) return Infinity
    // Some terminals do not know their width and say 0.
    return Math.max(1, (this.#stderr.columns || 80) - 1)
  }

  progress(lines: readonly string[]): void {
    const { width } = this
    if (width === Infinity) {
      this.#stderr.write(`${lines.join(' | ')}\n`)
      return
    }
    const cut = lines.map((line) => cutTo(line, width))
    this.#stderr.write(`${this.#rewind()}${cut.join('\n')}\n`)
    this.#drawn = cut.length
  }

  result(_value: object, lines: readonly string[]): void {
    this.#drawn = 0
    this.#stdout.write(`${lines.map((line) => escapeControls(line)).join('\n')}\n`)
  }

  problem(line: string): void {
    this.#drawn = 0
    this.#stderr.write(`${escapeLines(line)}\n`)
  }

  /** Up to the first line of the last block, and clears from there. */
  #rewind(): string {
    return this.#drawn === 0 ? '' : `\u001B[${this.#drawn}A\u001B[J`
  }
}

/** A line that wraps would break the redrawing. Colours go with the part that is cut. */
function cutTo(line: string, width: number): string {
  const plain = stripVTControlCharacters(line)
  return plain.length <= width ? line : plain.slice(0, width)
}
