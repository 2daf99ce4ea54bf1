/** Guards stdout and stderr against write errors such as closed pipes. */

import { messageOf } from '../foundation/errors.ts'
import type { Terminal } from '../telemetry/progress/terminal.ts'

/** The part of `process.stdout` that is used here. */
export interface ProcessStream extends Terminal {
  write(bytes: string | Uint8Array, done?: () => void): unknown
  on(event: 'error', listener: (error: NodeJS.ErrnoException) => void): unknown
}

export interface StandardStreamsParts {
  readonly stdout: ProcessStream
  readonly stderr: ProcessStream
  readonly term: string | undefined
  /** Called once for each stream that fails, unless its pipe was closed. */
  readonly onFailure: (message: string) => void
}

export interface StandardStreams {
  readonly stdout: Terminal
  readonly stderr: Terminal
}

/**
 * After a write error, ignores further writes and aborts `closedSignal`. A closed pipe (`| head`)
 * is not reported. A run continues without stderr, and stops without stdout.
 */
export function guardStreams(parts: StandardStreamsParts): StandardStreams {
  const { term, onFailure } = parts
  const fail = (name: string, error: Error): void =>
    onFailure(`${name} cannot be written: ${messageOf(error)}`)
  const stdout = new GuardedTerminal(parts.stdout, term, (error) => fail('stdout', error))
  const stderr = new GuardedTerminal(parts.stderr, term, (error) => fail('stderr', error))
  return { stdout, stderr }
}

class GuardedTerminal implements Terminal {
  readonly isTTY: boolean
  readonly #stream: ProcessStream
  readonly #closing = new AbortController()

  constructor(stream: ProcessStream, term: string | undefined, onFailure: (error: Error) => void) {
    this.#stream = stream
    // A dumb terminal does not understand cursor codes.
    this.isTTY = stream.isTTY === true && term !== 'dumb'
    stream.on('error', (error) => {
      const isFirst = !this.closedSignal.aborted
      this.#closing.abort()
      if (isFirst && error.code !== 'EPIPE') onFailure(error)
    })
  }

  get columns(): number {
    return this.#stream.columns ?? 0
  }

  get rows(): number {
    return this.#stream.rows ?? 0
  }

  get closedSignal(): AbortSignal {
    return this.#closing.signal
  }

  write(text: string): void {
    if (!this.closedSignal.aborted) this.#stream.write(text)
  }

  writeBytes(bytes: string | Uint8Array, done: () => void): void {
    if (this.closedSignal.aborted) done()
    else this.#stream.write(bytes, () => done())
  }
}
