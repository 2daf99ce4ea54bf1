/** The last words of a program, for the error that tells of its end. */

import { maskSecrets } from '../../../foundation/secrets.ts'

const longestTail = 4000

/** Keeps the end of what it is fed, and hands on whole lines. Secrets are masked in both. */
export class OutputTail {
  readonly #onLine: (line: string) => void
  #tail = ''
  #line = ''

  constructor(onLine: (line: string) => void) {
    this.#onLine = onLine
  }

  get text(): string {
    return maskSecrets(this.#tail).trim()
  }

  feed(chunk: string): void {
    this.#tail = (this.#tail + chunk).slice(-longestTail)
    // A progress bar rewrites its line with carriage returns.
    const lines = (this.#line + chunk).split(/[\r\n]+/)
    this.#line = (lines.pop() ?? '').slice(-longestTail)
    for (const line of lines) if (line.trim() !== '') this.#onLine(maskSecrets(line.trimEnd()))
  }
}
