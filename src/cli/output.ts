/** The output port of all commands: text for people, JSON for programs, or quiet. */

import { ProgressBlock, type Terminal } from '../telemetry/progress/terminal.ts'
import { escapeControls, escapeLines } from '../views/readable.ts'
import { wrapLine } from './reading/text.ts'

/** Receives everything that a command prints. */
export interface Output {
  readonly form: OutputForm
  /** The terminal for progress of a run; `null` if nobody sees it. */
  readonly terminal: Terminal | null
  /** Aborted when results can no longer be written; the command should then stop silently. */
  readonly closed: AbortSignal
  /** Whether results go to a terminal that understands cursor codes. */
  readonly isTerminal: boolean
  /** The maximum number of columns of a result line; `Infinity` without a terminal. */
  readonly width: number
  /** The maximum number of lines of `screen`; `Infinity` without a terminal. */
  readonly rows: number
  /** Replaces the progress block. Text form only. */
  progress(lines: readonly string[]): void
  /** The result of the command: `lines` for people, `value` for programs. */
  result(value: object, lines: readonly string[]): void
  /** Replaces the result that was shown before. Terminals only. */
  screen(lines: readonly string[]): void
  /**
   * A part of a result that is not for people, such as an export, by default on stdout.
   * Resolves when written.
   */
  write(chunk: string | Uint8Array, stream?: 'stdout' | 'stderr'): Promise<void>
  /** A notice for people, such as that a signal was received; never part of the result. */
  problem(line: string): void
  /** Prints why the command failed, as its last output. */
  failure(error: CommandFailure): void
}

export interface CommandFailure {
  readonly code: string
  readonly message: string
  readonly hint?: string | undefined
}

export type OutputForm = 'text' | 'json' | 'quiet'

export function createOutput(form: OutputForm, stdout: Terminal, stderr: Terminal): Output {
  if (form === 'text') return new TextOutput(stdout, stderr)
  return {
    form,
    terminal: null,
    closed: closedOf(stdout),
    isTerminal: false,
    width: Infinity,
    rows: Infinity,
    progress() {},
    screen() {},
    write: async (chunk, stream) => await written(stream === 'stderr' ? stderr : stdout, chunk),
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

/** Wraps lines between words, which the terminal itself would break anywhere. */
export const wrapped = (text: string, width: number): string =>
  text
    .split('\n')
    // Cursor codes take no columns; lines with such codes are cut by whoever draws them.
    .flatMap((line) => (line.includes('\u001B') ? [line] : wrapLine(line, width)))
    .join('\n')

/** Resolves when the chunk is written; `write` without a callback is synchronous. */
function written(terminal: Terminal, chunk: string | Uint8Array): Promise<void> {
  return new Promise((resolve) => {
    if (terminal.writeBytes === undefined) {
      terminal.write(String(chunk))
      resolve()
    } else terminal.writeBytes(chunk, resolve)
  })
}

const closedOf = ({ closedSignal }: Terminal): AbortSignal =>
  closedSignal ?? new AbortController().signal

/** Progress and problems on stderr, results on stdout. */
class TextOutput implements Output {
  readonly form = 'text'
  readonly closed: AbortSignal
  readonly terminal: Terminal
  readonly #stdout: Terminal
  readonly #stderr: Terminal
  readonly #block: ProgressBlock
  readonly #screen: ProgressBlock

  constructor(stdout: Terminal, stderr: Terminal) {
    this.closed = closedOf(stdout)
    this.#stdout = stdout
    this.#stderr = stderr
    this.#block = new ProgressBlock(stderr)
    this.#screen = new ProgressBlock(stdout)
    this.terminal = this.#createTerminal()
  }

  get isTerminal(): boolean {
    return this.#stdout.isTTY === true
  }

  get width(): number {
    return this.#screen.width
  }

  get rows(): number {
    return this.isTerminal ? Math.max(1, (this.#stdout.rows || 24) - 1) : Infinity
  }

  screen(lines: readonly string[]): void {
    this.#block.leave()
    // More lines than the terminal has would scroll and could not be replaced.
    this.#screen.draw(lines.slice(0, this.rows).map((line) => escapeControls(line)))
  }

  write(chunk: string | Uint8Array, stream?: 'stdout' | 'stderr'): Promise<void> {
    return written(stream === 'stderr' ? this.#stderr : this.#stdout, chunk)
  }

  progress(lines: readonly string[]): void {
    this.#block.draw(lines.map((line) => escapeControls(line)))
  }

  result(_value: object, lines: readonly string[]): void {
    this.#block.leave()
    const { width } = this
    const shown = lines.flatMap((line) => wrapLine(escapeControls(line), width))
    this.#stdout.write(`${shown.join('\n')}\n`)
  }

  problem(line: string): void {
    this.#block.leave()
    this.#stderr.write(wrapped(`${escapeLines(line)}\n`, this.#block.width))
  }

  failure(error: CommandFailure): void {
    this.#block.leave()
    this.#stderr.write(wrapped(failureText(error), this.#block.width))
  }

  /** Reads the size each time, because a terminal can be resized. */
  #createTerminal(): Terminal {
    const stderr = this.#stderr
    return {
      write: (text) => stderr.write(wrapped(text, this.#block.width)),
      isTTY: stderr.isTTY === true,
      get columns() {
        return stderr.columns ?? 0
      },
      get rows() {
        return stderr.rows ?? 0
      },
    }
  }
}
