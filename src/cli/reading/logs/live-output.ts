/** Requests the output of a running program from the process that writes the record. */

import { randomUUID } from 'node:crypto'
import { mkdirSync, readdirSync, rmdirSync, rmSync, writeFileSync } from 'node:fs'
import {
  followFolderOf,
  outputPath,
  requestedUid,
  requestPath,
} from '../../../checkpoint/record-names.ts'
import { systemClock } from '../../../foundation/clock.ts'
import { errnoOf } from '../../../foundation/errors.ts'
import { isRegularFile } from '../../../foundation/regular-file.ts'
import { type Stream, streams } from '../../../record/task-history.ts'

const renewIntervalMs = 2000

export class LiveOutput {
  readonly #uid: string
  readonly #folder: string
  readonly #request: string
  #requestedMs = -Infinity
  problem: string | null = null

  /** `record` is the file that is being written. */
  constructor(uid: string, record: string) {
    this.#uid = uid
    this.#folder = followFolderOf(record)
    this.#request = requestPath(this.#folder, uid, randomUUID())
  }

  /** Whether the run has sent its output, which may be empty. */
  get isAnswered(): boolean {
    return streams.every((stream) => isRegularFile(this.pathOf(stream)))
  }

  pathOf(stream: Stream): string {
    return outputPath(this.#folder, this.#uid, stream)
  }

  /** Requests the output. Must be called repeatedly while the output is needed. */
  request(): void {
    const nowMs = systemClock.monotonicMs()
    if (this.problem !== null || nowMs - this.#requestedMs < renewIntervalMs) return
    this.#requestedMs = nowMs
    try {
      mkdirSync(this.#folder, { recursive: true })
      writeFileSync(this.#request, '')
    } catch (error) {
      this.problem = `the folder of the record cannot be written: ${errnoOf(error)}`
    }
  }

  get #isRequested(): boolean {
    return readdirSync(this.#folder).some((name) => requestedUid(name) === this.#uid)
  }

  close(hasEnded: boolean): void {
    try {
      rmSync(this.#request, { force: true })
      if (!hasEnded || this.#isRequested) return
      for (const stream of streams) rmSync(this.pathOf(stream), { force: true })
      rmdirSync(this.#folder)
    } catch {
      // The files do not exist, or the folder is also used for another task.
    }
  }
}
