/** The output port of all commands: text for people, JSON for programs, or quiet. */

import {
  escapeControls,
  escapeLines,
  ProgressBlock,
  type Terminal,
  withoutRewind,
} from '../telemetry/progress/terminal.ts'
import { wrapLine } from './reading/text.ts'

/** Receives what a command prints. */
export interface Output {
  readonly form: OutputForm
  /** Where a run shows its progress to people; `null` if there are none to see it. */
  readonly terminal: Terminal | null
  /** Aborted when results can no longer be written; the command should then stop quietly. */
  readonly closed: AbortSignal
  /** Whether results are seen by a person on a terminal that understands cursor codes. */
  readonly isTerminal: boolean
  /** Columns that a line of a result may use; `Infinity` where there is no terminal. */
  readonly width: number
  /** Replaces the progress block. Shown to people only. */
  progress(lines: readonly string[]): void
  /** The result of the command: `lines` for people, `value` for programs. */
  result(value: object, lines: readonly string[]): void
  /** Replaces the result that was shown before. Only for terminals. */
  screen(lines: readonly string[]): void
  /** A part of a result that is not for people, such as an export. Resolves when written. */
  write(chunk: string | Uint8Array): Promise<void>
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

export function createOutput(form: OutputForm, stdout: Terminal, stderr: Terminal): Output {
  if (form === 'text') return new TextOutput(stdout, stderr)
  return {
    form,
    terminal: null,
    closed: closedOf(stdout),
    isTerminal: false,
    width: Infinity,
    progress() {},
    screen() {},
    write: async (chunk) => await written(stdout, chunk),
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

/** No line is wider than the terminal, which would break it anywhere. */
export const wrapped = (text: string, width: number): string =>
  text
    .split('\n')
    // Codes take no columns; lines that have some are cut by whoever draws them.
    .flatMap((line) => (line.includes('\u001B') ? [line] : wrapLine(line, width)))
    .join('\n')

/** A stream that takes no callback has written when it returns. */
function written(stdout: Terminal, chunk: string | Uint8Array): Promise<void> {
  return new Promise((resolve) => {
    if (stdout.writeBytes === undefined) {
      stdout.write(String(chunk))
      resolve()
    } else stdout.writeBytes(chunk, resolve)
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
  #isInterrupted = false

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

  screen(lines: readonly string[]): void {
    this.#interrupt()
    // What is higher than the terminal would scroll, and could not be replaced.
    const most = Math.max(1, (this.#stdout.rows || 24) - 1)
    this.#screen.draw(lines.slice(0, most).map((line) => escapeControls(line)))
  }

  write(chunk: string | Uint8Array): Promise<void> {
    return written(this.#stdout, chunk)
  }

  progress(lines: readonly string[]): void {
    this.#block.draw(lines)
  }

  result(_value: object, lines: readonly string[]): void {
    this.#interrupt()
    const { width } = this
    const shown = lines.flatMap((line) => wrapLine(escapeControls(line), width))
    this.#stdout.write(`${shown.join('\n')}\n`)
  }

  problem(line: string): void {
    this.#interrupt()
    this.#stderr.write(wrapped(`${escapeLines(line)}\n`, this.#block.width))
  }

  failure(error: CommandFailure): void {
    this.#interrupt()
    this.#stderr.write(wrapped(failureText(error), this.#block.width))
  }

  #interrupt(): void {
    this.#block.leave()
    this.#isInterrupted = true
  }

  /** What is drawn there after an interruption must not go back over it. */
  #createTerminal(): Terminal {
    const stderr = this.#stderr
    const write = (text: string): void => {
      const shown = this.#isInterrupted ? withoutRewind(text) : text
      stderr.write(wrapped(shown, this.#block.width))
      this.#isInterrupted = false
    }
    return {
      write,
      isTTY: stderr.isTTY === true,
      get columns() {
        return stderr.columns ?? 0
      },
    }
  }
}
