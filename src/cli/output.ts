/** The output port of all commands: text for people, JSON for programs, or quiet. */

import {
  escapeControls,
  escapeLines,
  ProgressBlock,
  type Terminal,
  withoutRewind,
} from '../telemetry/progress/terminal.ts'

/** Receives what a command prints. */
export interface Output {
  readonly form: OutputForm
  /** Where a run shows its progress to people; `null` if there are none to see it. */
  readonly terminal: Terminal | null
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

export function createOutput(form: OutputForm, stdout: Terminal, stderr: Terminal): Output {
  if (form === 'text') return new TextOutput(stdout, stderr)
  return {
    form,
    terminal: null,
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

/** Progress and problems on stderr, results on stdout. */
class TextOutput implements Output {
  readonly form = 'text'
  readonly closed: AbortSignal
  readonly terminal: Terminal
  readonly #stdout: Terminal
  readonly #stderr: Terminal
  readonly #block: ProgressBlock
  #isInterrupted = false

  constructor(stdout: Terminal, stderr: Terminal) {
    this.closed = closedOf(stdout)
    this.#stdout = stdout
    this.#stderr = stderr
    this.#block = new ProgressBlock(stderr)
    this.terminal = this.#createTerminal()
  }

  progress(lines: readonly string[]): void {
    this.#block.draw(lines)
  }

  result(_value: object, lines: readonly string[]): void {
    this.#interrupt()
    this.#stdout.write(`${lines.map((line) => escapeControls(line)).join('\n')}\n`)
  }

  problem(line: string): void {
    this.#interrupt()
    this.#stderr.write(`${escapeLines(line)}\n`)
  }

  failure(error: CommandFailure): void {
    this.#interrupt()
    this.#stderr.write(failureText(error))
  }

  #interrupt(): void {
    this.#block.leave()
    this.#isInterrupted = true
  }

  /** What is drawn there after an interruption must not go back over it. */
  #createTerminal(): Terminal {
    const stderr = this.#stderr
    const write = (text: string): void => {
      stderr.write(this.#isInterrupted ? withoutRewind(text) : text)
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
