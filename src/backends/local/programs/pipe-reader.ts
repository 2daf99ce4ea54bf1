/** Reads a program's output from a pipe: at its exit if it is quick, as a stream if it is not. */

import { Socket } from 'node:net'
import type { Libc } from './libc.ts'
import type { OutputCapture } from './output-capture.ts'

/** All readers share it: what was read is taken before the next read. */
const shared = Buffer.allocUnsafeSlow(65_536)

export class PipeReader {
  readonly #libc: Libc
  readonly #descriptor: number
  readonly #capture: OutputCapture
  #socket: Socket | undefined

  constructor(libc: Libc, descriptor: number, capture: OutputCapture) {
    this.#libc = libc
    this.#descriptor = descriptor
    this.#capture = capture
  }

  /** Reads whatever comes from now on, so that the program never waits for a reader. */
  stream(): void {
    this.#socket = new Socket({
      fd: this.#descriptor,
      readable: true,
      writable: false,
      onread: {
        buffer: shared,
        callback: (bytes) => {
          this.#capture.push(shared.subarray(0, bytes))
          return true
        },
      },
    })
    this.#socket.on('error', () => {})
    this.#socket.resume()
  }

  /** Takes what is in the pipe at this moment and closes it, also if others still hold it open. */
  finish(): void {
    const socket = this.#socket
    // A socket at its end has closed the descriptor, and another file may have the number.
    if (socket?.destroyed === true) return
    this.#takeRest()
    if (socket === undefined) this.#libc.close(this.#descriptor)
    else socket.destroy()
  }

  #takeRest(): void {
    let left = this.#libc.readable(this.#descriptor)
    while (left > 0) {
      const bytes = this.#libc.read(this.#descriptor, shared, left)
      if (bytes === 0) return
      this.#capture.push(shared.subarray(0, bytes))
      left -= bytes
    }
  }
}
