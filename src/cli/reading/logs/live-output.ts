/** Asks the process that writes a record for the output of a running program. */

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
import { type Stream, streams } from './task-story.ts'

const renewMs = 2000

export class LiveOutput {
  readonly #uid: string
  readonly #folder: string
  readonly #request: string
  #askedMs = -Infinity
  #problem: string | null = null

  /** `record` is the file that is being written. */
  constructor(uid: string, record: string) {
    this.#uid = uid
    this.#folder = followFolderOf(record)
    this.#request = requestPath(this.#folder, uid, randomUUID())
  }

  /** The reason why no output can be requested; `null` if it can. */
  get problem(): string | null {
    return this.#problem
  }

  /** Whether the run has answered, possibly with empty output. */
  get isAnswered(): boolean {
    return streams.every((stream) => isRegularFile(this.pathOf(stream)))
  }

  pathOf(stream: Stream): string {
    return outputPath(this.#folder, this.#uid, stream)
  }

  /** Call this repeatedly while the output is needed. */
  ask(): void {
    const nowMs = systemClock.monotonicMs()
    if (this.#problem !== null || nowMs - this.#askedMs < renewMs) return
    this.#askedMs = nowMs
    try {
      mkdirSync(this.#folder, { recursive: true })
      writeFileSync(this.#request, '')
    } catch (error) {
      this.#problem = `the folder of the record cannot be written: ${errnoOf(error)}`
    }
  }

  /** Whether another command requests the same output. */
  get #isWanted(): boolean {
    return readdirSync(this.#folder).some((name) => requestedUid(name) === this.#uid)
  }

  /** Withdraws the request; also removes the output if the task `hasEnded`. */
  close(hasEnded: boolean): void {
    try {
      rmSync(this.#request, { force: true })
      if (!hasEnded || this.#isWanted) return
      for (const stream of streams) rmSync(this.pathOf(stream), { force: true })
      rmdirSync(this.#folder)
    } catch {
      // The output was never requested, is already removed, or the folder is used for another task.
    }
  }
}
