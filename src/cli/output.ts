/** The output port of all commands: text for people, JSON for programs, or quiet. */

import { stripVTControlCharacters } from 'node:util'

/** Receives what a command prints. */
export interface Output {
  /** Columns that a line of progress may use; `Infinity` if there is no limit. */
  readonly width: number
  /** Aborted when results can no longer be written; the command should then stop quietly. */
  readonly closed: AbortSignal
  /** Replaces the progress block. Shown to people only. */
  progress(lines: readonly string[]): void
  /** The result of the command: `lines` for people, `value` for programs. */
  result(value: object, lines: readonly string[]): void
  /** A notice for people, such as that a signal came; never part of the result. */
  problem(line: string): void
  /** Why the command failed; the last thing that it prints. */
  failure(error: CommandFailure): void
}

export interface CommandFailure {
  readonly code: string
  readonly message: string
  readonly hint?: string | undefined
}

export type OutputForm = 'text' | 'json' | 'quiet'

/** A stream that may be a terminal. */
export interface Terminal {
  write(text: string): unknown
  readonly isTTY?: boolean
  readonly columns?: number
  /** Aborted when the stream can no longer be written. */
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
      const text = form === 'json' ? JSON.stringify({ notice: line }) : escapeLines(line)
      stderr.write(`${text}\n`)
    },
    failure({ code, message, hint }) {
      const error = { code, message, hint }
      stderr.write(form === 'json' ? `${JSON.stringify({ error })}\n` : failureText(error))
    },
  }
}

function failureText({ code, message, hint }: CommandFailure): string {
  return `${escapeLines(`${code}  ${message}${hint === undefined ? '' : `\n  hint: ${hint}`}`)}\n`
}

const closedOf = ({ closedSignal }: Terminal): AbortSignal =>
  closedSignal ?? new AbortController().signal

/** Redraws progress in place on a terminal; otherwise prints each block as one line. */
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
    // Some terminals report 0 columns.
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

  failure(error: CommandFailure): void {
    this.#drawn = 0
    this.#stderr.write(failureText(error))
  }

  /** Moves to the first line of the last block and clears from there. */
  #rewind(): string {
    return this.#drawn === 0 ? '' : `\u001B[${this.#drawn}A\u001B[J`
  }
}

/** A line that wraps would break redrawing. A cut line loses its colours. */
function cutTo(line: string, width: number): string {
  const plain = stripVTControlCharacters(line)
  return plain.length <= width ? line : plain.slice(0, width)
}

/** Controls, line breaks that JSON does not escape, and marks that change the text direction. */
const controls = /[\p{Cc}\p{Zl}\p{Zp}\u202A-\u202E\u2066-\u2069]/gu

/** Untrusted text on one line, with control characters escaped as `\u001b`. */
export function escapeControls(text: string): string {
  return text.replaceAll(
    controls,
    (character) => String.raw`\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}

/** The same, but line breaks are kept. */
const escapeLines = (text: string): string =>
  text
    .split('\n')
    .map((line) => escapeControls(line))
    .join('\n')
