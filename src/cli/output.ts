/** The output port of all commands: human-readable text, JSON, or quiet. */

import { ProgressBlock, type Terminal } from '../telemetry/progress/terminal.ts'
import { escapeControls, escapeLines } from '../views/readable.ts'
import { wrapLine } from './reading/text.ts'

/** Receives everything that a command prints. */
export interface Output {
  readonly form: OutputForm
  /** The terminal for progress; `null` if the form is not `text`. */
  readonly terminal: Terminal | null
  /** Aborted when results can no longer be written. The command should then stop silently. */
  readonly closed: AbortSignal
  /** Whether results go to a terminal that understands cursor codes. */
  readonly isTerminal: boolean
  /** The maximum number of columns of a result line; `Infinity` without a terminal. */
  readonly width: number
  /** The maximum number of lines of `screen`; `Infinity` without a terminal. */
  readonly rows: number
  /** In text form, replaces the progress block by these lines. */
  progress(lines: readonly string[]): void
  /** Prints the result: `lines` in text form, `value` as JSON. */
  result(value: object, lines: readonly string[]): void
  screen(lines: readonly string[]): void
  /** Writes a part of a result unchanged, by default to stdout. Resolves when it is written. */
  write(chunk: string | Uint8Array, stream?: 'stdout' | 'stderr'): Promise<void>
  /** Prints a notice to stderr. */
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
    closed: closedSignalOf(stdout),
    isTerminal: false,
    width: Infinity,
    rows: Infinity,
    progress() {},
    screen() {},
    write: async (chunk, stream) => await writeChunk(stream === 'stderr' ? stderr : stdout, chunk),
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

/** Wraps lines between words. */
export const wrapText = (text: string, width: number): string =>
  text
    .split('\n')
    // Lines with cursor codes already fit, and the codes take no columns.
    .flatMap((line) => (line.includes('\u001B') ? [line] : wrapLine(line, width)))
    .join('\n')

function writeChunk(terminal: Terminal, chunk: string | Uint8Array): Promise<void> {
  return new Promise((resolve) => {
    if (terminal.writeBytes === undefined) {
      terminal.write(String(chunk))
      resolve()
    } else terminal.writeBytes(chunk, resolve)
  })
}

const closedSignalOf = ({ closedSignal }: Terminal): AbortSignal =>
  closedSignal ?? new AbortController().signal

/** Prints results to stdout, and everything else to stderr. */
class TextOutput implements Output {
  readonly form = 'text'
  readonly closed: AbortSignal
  readonly terminal: Terminal
  readonly #stdout: Terminal
  readonly #stderr: Terminal
  readonly #block: ProgressBlock
  readonly #screen: ProgressBlock

  constructor(stdout: Terminal, stderr: Terminal) {
    this.closed = closedSignalOf(stdout)
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
    this.#block.detach()
    // Leaves out lines that would scroll out of the terminal, because they could not be replaced.
    this.#screen.draw(lines.slice(0, this.rows).map((line) => escapeControls(line)))
  }

  write(chunk: string | Uint8Array, stream?: 'stdout' | 'stderr'): Promise<void> {
    return writeChunk(stream === 'stderr' ? this.#stderr : this.#stdout, chunk)
  }

  progress(lines: readonly string[]): void {
    const { width } = this.#block
    this.#block.draw(lines.flatMap((line) => wrapLine(escapeControls(line), width)))
  }

  result(_value: object, lines: readonly string[]): void {
    this.#block.detach()
    const { width } = this
    const shown = lines.flatMap((line) => wrapLine(escapeControls(line), width))
    this.#stdout.write(`${shown.join('\n')}\n`)
  }

  problem(line: string): void {
    this.#block.detach()
    this.#stderr.write(wrapText(`${escapeLines(line)}\n`, this.#block.width))
  }

  failure(error: CommandFailure): void {
    this.#block.detach()
    this.#stderr.write(wrapText(failureText(error), this.#block.width))
  }

  /** Creates a terminal that writes to stderr. Its size may change, so it is read each time. */
  #createTerminal(): Terminal {
    const stderr = this.#stderr
    return {
      write: (text) => stderr.write(wrapText(text, this.#block.width)),
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
