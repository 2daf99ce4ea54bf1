/** The port through which every command speaks: to people, to programs, or not at all. */

import { stripVTControlCharacters } from 'node:util'

/** Where a command's words go. Progress is for people only and may be redrawn. */
export interface Output {
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
}

export function createOutput(form: OutputForm, stdout: Terminal, stderr: Terminal): Output {
  if (form === 'text') return new TextOutput(stdout, stderr)
  return {
    progress() {},
    result(value) {
      if (form === 'json') stdout.write(`${JSON.stringify(value)}\n`)
    },
    problem(line) {
      stderr.write(`${line}\n`)
    },
  }
}

/** Redraws progress in place on a terminal; elsewhere every block is one line. */
class TextOutput implements Output {
  readonly #stdout: Terminal
  readonly #stderr: Terminal
  #drawn = 0

  constructor(stdout: Terminal, stderr: Terminal) {
    this.#stdout = stdout
    this.#stderr = stderr
  }

  progress(lines: readonly string[]): void {
    if (this.#stderr.isTTY !== true) {
      this.#stderr.write(`${lines.join(' | ')}\n`)
      return
    }
    // Some terminals do not know their width and say 0.
    const width = this.#stderr.columns || 80
    const cut = lines.map((line) => cutTo(line, width))
    this.#stderr.write(`${this.#rewind()}${cut.join('\n')}\n`)
    this.#drawn = cut.length
  }

  result(_value: object, lines: readonly string[]): void {
    this.#drawn = 0
    this.#stdout.write(`${lines.join('\n')}\n`)
  }

  problem(line: string): void {
    this.#drawn = 0
    this.#stderr.write(`${line}\n`)
  }

  /** Up to the first line of the last block, and clears from there. */
  #rewind(): string {
    return this.#drawn === 0 ? '' : `\u001B[${this.#drawn}A\u001B[J`
  }
}

/** A line that wraps would break the redrawing. Colours go with the part that is cut. */
function cutTo(line: string, width: number): string {
  const plain = stripVTControlCharacters(line)
  return plain.length < width ? line : plain.slice(0, Math.max(1, width - 1))
}
