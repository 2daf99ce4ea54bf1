/** The end of what a process wrote, for the error that reports its exit. */

import { maskSecrets } from '../foundation/secrets.ts'

const maxLength = 8192

/** Keeps the last characters and passes on whole lines. Secrets are masked in both. */
export class OutputTail {
  readonly #onLine: (line: string) => void
  #tail = ''
  #line = ''

  constructor(onLine: (line: string) => void = () => {}) {
    this.#onLine = onLine
  }

  get text(): string {
    return maskSecrets(this.#tail).trim()
  }

  add(chunk: string): void {
    this.#tail = (this.#tail + chunk).slice(-maxLength)
    // A progress bar rewrites its line with carriage returns.
    const lines = (this.#line + chunk).split(/[\r\n]+/)
    this.#line = (lines.pop() ?? '').slice(-maxLength)
    for (const line of lines) if (line.trim() !== '') this.#onLine(maskSecrets(line.trimEnd()))
  }
}
